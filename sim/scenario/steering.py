"""Describes replicas that operators drain, start and fail at given times.

Times in seconds. `infersim serve --control` records what was done to the replicas of a session in
these words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from sim.scenario.failures import Failures, keeps_requests, named_pool
from sim.scenario.fields import Line, Place, Wait, trouble
from sim.scenario.support import Section

if TYPE_CHECKING:
    from sim.scenario.pools import PoolSettings


class SteeringStep(Section):
    """What is done to one replica."""

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
    """What operators do to replicas."""

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


def unsteered(router: str, stateless: Sequence[str], replicas: int) -> str | None:
    """Why operators cannot steer the replicas behind ``router``; None if they can."""
    if router in stateless or replicas == 1:
        return None
    return (
        f"router {router} is not modelled for replicas that come and go; supported: "
        f"{', '.join(stateless)}"
    )


def check_steering(
    pools: Sequence[PoolSettings],
    steering: Steering | None,
    failures: Failures | None,
    router: str,
    stateless: Sequence[str],
) -> None:
    """Raise the error of a scenario whose replicas cannot be steered as ``steering`` says."""
    if steering is None:
        return
    if (why := unsteered(router, stateless, sum(pool.replicas for pool in pools))) is not None:
        raise trouble(why, ("router",))
    for at, step in enumerate(steering.steps):
        place = ("steering", "steps", at)
        pool = named_pool(pools, step.pool, step.replica, place)
        if pool.scales is not None and not pool.scales.min:
            raise trouble(
                f"operators are not modelled where no replica may serve, as in pool {pool.name}; "
                "give `replicas: {min: 1}`",
                ("fleet", pool.index, "replicas"),
            )
        if step.do != "fail" and pool.scales is not None:
            raise trouble(f"pool {pool.name} scales itself; its replicas can only fail", place)
        if step.do == "fail" and failures is not None:
            raise trouble("replicas fail as `failures` says; give one of the two", place)
        if step.do == "fail" and (kept := keeps_requests(pool)) is not None:
            raise trouble(f"failures are not modelled for {kept}", place)
