"""What do the figures of decisions share? Lines across, times on logarithmic axes, heights.

Figures are given milliseconds and draw seconds where the axis is logarithmic, so that its labels
read ``10 ms``, ``1 s``, ``100 s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from reports import theme

ROW_HEIGHT, FRAME_HEIGHT = 24, 64
"""Pixels of a row of bars, and of what is around all of them."""


def height(rows: int) -> int:
    """Pixels of a figure with that many rows."""
    return FRAME_HEIGHT + ROW_HEIGHT * max(rows, 2)


def zero() -> dict[str, Any]:
    """The upright line at 0: what everything is compared with."""
    ink = {"color": theme.PAGE["ink"].light, "width": 1.5}
    return {"type": "line", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": ink}


def times(title: str, milliseconds: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds around these times above 0; from 10 ms to 100 s without any.

    >>> [round(end, 2) for end in times("TTFT", [20.0, 3000.0])["range"]]
    [-1.82, 0.6]
    """
    seconds = [value / 1e3 for value in milliseconds if value > 0] or [0.01, 100.0]
    low, high = log10(min(seconds) / 1.333), log10(max(seconds) * 1.333)
    few = high - low < 1.3
    return theme.axis(title) | {
        "type": "log",
        "range": [low, high],
        "tickformat": "~s",
        "ticksuffix": "s",
        "dtick": "D2" if few else max(1, ceil(floor(high - low) / 6)),
    }


def within(limit_s: float, bottom_s: float) -> list[dict[str, Any]]:
    """The region up to a limit, shaded, and the limit itself; from ``bottom_s`` on."""
    across = {"xref": "paper", "x0": 0, "x1": 1, "layer": "below"}
    green = theme.faint(theme.GREEN).light
    region = {"type": "rect", "y0": bottom_s, "y1": limit_s, "fillcolor": green}
    return [{**across, **region, "line": {"width": 0}}, limit_line(limit_s)]


def limit_line(limit_s: float) -> dict[str, Any]:
    """A dashed line across the figure."""
    ink = {"color": theme.PAGE["ink"].light, "width": 1.5, "dash": "dash"}
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": limit_s, "y1": limit_s}
    return {"type": "line", **ends, "line": ink}
