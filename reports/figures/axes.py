"""Provides logarithmic axes, lines to compare with, heights of figures with rows.

Figures of decisions are given milliseconds and draw seconds where the axis is logarithmic, so that
its labels read ``10 ms``, ``1 s``, ``100 s``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10
from typing import Any

from reports.frame import theme
from reports.frame.draw import line
from sim.planning.answers.drawings import drawable

FEW_DECADES = 1.3
"""A range of fewer decades has labels between them."""

MANY_DECADES = 2.5
"""From so many decades on only each of them has a label."""

ONE_STEP = 0.7
"""A range of fewer decades may hold but one of 1, 2, 5, and has more labels."""

MOST_DECADES = 8
"""Labels of decades that an axis has room for."""

_PREFIXES = {-4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}


def logarithmic(title: str | None, values: Iterable[float], unit: str = "") -> dict[str, Any]:
    """An axis for ``values``, all above 0, labelled with decimal prefixes and ``unit``."""
    known = list(values)
    low, high = log10(min(known)), log10(max(known))
    axis = theme.axis(title, type="log")
    apart = max(1, floor((high - low) / 6)) if high - low >= FEW_DECADES else 0
    if apart and not unit:
        return axis | {"dtick": apart, "tickformat": "~s"}
    decades = range(floor(low) - 1, ceil(high) + 2, apart or 1)
    steps = (1,) if apart else (1, 2, 5)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return axis | {"tickvals": ticks, "ticktext": [prefixed(tick, unit) for tick in ticks]}


def labelled(
    low: float,
    high: float,
    text: Callable[[float], str] = "{:,.12g}".format,
    few: float = MANY_DECADES,
) -> dict[str, Any]:
    """The additions of a logarithmic axis from ``low`` to ``high``, both above 0, to a linear one:
    its range, and labels at 1, 2 and 5 of each decade or, from ``few`` decades on, at 1 of as many
    as it has room for.

    >>> labelled(8.0, 120.0)["ticktext"], labelled(0.5, 2e4)["ticktext"]
    (['10', '20', '50', '100'], ['1', '10', '100', '1,000', '10,000'])
    """
    ends = log10(low), log10(max(high, 1.01 * low))
    span = ends[1] - ends[0]
    steps: tuple[float, ...] = (1, 2, 5) if span < few else (1,)
    steps = (1, 1.5, 2, 3, 5, 7) if span < ONE_STEP else steps
    decades = range(floor(ends[0]), ceil(ends[1]) + 1, max(1, ceil(span / MOST_DECADES)))
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    shown = [tick for tick in ticks if ends[0] <= log10(tick) <= ends[1]]
    labels = {"tickvals": shown, "ticktext": [text(tick) for tick in shown]}
    return {"type": "log", "range": list(ends), **labels}


def prefixed(value: float, unit: str) -> str:
    """A value above 0 with its unit.

    >>> prefixed(2e-6, "s"), prefixed(0.05, "s"), prefixed(500.0, ""), prefixed(2e4, "B/s")
    ('2 µs', '50 ms', '500', '20 kB/s')
    """
    power = min(max(floor(log10(value * 1.0001) / 3), min(_PREFIXES)), max(_PREFIXES))
    return f"{value / 1000.0**power:.4g}{' ' * bool(unit)}{_PREFIXES[power]}{unit}"


def equality(ends: Sequence[float], away: float) -> list[dict[str, Any]]:
    """Thin grey lines where both axes are equal, and ``away`` times that on both sides."""
    ratios = (("solid", 1.0), ("dot", away), ("dot", 1 / away))
    muted = theme.PAGE["muted"].light
    return [
        line(ends, [end * ratio for end in ends], muted, width=1, dash=dash, showlegend=False)
        for dash, ratio in ratios
    ]


ROW_HEIGHT, FRAME_HEIGHT = 26, 84
"""Pixels of a row of bars, and of what is around all of them."""

MANY = 2.0
"""Decades from which on only each of them has a label."""


def height(rows: int, each: int = ROW_HEIGHT) -> int:
    """Pixels of a figure with that many rows of ``each`` pixels."""
    return FRAME_HEIGHT + each * max(rows, 2)


def times(title: str, milliseconds: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds around these times above 0; from 10 ms to 100 s without any.

    >>> [round(end, 2) for end in times("TTFT", [20.0, 3000.0])["range"]]
    [-1.82, 0.6]
    """
    seconds = [value / 1e3 for value in milliseconds if drawable(value)] or [0.01, 100.0]
    return theme.axis(title) | labelled(min(seconds) / 1.333, max(seconds) * 1.333, _told, MANY)


def _told(seconds: float) -> str:
    """A time with its unit."""
    return f"{1e3 * seconds:.4g} ms" if seconds < 1 else f"{seconds:,.0f} s"
