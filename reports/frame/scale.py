"""Provides the unit in which a figure draws latencies: milliseconds, or seconds for long ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from reports.frame import theme

IN_SECONDS = 10.0
"""Longest latency (s) from which on a figure is in seconds."""


class Scale(NamedTuple):
    """A unit of time, and what seconds are multiplied with to be in it."""

    unit: str
    factor: float


def time_scale(longest_s: float) -> Scale:
    """The unit for latencies of up to ``longest_s``.

    >>> time_scale(9.99), time_scale(10.0)
    (Scale(unit='ms', factor=1000.0), Scale(unit='s', factor=1.0))
    """
    return Scale("s", 1.0) if longest_s >= IN_SECONDS else Scale("ms", 1e3)


def time_axis(title: str, shown: Scale) -> dict[str, Any]:
    """An axis with the unit in its title, and labels like 15,000 rather than 15k."""
    digits = {"exponentformat": "none", "separatethousands": True}
    return theme.axis(f"{title} ({shown.unit})") | digits
