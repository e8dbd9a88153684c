"""Describes replicas that operators drain, start and fail at given times.

Times in seconds. `infersim serve --control` records what was done to the replicas of a session in
these words.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Line, Place, Wait


class SteeringStep(Section):
    """An action on one replica."""

    at: Wait = Field(description="Time of the step, s after the start.", examples=["5min"])
    do: Literal["drain", "start", "fail"] = Field(
        description="drain: it takes no new requests and serves those it has. fail: it is gone, "
        "and they are lost. start: it takes requests again; at once if it still serves some, else "
        "it starts anew, and is ready after a cold start.",
        examples=["drain"],
    )
    pool: Line | None = Field(default=None, description="Name of its pool. null: the only pool.")
    replica: Place = Field(default=0, description="Number of the replica in its pool, from 0.")


class Steering(Section):
    """Actions of operators on replicas."""

    steps: tuple[SteeringStep, ...] = Field(
        default=(),
        description="Steps in any order; those at the same time happen in the order given.",
        examples=["[{at: 5min, do: drain, replica: 0}, {at: 6min, do: start, replica: 0}]"],
    )
    cold_start: Wait | None = Field(
        default=None,
        description="From `start` to the first request, s. auto, or null: as autoscaling has it, "
        "or what the engine and the weights of the model take. At 0 s replicas are ready at once.",
        examples=["60s"],
    )

    @field_validator("cold_start", mode="before")
    @classmethod
    def _of_its_parts(cls, value: Any) -> Any:
        """auto means null."""
        return None if value == "auto" else value
