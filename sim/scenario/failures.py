"""Describes replicas that fail, and clients that give up and send again.

Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from sim.scenario.fields import Count, Duration, Line, Place, Wait, at_most, trouble
from sim.scenario.readers import Before
from sim.scenario.support import Section
from sim.schedulers import RULES, able
from sim.schedulers.abilities import LOSES, WITHDRAWS

if TYPE_CHECKING:
    from sim.scenario.pools import PoolSettings


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


def check_clients(
    pools: Sequence[PoolSettings], failures: Failures | None, router: str, stateless: Sequence[str]
) -> None:
    """Raise the error of a scenario whose replicas cannot fail, or whose clients cannot give up, on
    these ``pools``; ``stateless`` routers remember nothing of a replica by its place."""
    timeouts = [pool for pool in pools if pool.scheduler.client_timeout is not None]
    if timeouts and any(_patience(pool) != _patience(pools[0]) for pool in pools):
        raise trouble(
            "clients do not know the pool that serves them: client_timeout and on_timeout must be "
            "the same for all pools; give them in the scenario's own scheduler",
            *(("fleet", pool.index, "scheduler", "client_timeout") for pool in pools),
            ("scheduler", "client_timeout"),
        )
    if failures is None and not timeouts:
        return
    what, at = "failures are", ("failures",)
    if failures is None:
        what, at = "a client_timeout is", ("scheduler", "client_timeout")  # type: ignore[assignment]
    elif router not in stateless and sum(pool.replicas for pool in pools) > 1:
        raise trouble(
            f"router {router} is not modelled for replicas that come and go; supported: "
            f"{', '.join(stateless)}",
            ("router",),
        )
    for pool in pools:
        if (why := _unsuited(pool, timeouts=bool(timeouts))) is not None:
            raise trouble(f"{what} not modelled for {why}", ("fleet", pool.index), at)
    if failures is not None and failures.outages is not None:
        _check_outages(failures.outages, pools)


def _patience(pool: PoolSettings) -> Any:
    return pool.scheduler.client_timeout, pool.scheduler.on_timeout


def _unsuited(pool: PoolSettings, *, timeouts: bool) -> str | None:
    """What of ``pool`` neither loses nor drops requests here; the latter only with ``timeouts``."""
    lets_go = WITHDRAWS in RULES[pool.scheduler.rule].abilities
    if timeouts and not lets_go and pool.layout.pipeline == 1:
        return f"`policy: {pool.scheduler.rule}`, whose estimates count on requests that run"
    return keeps_requests(pool)


def keeps_requests(pool: PoolSettings, folders: Sequence[Path] | None = None) -> str | None:
    """What of ``pool`` does not lose requests when a replica fails; None if they are lost. A policy
    of one's own is looked for in ``folders``, and not asked without."""
    knobs, stages = pool.scheduler, pool.layout.pipeline
    found = {
        f"pools of one phase ({pool.name!r} has the role {pool.role})": pool.role != "both",
        f"several batches in flight (pipeline_parallel: {stages})": stages > 1,
        f"{knobs.batching} batching": not able(knobs.batching, LOSES, folders),
        "memory in the host (kv_cache.host_memory)": bool(pool.kv_cache.host_memory),
    }
    return next((why for why, holds in found.items() if holds), None)


def named_pool(
    pools: Sequence[PoolSettings], named: str | None, replica: int, place: tuple[str | int, ...]
) -> PoolSettings:
    """The pool of a ``replica`` that is written at ``place``; raises the error of one that
    is not there."""
    names = [pool.name for pool in pools]
    if named is None and len(pools) > 1:
        raise trouble(f"of which pool? one of {', '.join(names)}", (*place, "pool"), place)
    if named is not None and named not in names:
        raise trouble(
            f"no pool is called {named!r}; there are {', '.join(names)}", (*place, "pool")
        )
    pool = pools[0 if named is None else names.index(named)]
    if replica >= pool.replicas:
        raise trouble(
            f"pool {pool.name} has the replicas 0 to {pool.replicas - 1}, and no {replica}",
            (*place, "replica"),
        )
    return pool


def _check_outages(outages: Sequence[Outage], pools: Sequence[PoolSettings]) -> None:
    gone: dict[tuple[int, int], float] = {}
    for at, outage in sorted(enumerate(outages), key=lambda item: item[1].at):
        place = ("failures", "outages", at)
        pool = named_pool(pools, outage.pool, outage.replica, place)
        which = (pool.index, outage.replica)
        if outage.at <= gone.get(which, -1.0):
            raise trouble(
                f"replica {outage.replica} of pool {pool.name} is gone then already",
                (*place, "at"),
            )
        if outage.lasts is not None:
            gone[which] = outage.at + outage.lasts
        else:
            gone[which] = float("inf") if pool.scales is None else outage.at
