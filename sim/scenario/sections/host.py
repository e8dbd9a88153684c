"""Describes the CPU of the machines that serve."""

from __future__ import annotations

from pydantic import Field

from sim.scenario.sections.support import LimitedSection
from sim.scenario.values.fields import Positive


class Host(LimitedSection):
    """The CPU that schedules, launches kernels and handles requests."""

    speed: Positive = Field(
        default=1.0,
        description="Speed of one thread relative to the servers that the times of the engine were "
        "fitted to; all times of the host are divided by it. 1 if it is not known.",
        examples=[0.6],
    )
