"""Defines the figures of decisions as plain records, which ``reports.figures.charts`` draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Tone = str
"""What the colour of something stands for: better or worse (good, warn, bad, or nothing where it is
neither), a latency, a part of one, ``policy NAME``, ``gpu NUMBER``, the first or others of a
ranking, all or half of something, the front of a trade-off."""


BATCHING = "scheduler.batching"
"""The setting whose values have colours of their own."""


class ChartAxis(NamedTuple):
    """The axis of values that are milliseconds (``ms``), drawn in the unit that suits them, shares
    (0..1), ratios (2 is twice as much) or whole numbers (``count``). ``ends`` are where it begins
    and ends, if that is not at 0 and behind all that is drawn."""

    title: str
    kind: Literal["number", "ms", "share", "ratio", "count"] = "number"
    logarithmic: bool = False
    ends: tuple[float, float] | None = None


class Mark(NamedTuple):
    """A straight line at a value that others are compared with, across the figure or ``upright``;
    the legend has its ``name``, if any."""

    at: float
    name: str = ""
    dash: str = "dash"
    upright: bool = False


class ChartBar(NamedTuple):
    """A bar from ``start`` to ``end``; bars of the same ``row`` share it. ``text`` is under the
    pointer, line by line, ``words`` stand next to the bar, the legend has ``part``. A ``pale`` one
    counts less; ``interval`` is where the end may be, without an upper end (None) where that is not
    known. The words of a bar with one stand below the name of its row."""

    row: str
    end: float
    text: str
    words: str = ""
    tone: Tone = ""
    start: float = 0.0
    interval: tuple[float, float | None] | None = None
    part: str = ""
    pale: bool = False


class BarChart(NamedTuple):
    """Bars that lie, the first on top, with upright marks; ``dots`` are drawn at their ends alone,
    and always on an axis that is logarithmic."""

    axis: ChartAxis
    bars: tuple[ChartBar, ...]
    marks: tuple[Mark, ...] = ()
    dots: bool = False


class ChartPoint(NamedTuple):
    """A point; ``text`` is under the pointer in addition to both values, ``words`` stand next to
    it, ``state`` decides its shape (overloaded, missed, fails, too close to call), and ``interval``
    is where ``y`` may be."""

    x: float
    y: float
    text: str = ""
    words: str = ""
    state: str | None = None
    interval: tuple[float, float] | None = None


class Series(NamedTuple):
    """Points that the legend has under one ``name``, and perhaps a line through them, which may go
    in ``steps``: first across and then up (``hv``), or the other way round. Without a ``tone`` the
    ``settings`` decide the colour."""

    name: str
    points: tuple[ChartPoint, ...]
    tone: Tone | None = None
    settings: Mapping[str, Any] = {}
    look: Literal["points", "line", "both"] = "points"
    dash: str = "solid"
    steps: Literal["linear", "hv", "vh"] = "linear"


class PointChart(NamedTuple):
    """Points over two axes. ``within``: the highest ``x``, if there is one, and the highest ``y``
    that keep a limit."""

    x: ChartAxis
    y: ChartAxis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    within: tuple[float | None, float] | None = None


class Grid(NamedTuple):
    """A metric, ``title``, over two values: a row of ``values`` for each of ``rows``, None where a
    point failed or has no value; ``met`` where the SLO is met."""

    title: str
    across: str
    up: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    met: tuple[tuple[bool, ...], ...]
    logarithmic: bool


WIDE = 30.0
"""Largest over smallest latency from which on an axis is logarithmic."""


def drawable(value: float | None) -> bool:
    """Whether a value can be drawn on a logarithmic axis.

    >>> drawable(3.0), drawable(0.0), drawable(None), drawable(math.inf)
    (True, False, False, False)
    """
    return value is not None and 0 < value < math.inf


def far_apart(latencies: list[float]) -> bool:
    """Whether latencies are so different that the small ones would vanish on a linear axis."""
    return min(latencies, default=0.0) > 0 and max(latencies) > WIDE * min(latencies)
