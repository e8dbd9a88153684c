"""Describes replicas that fail, and clients that give up and send again.

Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Count, Duration, Line, Place, Wait, at_most, trouble
from sim.scenario.values.readers import Before


class Cancel(Section):
    """The client gives the request up."""

    kind: Literal["cancel"]


class Lose(Section):
    """The request is lost."""

    kind: Literal["lost"]


class Retrying(Section):
    """The client sends the request again."""

    kind: Literal["retry"] = "retry"
    attempts: Annotated[Count, at_most(1000)] = Field(
        default=3,
        description="Maximum number of attempts, including the first. 3 means two retries, "
        "the default of OpenAI's Python client.",
    )
    backoff: Wait = Field(
        default=0.5,
        description="From the end of the first attempt to the second, s; twice as long before each "
        "further one, 8 s at most, less up to a quarter at random, as OpenAI's Python client.",
        examples=["500ms"],
    )


def _by_name(value: Any) -> Any:
    """``retry`` alone is short for a mapping of that kind; so is one of its keys."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, Mapping) and value and "kind" not in value:
        return {"kind": "retry", **value}
    return value


OnTimeout = Annotated[Cancel | Retrying, Field(discriminator="kind"), Before(_by_name)]
OnLoss = Annotated[Lose | Retrying, Field(discriminator="kind"), Before(_by_name)]


class _Outage(Section):
    """One replica that fails at a given time."""

    at: Wait = Field(description="Time of the failure, s after the start.", examples=["5min"])
    pool: Line | None = Field(default=None, description="Name of its pool. null: the only pool.")
    replica: Place = Field(default=0, description="Number of the replica in its pool, from 0.")

    @property
    def lasts(self) -> float | None:
        """Seconds until it serves again; None: it never does."""
        return getattr(self, "for")  # type: ignore[no-any-return]


if TYPE_CHECKING:
    Outage = _Outage
else:
    _FOR = Field(
        default=None,
        description="How long it is down, s, including the restart. null: until the end, or in a "
        "pool that is scaled until Kubernetes has replaced it, after a cold start.",
        examples=["1min"],
    )
    Outage = create_model(
        "Outage", __base__=_Outage, __doc__=_Outage.__doc__, **{"for": (Duration | None, _FOR)}
    )


class Failures(Section):
    """When replicas fail, and what becomes of their requests."""

    mtbf: Duration | None = Field(
        default=None,
        description="Mean time between failures of one replica, s, while it serves; drawn from an "
        "exponential law for each, under the seed. null: as `outages` has them.",
        examples=["720h"],
    )
    repair: Wait | None = Field(
        default=None,
        description="From a failure by that law to the first request, s. auto, or null: what a "
        "cold start takes of an engine and the weights of the model; in a pool that is scaled, the "
        "cold start of autoscaling.",
        examples=["5min"],
    )
    in_flight: OnLoss = Field(
        default="retry",
        validate_default=True,
        description="What happens to requests on a failing replica, or when no replica is "
        "in service. lost: they fail. retry: their clients send them again.",
        examples=["retry", "{kind: retry, attempts: 3, backoff: 500ms}"],
    )
    outages: tuple[Outage, ...] | None = Field(
        default=None,
        description="Failures at given times, instead of mtbf. A list in place of the whole "
        "mapping is short for it.",
        examples=["[{at: 5min, pool: main, replica: 0, for: 1min}]"],
    )

    @model_validator(mode="before")
    @classmethod
    def _repaired_by_itself(cls, data: Any) -> Any:
        """auto means null."""
        if isinstance(data, Mapping) and data.get("repair") == "auto":
            return {**data, "repair": None}
        return data

    @model_validator(mode="after")
    def _one_source(self) -> Failures:
        if (self.mtbf is None) == (self.outages is None):
            raise trouble("give mtbf, or outages at given times; one of the two", "mtbf", "outages")
        if self.repair is not None and self.outages is not None:
            raise trouble("outages say with `for` how long each lasts", "repair")
        return self
