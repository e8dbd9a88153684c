"""Draws what studies of a run find: changes and their effects, and what latencies consist of.

A tornado has bars on both sides of a metric's value now, the widest on top. In a waterfall each bar
begins where the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.axes import height
from reports.figures.series import TITLES, label, plain
from reports.frame import draw, theme
from reports.frame.draw import time_axis
from reports.frame.formats import NARROW_SPACE
from sim.metrics.states import SloState
from sim.planning.answers.ablate import SAME
from sim.planning.answers.cells import MOST_ROWS, NOTHING, value_text
from sim.planning.answers.drawings import (
    BARS,
    PARTS,
    AttainedAtEnds,
    ChangeBar,
    Changes,
    EndsBar,
    MeanParts,
    Waterfall,
)
from sim.units import milliseconds, show_share, time_scale

ROOM = 34
"""Pixels of a row with two words next to its bars, or a label of two lines."""

THICK = 0.7
"""Share of a row that its bar fills; two bars to the same side have half of it each."""


LETTER, NARROW = 6, 200
"""Pixels of a letter next to a bar, and between the axes of a figure that shares a row."""

LEAST_ROOM, MOST_ROOM = 0.12, 0.35
"""Shares of a figure's width that are left on either side of the bars."""


BESIDE: Mapping[str, Any] = {
    "textposition": "outside",
    "constraintext": "none",
    "textfont": theme.text("muted", 10),
    "cliponaxis": False,
}
"""How words next to bars are drawn."""


def tornado(changes: Changes) -> go.Figure:
    """Green is better, red is worse, grey is neither."""
    title, more, bars = changes
    drawn = [bar for own in rows(bars)[:MOST_ROWS] for bar in own]
    shape = [side for own in rows(bars)[:MOST_ROWS] for side in _sides([bar.change for bar in own])]
    trace = draw.bars(
        [100 * bar.change for bar in drawn],
        [label(bar.row) for bar in drawn],
        [_colour(bar, more) for bar in drawn],
        "%{customdata}: %{x:+.3~g} %<extra></extra>",
        offset=[offset for offset, _ in shape],
        width=[width for _, width in shape],
        text=[plain(bar.end) if abs(bar.change) >= NOTHING else "" for bar in drawn],
        customdata=[plain(bar.text) for bar in drawn],
        **BESIDE,
    )
    return draw.assemble(
        [trace],
        theme.axis(f"{title}, change (%)", **_span(drawn)),
        draw.names(),
        height=height(len({bar.row for bar in drawn}), _row(drawn, shape)),
        barmode="overlay",
        shapes=[draw.upright(0)],
    )


def rows(bars: Sequence[ChangeBar]) -> list[list[ChangeBar]]:
    """The bars row by row, the row with the widest one first."""
    found: dict[str, list[ChangeBar]] = {}
    for bar in bars:
        found.setdefault(bar.row, []).append(bar)
    return sorted(found.values(), key=lambda own: -max(abs(bar.change) for bar in own))


def _sides(moves: Sequence[float]) -> list[tuple[float, float]]:
    """Offset and width of the bars of a row that reach so far: those to the same side share the
    row, or one would hide the other."""
    if len(moves) < 2 or min(moves) * max(moves) < 0:
        return [(-THICK / 2, THICK)] * len(moves)
    width = THICK / len(moves)
    return [(width * index - THICK / 2, width) for index in range(len(moves))]


def _row(drawn: Sequence[ChangeBar], sides: Sequence[tuple[float, float]]) -> int:
    """Pixels of a row: more if some words need them."""
    shared = any(bar.end and width < THICK for bar, (_, width) in zip(drawn, sides, strict=True))
    return ROOM if shared or any("<br>" in label(bar.row) for bar in drawn) else 24


def _span(drawn: Sequence[ChangeBar]) -> dict[str, Any]:
    """A range that leaves room for the words next to the bars, where three such figures share the
    width of a page; at least a percent wide."""
    low = min([0.0, *(100 * bar.change for bar in drawn)])
    high = max([0.0, *(100 * bar.change for bar in drawn)])
    left, right = (
        max([LEAST_ROOM, *(_words(bar) for bar in drawn if sign * bar.change >= NOTHING)])
        for sign in (-1, 1)
    )
    whole = max(high - low, 1.0) / (1 - left - right)
    return {"range": [low - left * whole, high + right * whole]}


def _words(bar: ChangeBar) -> float:
    """The share of a narrow figure's width that the word next to a bar takes."""
    return min(MOST_ROOM, (LETTER * len(bar.end) + 8) / NARROW)


def _colour(bar: ChangeBar, more: bool) -> str:
    if not bar.judged:
        return theme.GREY.light
    return (theme.GREEN if (bar.change > 0) == more else theme.VERMILLION).light


NO_BAR = 0.02
"""Bars that are a smaller part of the room for words next to them have none."""


def attained_at_ends(attained: AttainedAtEnds) -> go.Figure:
    """Bars from the share of the run to that at each end; the target is a dashed line."""
    now, target, drawn = attained
    shares = [100 * share for share in (now, target, *(bar.share for bar in drawn))]
    low, high = min(shares), max(shares)
    room = max(0.2 * (high - low), 0.02)
    own = [[each for each in drawn if each.row == bar.row] for bar in drawn]
    shape = [
        _sides([each.share - now for each in row])[row.index(bar)]
        for row, bar in zip(own, drawn, strict=True)
    ]
    trace = draw.bars(
        [100 * (bar.share - now) for bar in drawn],
        [label(bar.row) for bar in drawn],
        [_flipped(bar) for bar in drawn],
        "%{customdata[0]}: %{customdata[1]} within the SLO<extra></extra>",
        base=[100 * now] * len(drawn),
        offset=[offset for offset, _ in shape],
        width=[width for _, width in shape],
        text=[plain(_beside(bar, now, room)) for bar in drawn],
        customdata=[
            [plain(f"{bar.row} {bar.text}".strip()), show_share(bar.share, target)] for bar in drawn
        ],
        **BESIDE,
    )
    wanted = f"wanted: {show_share(target).replace('%', f'{NARROW_SPACE}%')}"
    return draw.assemble(
        [trace],
        theme.axis("Requests within the SLO (%)", range=[low - room, high + room / 2]),
        draw.names(),
        height=height(len({bar.row for bar in drawn}), ROOM) + 12,
        barmode="overlay",
        shapes=[draw.upright(100 * now), draw.upright(100 * target, dash="dash")],
        annotations=[draw.note(wanted, 100 * target, 1.0, size=10, yref="paper", yanchor="bottom")],
    )


def _beside(bar: EndsBar, now: float, room: float) -> str:
    """Which end it is, and the verdict where that is another one; nothing next to no bar."""
    if 100 * abs(bar.share - now) < NO_BAR * room:
        return ""
    return ": ".join(text for text in (bar.text, bar.flips) if text)


def _flipped(bar: EndsBar) -> str:
    tone: Mapping[str, theme.Tone] = {
        SloState.MET: theme.GREEN,
        SloState.MISSED: theme.VERMILLION,
        SloState.OPEN: theme.ORANGE,
    }
    return tone.get(bar.flips, theme.GREY).light


class WaterfallBar(NamedTuple):
    """From where to where; a ``whole`` one stands on the ground, others are what a step brings."""

    name: str
    start: float
    end: float
    tone: theme.Tone
    whole: bool


def bars(found: Waterfall) -> list[WaterfallBar]:
    """Baseline, steps and the whole of one figure; steps that do not run are left out, and what
    the next one brings is counted from before them."""
    made, at = [], found.baseline
    if at is not None:
        made.append(WaterfallBar("baseline", 0.0, at, theme.GREY, whole=True))
    for step in found.steps:
        value = step.value
        if value is None or at is None:
            continue
        better = (value >= at) == found.more
        tone = theme.GREEN if better else theme.VERMILLION
        made.append(WaterfallBar(f"+ {step.title}", at, value, tone, whole=False))
        at = value
    if found.full is not None:
        made.append(WaterfallBar("all together", 0.0, found.full, theme.BLUE, whole=True))
    return made


def waterfall(found: Waterfall) -> go.Figure:
    """The steps in the order asked for, and the whole at the end.

    Green is better, red is worse.
    """
    key, drawn = found.key, bars(found)
    highest = max([bar.end for bar in drawn], default=1.0) or 1.0
    axis, factor = _axis(key, found.unit, highest)
    labels = [label(bar.name) for bar in drawn]
    trace = draw.bars(
        [factor * (bar.end - bar.start) for bar in drawn],
        labels,
        [bar.tone.light for bar in drawn],
        "%{y}: %{customdata}<extra></extra>",
        base=[factor * bar.start for bar in drawn],
        customdata=[value_text(key, bar.end) for bar in drawn],
    )
    words = draw.points(
        [factor * max(bar.start, bar.end) for bar in drawn],
        labels,
        {},
        mode="text",
        text=[f" {_bar_words(key, bar)}" for bar in drawn],
        textposition="middle right",
        cliponaxis=False,
    )
    room = axis | {"range": [0, 1.25 * factor * highest]}
    return draw.assemble([trace, words], room, draw.names(), height=height(len(drawn)), bargap=0.3)


def _axis(key: str, unit: str, highest: float) -> tuple[dict[str, Any], float]:
    """The axis of a metric, and what its values are multiplied with to be in the axis's unit."""
    title = TITLES[key]
    if unit == "ms":
        shown = time_scale(highest / 1e3)
        return time_axis(title, shown), shown.factor / 1e3
    return theme.axis(title if unit in title else f"{title} ({unit})"), 1.0


def _bar_words(key: str, bar: WaterfallBar) -> str:
    """The value of a whole, the change of a step."""
    change = bar.end - bar.start
    if bar.whole:
        return value_text(key, bar.end)
    if abs(change) <= SAME * max(abs(bar.start), abs(bar.end)):
        return "no change"
    return f"{'+' if change >= 0 else '−'}{value_text(key, abs(change))}"


def mean_parts(found: MeanParts) -> go.Figure:
    """A bar of means of all requests, and one of the slowest."""
    longest = max((sum(parts.values()) for parts in found.bars.values()), default=0.0)
    shown = time_scale(longest / 1e3)
    traces = []
    for part, title in PARTS.items():
        values = [parts.get(part, 0.0) for parts in found.bars.values()]
        if any(values):
            traces.append(
                draw.bars(
                    [value * shown.factor / 1e3 for value in values],
                    [BARS[name] for name in found.bars],
                    theme.LATENCY_PARTS[part].light,
                    f"{title}: %{{customdata}}<extra></extra>",
                    name=title,
                    customdata=[milliseconds(value) for value in values],
                )
            )
    return draw.assemble(
        traces,
        time_axis(f"{found.latency.upper()}, mean", shown),
        draw.names(),
        barmode="stack",
        height=270,
        showlegend=True,
        legend={"traceorder": "normal"},
    )
