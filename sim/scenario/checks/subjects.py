"""Provides what the rows of the table are asked about: a fleet, a pool, a step, a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.memory import ALLOCATORS
from sim.scenario.clash import Subject
from sim.scenario.pools import BOTH, PoolSettings
from sim.scenario.sections.autoscaling import Autoscaling
from sim.scenario.text.document import KeyPath
from sim.scenario.values.fields import trouble
from sim.schedulers import ORDERS, RULES, Order, able
from sim.schedulers.abilities import Ability
from sim.schedulers.rules import EngineRule

if TYPE_CHECKING:
    from sim.scenario.sections.classes import TrafficClassSettings
    from sim.scenario.sections.contract import Contract
    from sim.scenario.sections.deployment import SchedulerSettings
    from sim.scenario.sections.failures import Outage
    from sim.scenario.sections.kv_cache import KvCache
    from sim.scenario.sections.steering import SteeringStep
    from sim.specs.layout import Layout


@dataclass(frozen=True)
class WholeFleet(Subject):
    """A scenario, with all ``pools`` of its fleet."""

    scenario: Contract
    pools: tuple[PoolSettings, ...]

    def numbers(self, name: str) -> Sequence[int]:
        """All pools."""
        return [pool.index for pool in self.pools]

    def each(self) -> Iterator[OnePool]:
        """The pools, one by one."""
        return (OnePool(self.scenario, self.pools, pool) for pool in self.pools)

    def scaled(self) -> Iterator[OnePool]:
        """The pools whose number of replicas follows the load."""
        return (each for each in self.each() if each.pool.scales is not None)

    @property
    def roles(self) -> set[str]:
        """The roles of its pools."""
        return {pool.role for pool in self.pools}

    @property
    def apart(self) -> bool:
        """Whether pools prefill and decode apart."""
        return self.roles != {BOTH}

    @property
    def replicas(self) -> int:
        """Replicas that there may be at one time."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def impatient(self) -> bool:
        """Whether clients of some pool give up."""
        return any(pool.scheduler.client_timeout is not None for pool in self.pools)

    @property
    def dated(self) -> bool:
        """Whether some request has a deadline."""
        classes = self.scenario.workload.classes or ()
        return self.scenario.slo.ttft is not None or any(c.deadline is not None for c in classes)

    @property
    def models(self) -> list[str]:
        """The models that its pools serve."""
        return list(dict.fromkeys(pool.model.path for pool in self.pools))

    @property
    def served(self) -> str:
        """The models in words."""
        return ", ".join(self.models)

    @property
    def wanted(self) -> set[str]:
        """The models that classes of requests ask for."""
        classes = self.scenario.workload.classes or ()
        return {item.model or self.scenario.model.path for item in classes}

    @property
    def scaling(self) -> Autoscaling:
        """How its pools are scaled."""
        return self.scenario.autoscaling or Autoscaling()

    @property
    def block_sizes(self) -> list[int]:
        """The sizes of blocks in its pools, each once."""
        return sorted({pool.kv_cache.block_size for pool in self.pools})

    @property
    def sizes(self) -> str:
        """The sizes of blocks in words."""
        return " and ".join(f"{size:,}" for size in self.block_sizes)


@dataclass(frozen=True)
class OnePool(WholeFleet):
    """One ``pool`` of the fleet."""

    pool: PoolSettings

    def numbers(self, name: str) -> Sequence[int]:
        """This pool."""
        return [self.pool.index]

    def home(self, section: str) -> KeyPath:
        """The pool's own section if it has one, else the scenario's."""
        own = getattr(self.scenario.fleet[self.pool.index], section) is not None
        return ("fleet", self.pool.index, section) if own else (section,)

    @property
    def knobs(self) -> SchedulerSettings:
        """Settings of its scheduler."""
        return self.pool.scheduler

    @property
    def kv(self) -> KvCache:
        """Settings of its KV cache."""
        return self.pool.kv_cache

    @property
    def layout(self) -> Layout:
        """The layout of its replicas."""
        return self.pool.layout

    def able(self, ability: Ability) -> bool:
        """Whether its policy has ``ability``; one of a user's own is taken to have it."""
        return able(self.knobs.batching, ability)

    @property
    def order(self) -> type[Order] | None:
        """The order of its queue; None for one of a user's own."""
        return ORDERS.get(self.knobs.order)

    @property
    def by_rank(self) -> bool:
        """Whether requests may be preempted for a rank: perhaps, by an order of a user's own."""
        return self.order is None or self.order.preempts_by_rank

    @property
    def reserves(self) -> bool:
        """Whether its memory reserves the longest length, without blocks."""
        return ALLOCATORS[self.kv.allocator].reserves_longest

    @property
    def rule(self) -> type[EngineRule]:
        """The rule of continuous batching of the subject."""
        return RULES[self.knobs.rule]


@dataclass(frozen=True)
class LoadedPool(OnePool):
    """One pool, whose policy is loaded where it is of a user's own."""

    def able(self, ability: Ability) -> bool:
        """Whether its policy has ``ability``."""
        return able(self.knobs.batching, ability, self.scenario.folders)


@dataclass(frozen=True)
class OneOutage(OnePool):
    """One replica that fails at a given time; it may be ``gone`` then already."""

    at: int
    outage: Outage
    gone: bool

    def numbers(self, name: str) -> Sequence[int]:
        """The outage."""
        return [self.at]


@dataclass(frozen=True)
class OneStep(OnePool):
    """A step of operators on one replica at a given time."""

    at: int
    step: SteeringStep

    def numbers(self, name: str) -> Sequence[int]:
        """The step, or its pool."""
        return [self.at if name == "steps" else self.pool.index]


@dataclass(frozen=True)
class OneClass(WholeFleet):
    """One class of requests."""

    at: int
    item: TrafficClassSettings

    def numbers(self, name: str) -> Sequence[int]:
        """The class."""
        return [self.at]


Trait = tuple[str, Callable[[OnePool], bool]]
"""A trait of a pool that many settings clash with: in words, and whether the pool has it."""

IN_PHASES: Trait = ("pools of one phase", lambda p: p.pool.role != BOTH)
PIPELINES: Trait = ("pipelines", lambda p: p.layout.pipeline > 1)
DATA_RANKS: Trait = ("data ranks", lambda p: p.layout.data > 1)
AHEAD: Trait = ("plans made ahead", lambda p: p.knobs.plans_ahead)
BY_RANK: Trait = ("an order that preempts by rank", lambda p: p.by_rank)
WITHOUT_BLOCKS: Trait = ("memory without blocks", lambda p: p.reserves)
HOST_MEMORY: Trait = ("memory in the host", lambda p: p.kv.host_memory is not None)


def batching_without(ability: Ability) -> Trait:
    """A policy without ``ability``."""
    return "batching of whole batches", lambda p: not p.able(ability)


def rule_without(ability: Ability) -> Trait:
    """A rule of continuous batching for which ``ability`` is not modelled."""
    return "the rule of another engine than vLLM", lambda p: ability not in p.rule.abilities


def outages(fleet: WholeFleet) -> Iterator[OneOutage]:
    """The outages at given times, in their order; raises the error of one whose replica does not
    exist."""
    failures = fleet.scenario.failures
    listed = () if failures is None else failures.outages or ()
    until: dict[tuple[int, int], float] = {}
    for at, outage in sorted(enumerate(listed), key=lambda item: item[1].at):
        pool = _named_pool(fleet, outage.pool, outage.replica, ("failures", "outages", at))
        which = (pool.index, outage.replica)
        gone = outage.at <= until.get(which, -1.0)
        yield OneOutage(fleet.scenario, fleet.pools, pool, at, outage, gone)
        if outage.lasts is not None:
            until[which] = outage.at + outage.lasts
        else:
            until[which] = float("inf") if pool.scales is None else outage.at


def steps(fleet: WholeFleet) -> Iterator[OneStep]:
    """The steps of operators, in the order given; raises the error of a step whose replica does not
    exist."""
    steering = fleet.scenario.steering
    for at, step in enumerate(() if steering is None else steering.steps):
        pool = _named_pool(fleet, step.pool, step.replica, ("steering", "steps", at))
        yield OneStep(fleet.scenario, fleet.pools, pool, at, step)


def classes(fleet: WholeFleet) -> Iterator[OneClass]:
    """The classes of requests."""
    for at, item in enumerate(fleet.scenario.workload.classes or ()):
        yield OneClass(fleet.scenario, fleet.pools, at, item)


def _named_pool(fleet: WholeFleet, named: str | None, replica: int, place: KeyPath) -> PoolSettings:
    """The pool of a ``replica`` that is written at ``place``; raises the error of one that
    does not exist."""
    names = [pool.name for pool in fleet.pools]
    if named is None and len(names) > 1:
        raise trouble(f"of which pool? one of {', '.join(names)}", (*place, "pool"), place)
    if named is not None and named not in names:
        raise trouble(
            f"no pool is called {named!r}; there are {', '.join(names)}", (*place, "pool")
        )
    pool = fleet.pools[0 if named is None else names.index(named)]
    if replica >= pool.replicas:
        raise trouble(
            f"pool {pool.name} has the replicas 0 to {pool.replicas - 1}, and no {replica}",
            (*place, "replica"),
        )
    return pool
