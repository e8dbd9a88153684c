"""Lists what does not go with replicas that fail, clients that give up, operators and admission."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sim.scenario.checks.clash import Chapter, Clash
from sim.scenario.checks.fleets import COME_AND_GO, STATELESS, SUPPORTED
from sim.scenario.checks.subjects import (
    OneOutage,
    OnePool,
    OneStep,
    WholeFleet,
    outages,
    steps,
    whole,
)
from sim.scenario.pools import BOTH, PoolSettings
from sim.schedulers.abilities import IN_ORDER, LOSES, WITHDRAWS
from sim.schedulers.orders import FirstCome

P = TypeVar("P", bound=OnePool)


def _keeping(
    what: str, *where: str, asked: Callable[[P], bool] = lambda _: True
) -> tuple[Clash[P], ...]:
    """The rows of pools that do not lose requests when a replica fails, of those that are
    ``asked``."""

    def row(other: str, kept: str, when: Callable[[P], bool]) -> Clash[P]:
        says = f"{what} not modelled for {kept}"
        return Clash(other, lambda p: asked(p) and when(p), says, where=where)

    return (
        row(
            "pools of one phase",
            "pools of one phase ({pool.name!r} has the role {pool.role})",
            lambda p: p.pool.role != BOTH,
        ),
        row(
            "pipelines",
            "several batches in flight (pipeline_parallel: {layout.pipeline})",
            lambda p: p.layout.pipeline > 1,
        ),
        row("batching of whole batches", "{knobs.batching} batching", lambda p: not p.able(LOSES)),
        row(
            "memory in the host",
            "memory in the host (kv_cache.host_memory)",
            lambda p: bool(p.kv.host_memory),
        ),
    )


def _withdrawing(what: str, *where: str) -> Clash[OnePool]:
    """The row of rules that do not take a request back that no client waits for."""
    return Clash(
        "a rule that counts on requests that run",
        lambda p: p.impatient and WITHDRAWS not in p.rule.abilities and p.layout.pipeline == 1,
        f"{what} not modelled for `policy: {{knobs.rule}}`, whose estimates count on requests "
        "that run",
        where=where,
    )


def _patience(pool: PoolSettings) -> object:
    return pool.scheduler.client_timeout, pool.scheduler.on_timeout


CLIENTS: Chapter[WholeFleet, WholeFleet] = Chapter(
    "scheduler.client_timeout",
    whole,
    Clash(
        "another one in each pool",
        lambda f: f.impatient and any(_patience(p) != _patience(f.pools[0]) for p in f.pools),
        "clients do not know the pool that serves them: client_timeout and on_timeout must be "
        "the same for all pools",
        "give them in the scenario's own scheduler",
        ("fleet.*.scheduler.client_timeout", "scheduler.client_timeout"),
    ),
)

FAILURES: Chapter[WholeFleet, WholeFleet] = Chapter(
    "failures",
    whole,
    Clash(
        "a router that remembers replicas by their places",
        lambda f: (
            f.scenario.failures is not None
            and f.scenario.router not in STATELESS
            and f.replicas > 1
        ),
        COME_AND_GO,
        SUPPORTED,
        ("router",),
    ),
)


def _failing(fleet: WholeFleet) -> tuple[OnePool, ...]:
    return () if fleet.scenario.failures is None else tuple(fleet.each())


def _given_up(fleet: WholeFleet) -> tuple[OnePool, ...]:
    patient = fleet.scenario.failures is not None or not fleet.impatient
    return () if patient else tuple(fleet.each())


FAILING_POOLS: Chapter[WholeFleet, OnePool] = Chapter(
    "failures",
    _failing,
    _withdrawing("failures are", "fleet.*", "failures"),
    *_keeping("failures are", "fleet.*", "failures"),
)

IMPATIENT_POOLS: Chapter[WholeFleet, OnePool] = Chapter(
    "scheduler.client_timeout",
    _given_up,
    _withdrawing("a client_timeout is", "fleet.*", "scheduler.client_timeout"),
    *_keeping("a client_timeout is", "fleet.*", "scheduler.client_timeout"),
)

OUTAGES: Chapter[WholeFleet, OneOutage] = Chapter(
    "an outage",
    outages,
    Clash(
        "an earlier one that still lasts",
        lambda o: o.gone,
        "replica {outage.replica} of pool {pool.name} is gone then already",
        where=("failures.outages.*.at",),
    ),
)


def unsteered(router: str, replicas: int) -> str | None:
    """Why operators cannot steer the replicas behind ``router``; None if they can."""
    if router in STATELESS or replicas == 1:
        return None
    return f"router {router} is not modelled for replicas that come and go; {SUPPORTED}"


STEERING: Chapter[WholeFleet, WholeFleet] = Chapter(
    "steering",
    whole,
    Clash(
        "a router that remembers replicas by their places",
        lambda f: (
            f.scenario.steering is not None and unsteered(f.scenario.router, f.replicas) is not None
        ),
        COME_AND_GO,
        SUPPORTED,
        ("router",),
    ),
)

STEPS: Chapter[WholeFleet, OneStep] = Chapter(
    "steering",
    steps,
    Clash(
        "replicas: {{min: 0}}",
        lambda s: s.pool.scales is not None and not s.pool.scales.min,
        "operators are not modelled where no replica may serve, as in pool {pool.name}",
        "give `replicas: {{min: 1}}`",
        ("fleet.*.replicas",),
    ),
    Clash(
        "pools that are scaled, but to let replicas fail",
        lambda s: s.step.do != "fail" and s.pool.scales is not None,
        "pool {pool.name} scales itself; its replicas can only fail",
        where=("steering.steps.*",),
    ),
    Clash(
        "failures, where operators let replicas fail",
        lambda s: s.step.do == "fail" and s.scenario.failures is not None,
        "replicas fail as `failures` says",
        "give one of the two",
        ("steering.steps.*",),
    ),
    *_keeping("failures are", "steering.steps.*", asked=lambda s: s.step.do == "fail"),
)

LIVE: Chapter[OnePool, OnePool] = Chapter(
    "replicas that fail", lambda pool: (pool,), *_keeping("failures are", "failures")
)
"""Pools whose replicas operators cannot let fail, in a session of ``infersim serve``."""

ADMITTING_FLEETS: Chapter[WholeFleet, WholeFleet] = Chapter(
    "admission",
    lambda fleet: () if fleet.scenario.admission is None else (fleet,),
    Clash(
        "requests without a deadline",
        lambda f: not f.dated,
        "no request has a deadline: give slo.ttft, or a deadline to some of workload.classes",
        where=("admission",),
    ),
    Clash(
        "clients that send again",
        lambda f: f.scenario.failures is not None or f.impatient,
        "clients that send again what was refused are not modelled: leave out failures and "
        "scheduler.client_timeout",
        where=("admission",),
    ),
)


def _unadmitted(other: str, found: str, when: Callable[[OnePool], bool]) -> Clash[OnePool]:
    return Clash(
        other,
        when,
        f"admission is not modelled for {found} (pool {{pool.name}})",
        "supported: continuous batching in the order fcfs, each replica alone",
        ("admission",),
    )


ADMITTING_POOLS: Chapter[WholeFleet, OnePool] = Chapter(
    "admission",
    lambda fleet: () if fleet.scenario.admission is None else fleet.each(),
    _unadmitted("pools of one phase", "the role {pool.role}", lambda p: p.pool.role != BOTH),
    _unadmitted(
        "data ranks and pipelines", "data ranks or a pipeline", lambda p: p.layout.batches > 1
    ),
    _unadmitted(
        "batching of whole batches", "{knobs.batching} batching", lambda p: not p.able(IN_ORDER)
    ),
    _unadmitted(
        "an order but fcfs", "the order {knobs.order}", lambda p: p.knobs.order != FirstCome.name
    ),
)
