"""Describes which requests are refused when they arrive, because they would be served too late."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Share


class Admission(Section):
    """Refuses requests when they arrive."""

    policy: Literal["deadline"] = Field(
        default="deadline",
        description="deadline: those that should have their first token in time (slo.ttft, or the "
        "deadline of their class), by the prompts that wait and by how long the first of the queue "
        "and the last to leave it have waited. Others are refused at once, and miss the SLO.",
    )
    share: Share = Field(
        default=0.5,
        description="Share of the deadline by which the first token must be expected. Recent "
        "waits are out of date: at 0.5 the wait may still double in the meantime. At "
        "1 many accepted requests are late.",
    )
