"""Lists what does not go with replicas that fail, clients that give up, operators and admission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sim.scenario.checks.fleets import COME_AND_GO, STATELESS, SUPPORTED
from sim.scenario.checks.subjects import (
    HOST_MEMORY,
    IN_PHASES,
    PIPELINES,
    OneOutage,
    OnePool,
    OneStep,
    WholeFleet,
    batching_without,
    outages,
    steps,
)
from sim.scenario.clash import Chapter, Clash, itself
from sim.scenario.pools import PoolSettings
from sim.schedulers.abilities import IN_ORDER, LOSES, WITHDRAWS
from sim.schedulers.orders import FirstCome

P = TypeVar("P", bound=OnePool)


def _keeping(
    what: str, *where: str, asked: Callable[[P], bool] = lambda _: True
) -> tuple[Clash[P], ...]:
    """The rows of pools that do not lose requests when a replica fails, of those that are
    ``asked``."""

    def row(other: str, when: Callable[[OnePool], bool], kept: str) -> Clash[P]:
        says = f"{what} not modelled for {kept}"
        return Clash(other, lambda p: asked(p) and when(p), says, where=where)

    return (
        row(*IN_PHASES, "{other} ({pool.name!r} has the role {pool.role})"),
        row(*PIPELINES, "several batches in flight (pipeline_parallel: {layout.pipeline})"),
        row(*batching_without(LOSES), "{knobs.batching} batching"),
        row(*HOST_MEMORY, "{other} (kv_cache.host_memory)"),
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
    itself,
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
    itself,
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
    itself,
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
    "replicas that fail", itself, *_keeping("failures are", "failures")
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


def _unadmitted(other: str, when: Callable[[OnePool], bool], found: str) -> Clash[OnePool]:
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
    _unadmitted(*IN_PHASES, "the role {pool.role}"),
    _unadmitted(
        "data ranks and pipelines", lambda p: p.layout.batches > 1, "data ranks or a pipeline"
    ),
    _unadmitted(*batching_without(IN_ORDER), "{knobs.batching} batching"),
    _unadmitted(
        "an order but fcfs", lambda p: p.knobs.order != FirstCome.name, "the order {knobs.order}"
    ),
)

LOSING: tuple[Chapter[WholeFleet, Any], ...] = (
    *(CLIENTS, FAILURES, FAILING_POOLS, IMPATIENT_POOLS, OUTAGES),
    *(STEERING, STEPS),
)
ADMITTING: tuple[Chapter[WholeFleet, Any], ...] = (ADMITTING_FLEETS, ADMITTING_POOLS)
