"""Provides the units in which figures draw times: latencies, and the time since a run's start."""

from __future__ import annotations

from typing import Any, NamedTuple

from reports.frame import theme

IN_SECONDS, IN_MINUTES, IN_HOURS = 10.0, 120.0, 7200.0
"""Longest latency (s) from which on a figure is in seconds, in minutes, in hours."""

RUN_IN_MINUTES, RUN_IN_HOURS = 600.0, 36_000.0
"""Duration of a run (s) from which on its time axis is in minutes, in hours: a reader looks for
moments on it."""


class Scale(NamedTuple):
    """A unit of time, and what seconds are multiplied with to be in it."""

    unit: str
    factor: float


SECONDS, MINUTES, HOURS = Scale("s", 1.0), Scale("min", 1 / 60), Scale("h", 1 / 3600)


def time_scale(longest_s: float) -> Scale:
    """The unit for latencies of up to ``longest_s``.

    >>> time_scale(9.99), time_scale(10.0), time_scale(1_730.0).unit
    (Scale(unit='ms', factor=1000.0), Scale(unit='s', factor=1.0), 'min')
    """
    if longest_s < IN_SECONDS:
        return Scale("ms", 1e3)
    if longest_s < IN_MINUTES:
        return SECONDS
    return MINUTES if longest_s < IN_HOURS else HOURS


def run_scale(duration_s: float) -> Scale:
    """The unit for the time since the start of a run of ``duration_s``.

    >>> run_scale(599.0).unit, run_scale(7_200.0).unit, run_scale(86_400.0).unit
    ('s', 'min', 'h')
    """
    if duration_s < RUN_IN_MINUTES:
        return SECONDS
    return MINUTES if duration_s < RUN_IN_HOURS else HOURS


def time_axis(title: str, shown: Scale) -> dict[str, Any]:
    """An axis of latencies with the unit in its title."""
    return theme.axis(f"{title} ({shown.unit})")


def run_axis(shown: Scale, title: str = "time since the start") -> dict[str, Any]:
    """An axis of the time since the start of a run, with the unit behind each label."""
    return theme.axis(title) | {"ticksuffix": f" {shown.unit}", "hoverformat": ",.4~g"}
