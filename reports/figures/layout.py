"""Provides what the planning figures share: lines across, logarithmic time axes, heights.

Figures are given milliseconds and draw seconds where the axis is logarithmic, so that its labels
read ``10 ms``, ``1 s``, ``100 s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from reports.figures.axes import labelled
from reports.frame import theme
from reports.frame.draw import across, wash

ROW_HEIGHT, FRAME_HEIGHT = 26, 84
"""Pixels of a row of bars, and of what is around all of them."""

MANY = 2.0
"""Decades from which on only each of them has a label."""


def known(value: float | None) -> bool:
    """Whether it can be drawn on a logarithmic axis.

    >>> known(3.0), known(0.0), known(None), known(float("inf"))
    (True, False, False, False)
    """
    return value is not None and 0 < value < inf


def height(rows: int, each: int = ROW_HEIGHT) -> int:
    """Pixels of a figure with that many rows of ``each`` pixels."""
    return FRAME_HEIGHT + each * max(rows, 2)


def times(title: str, milliseconds: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds around these times above 0; from 10 ms to 100 s without any.

    >>> [round(end, 2) for end in times("TTFT", [20.0, 3000.0])["range"]]
    [-1.82, 0.6]
    """
    seconds = [value / 1e3 for value in milliseconds if known(value)] or [0.01, 100.0]
    return theme.axis(title) | labelled(min(seconds) / 1.333, max(seconds) * 1.333, _told, MANY)


def _told(seconds: float) -> str:
    """A time with its unit."""
    return f"{1e3 * seconds:.4g} ms" if seconds < 1 else f"{seconds:,.0f} s"


def within(limit_s: float, bottom_s: float) -> list[dict[str, Any]]:
    """The region up to a limit, shaded, and the limit itself; from ``bottom_s`` on."""
    region = wash(theme.faint(theme.GREEN).light, xref="paper", x0=0, x1=1, y0=bottom_s, y1=limit_s)
    return [region, across(limit_s, dash="dash")]
