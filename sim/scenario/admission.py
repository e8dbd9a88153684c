"""Describes which requests are refused when they arrive, because they would be served too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sim.scenario.fields import Share, trouble
from sim.scenario.support import Section
from sim.schedulers import able
from sim.schedulers.abilities import IN_ORDER
from sim.schedulers.orders import FirstCome

if TYPE_CHECKING:
    from sim.scenario.pools import PoolSettings


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


def check_admission(
    pools: Sequence[PoolSettings], admission: Admission | None, *, dated: bool, retried: bool
) -> None:
    """Raise the error of a scenario whose ``admission`` is not modelled for these ``pools``, whose
    requests have no deadline (``dated``), or whose clients send again (``retried``)."""
    if admission is None:
        return
    if not dated:
        raise trouble(
            "no request has a deadline: give slo.ttft, or a deadline to some of workload.classes",
            ("admission",),
        )
    if retried:
        raise trouble(
            "clients that send again what was refused are not modelled: leave out failures and "
            "scheduler.client_timeout",
            ("admission",),
        )
    for pool in pools:
        found = {
            f"the role {pool.role}": pool.role != "both",
            "data ranks or a pipeline": pool.layout.batches > 1,
            f"{pool.scheduler.batching} batching": not able(pool.scheduler.batching, IN_ORDER),
            f"the order {pool.scheduler.order}": pool.scheduler.order != FirstCome.name,
        }
        for why, holds in found.items():
            if holds:
                raise trouble(
                    f"admission is not modelled for {why} (pool {pool.name}); supported: "
                    "continuous batching in the order fcfs, each replica alone",
                    ("admission",),
                )
