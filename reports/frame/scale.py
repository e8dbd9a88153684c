"""Provides the units in which figures draw times: latencies, and the time since a run's start."""

from __future__ import annotations

from typing import Any

from reports.frame import theme
from sim.units import HOURS, MINUTES, SECONDS, Scale

RUN_IN_MINUTES, RUN_IN_HOURS = 600.0, 36_000.0
"""Duration of a run (s) from which on its time axis is in minutes, in hours: a reader looks for
moments on it."""


def run_scale(duration_s: float) -> Scale:
    """The unit for the time since the start of a run of ``duration_s``.

    >>> run_scale(599.0).unit, run_scale(7_200.0).unit, run_scale(86_400.0).unit
    ('s', 'min', 'h')
    """
    if duration_s < RUN_IN_MINUTES:
        return SECONDS
    return MINUTES if duration_s < RUN_IN_HOURS else HOURS


def time_axis(title: str, shown: Scale, **more: Any) -> dict[str, Any]:
    """An axis of latencies with the unit in its title."""
    return theme.axis(f"{title} ({shown.unit})", **more)


def run_axis(shown: Scale, title: str = "time since the start") -> dict[str, Any]:
    """An axis of the time since the start of a run, with the unit behind each label."""
    return theme.axis(title) | {"ticksuffix": f" {shown.unit}", "hoverformat": ",.4~g"}
