"""Draws how requests keep each latency limit: the shares within it, how much of it is used.

A dot is the observed share, its bar the 95 % interval, the dashed line the target; the axis covers
only the range of the values. A latency is the one at the percentile that the SLO asks for, in
percent of its limit; bars far beyond the limit are cut, and say by how many times they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from reports.figures.charts import chart
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar, Mark
from sim.units import TWICE, number


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
    bars, targets = [], [target if each.target is None else each.target for each in limits]
    for limit, wanted in zip(limits, targets, strict=True):
        row = limit.title if len(set(targets)) == 1 else f"{limit.title}, {_wanted(wanted)}"
        interval, told = None, "no interval is known"
        if limit.low is not None and limit.high is not None:
            told = f"95 % interval {limit.low:.3%} to {limit.high:.3%}"
            interval = min(limit.low, limit.share), max(limit.high, limit.share)
        text = f"{row}: {limit.share:.3%} ({told})"
        bars.append(ChartBar(row, limit.share, text, tone=limit.tone(target), interval=interval))
    marks = tuple(Mark(each, _wanted(each)) for each in sorted(set(targets)))
    axis = ChartAxis("share of requests within the limit", "share")
    return chart(BarChart(axis, tuple(bars), marks, dots=True))


def _wanted(target: float) -> str:
    return f"target {100 * target:.6g} %"


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
    """The limits below each other, in the order given. What is reached, and which share of the
    limit that is, are in the name of a row: next to its bar, the line of the limit would go through
    them on a narrow screen."""
    bars = []
    for title, text, share, tone in limits:
        times = f"{number(share)}x" if share >= TWICE else f"{100 * share:.0f}%"
        row = f"{title}: {text}, {times}"
        bars.append(ChartBar(row, min(share, LONGEST), row, tone=tone))
    axis = ChartAxis("share of the limit", "share")
    return chart(BarChart(axis, tuple(bars), (Mark(1.0, "limit"),)))
