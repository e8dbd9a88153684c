"""Draws how requests keep each latency limit: the shares within it, how much of it is used.

A dot is the observed share, its bar the 95 % interval, the dashed line the target; the axis covers
only the range of the values. A latency is the one at the percentile that the SLO asks for, in
percent of its limit; bars far beyond the limit are cut, and say by how many times they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.charts import chart
from reports.frame import draw, theme
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar, Mark
from sim.units import TWICE, number

ROW_OF_SHARE, FRAME_OF_SHARES = 44, 70
"""Height (px) of a limit, and of the margins around them."""

SYMBOLS = {"good": "circle", "bad": "x", "warn": "diamond"}
"""How the dots differ for readers who do not see colours."""


class AttainedLimit(NamedTuple):
    """The share of requests, 0..1, that keep a limit called ``title``; bounds None if unknown.
    ``target`` is the wanted share, None for that of the figure."""

    title: str
    share: float
    low: float | None
    high: float | None
    target: float | None = None

    def tone(self, target: float) -> str:
        """``good`` or ``bad``; ``warn`` where the interval leaves open which."""
        target = target if self.target is None else self.target
        if self.low is not None and self.high is not None and self.low < target <= self.high:
            return "warn"
        return "good" if self.share >= target else "bad"


def attainment(limits: Sequence[AttainedLimit], target: float) -> go.Figure:
    """The limits below each other, in the order given, each with its target, or ``target``."""
    targets = [target if limit.target is None else limit.target for limit in limits]
    least = min([*targets, *(limit.share if limit.low is None else limit.low for limit in limits)])
    room = max((1 - least) * 0.12, 0.0005)
    left = 0.0 if least - room < 0.15 else least - room
    texts = [limit.title for limit in limits]
    return draw.assemble(
        [_targets(targets), *(_dot(limit, row, target) for row, limit in enumerate(limits))],
        theme.axis(
            "share of requests within the limit",
            range=[left, 1 + (1 - left) * 0.03],
            tickformat=_digits(1 - left),
            nticks=6,
        ),
        draw.rows(texts, range=[len(limits) - 0.5, -0.75]),
        height=FRAME_OF_SHARES + ROW_OF_SHARE * len(limits),
        margin={"t": 24},
        annotations=[_target_label(each, left) for each in sorted(set(targets))],
    )


def _digits(span: float) -> str:
    if span > 0.1:
        return ".0%"
    return ".1%" if span > 0.01 else ".2%"


def _dot(limit: AttainedLimit, row: int, target: float) -> dict[str, Any]:
    tone = limit.tone(target)
    color = theme.PAGE[tone].light
    told = "no interval is known"
    bars: dict[str, Any] = {"visible": False}
    if limit.low is not None and limit.high is not None:
        told = f"95 % interval {limit.low:.3%} to {limit.high:.3%}"
        more, less = limit.high - limit.share, limit.share - limit.low
        bars = draw.spread([max(0.0, less)], [max(0.0, more)], color, 2, width=6)
    return draw.points(
        [limit.share],
        [row],
        {"size": 11, "symbol": SYMBOLS[tone], "color": color},
        hover=f"{limit.title}: %{{x:.3%}} ({told})<extra></extra>",
        error_x=bars,
        cliponaxis=False,
    )


def _targets(targets: Sequence[float]) -> dict[str, Any]:
    """A dashed line through the rows, from the bottom to the top; it steps where targets differ."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row in reversed(range(len(targets))):
        top = -0.75 if row == 0 else row - 0.5
        if x and x[-1] == targets[row]:
            y[-1] = top
            continue
        x += [None, targets[row], targets[row]] if x else [targets[row], targets[row]]
        y += [None, row + 0.5, top] if y else [row + 0.5, top]
    return draw.line(x, y, theme.PAGE["ink"].light, width=1.5, dash="dash")


def _target_label(target: float, left: float) -> dict[str, Any]:
    """Next to the top of the line, on the side that has room."""
    at_left = target - left < 0.5 * (1 - left)
    side = "left" if at_left else "right"
    return draw.note(f"target {100 * target:.6g} %", target, -0.75, xanchor=side, yanchor="bottom")


LONGEST = 1.4
"""Where bars are cut, in limits."""


class LimitUse(NamedTuple):
    """A limit called ``title``: what is reached, in words, and as a share of the limit; ``tone`` is
    good, bad or warn."""

    title: str
    text: str
    share: float
    tone: str


def limit_use(limits: Sequence[LimitUse]) -> go.Figure:
    """The limits below each other, in the order given."""
    bars = []
    for title, text, share, tone in limits:
        times = f"{number(share)}x" if share >= TWICE else f"{100 * share:.0f}%"
        said = f"{text}: {times}"
        bars.append(ChartBar(title, min(share, LONGEST), f"{title}: {said}", said, tone))
    axis = ChartAxis("share of the limit", "share")
    return chart(BarChart(axis, tuple(bars), (Mark(1.0, "limit"),)), wide=True)
