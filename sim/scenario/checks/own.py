"""Lists what a scenario asks of policies and routers of a user's own that they do not say they do.

Those that ship are asked where the scenario is validated; one of a user's own, once it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.plugins import is_own
from sim.routers import WEIGHTED
from sim.scenario.checks.subjects import LoadedPool, WholeFleet
from sim.scenario.clash import Chapter, Clash, itself
from sim.scenario.pools import DECODE, PREFILL, weighted
from sim.schedulers import abilities as a
from sim.schedulers.orders import Fair

if TYPE_CHECKING:
    from sim.routers import Router


def _loaded(fleet: WholeFleet) -> Iterator[LoadedPool]:
    for pool in fleet.pools:
        if is_own(pool.scheduler.batching):
            yield LoadedPool(fleet.scenario, fleet.pools, pool)


def _asks(
    other: str, key: str, ability: a.Ability, asked: Callable[[LoadedPool], bool]
) -> Clash[LoadedPool]:
    """The row of a ``key`` that asks a policy for ``ability`` where it is ``asked``."""
    stated = ability.stated.replace("{", "{{").replace("}", "}}")
    return Clash(
        other,
        lambda p: asked(p) and not p.able(ability),
        f"scheduler {{knobs.batching!r}} does not say that it {ability.about}",
        f"{stated}, or leave out {key}",
        (key,),
    )


def _fails(each: LoadedPool) -> bool:
    steering = each.scenario.steering
    return steering is not None and any(step.do == "fail" for step in steering.steps)


def _given_up(each: LoadedPool) -> bool:
    return each.knobs.client_timeout is not None


def _by_batch(each: LoadedPool) -> bool:
    guesses = each.pool.speculative
    return guesses is not None and bool(guesses.num_tokens_per_batch_size)


POLICIES: Chapter[WholeFleet, LoadedPool] = Chapter(
    "a policy of one's own that does not say so",
    _loaded,
    _asks("pipelines", "fleet.pipeline_parallel", a.IN_FLIGHT, lambda p: p.layout.pipeline > 1),
    _asks("prefill pools", "fleet.role", a.PREFILLS, lambda p: p.pool.role == PREFILL),
    _asks("decode pools", "fleet.role", a.DECODES, lambda p: p.pool.role == DECODE),
    _asks("failures", "failures", a.LOSES, lambda p: p.scenario.failures is not None),
    _asks("operators that let replicas fail", "steering", a.LOSES, _fails),
    _asks("clients that give up", "scheduler.client_timeout", a.LOSES, _given_up),
    _asks("requests taken back", "scheduler.client_timeout", a.WITHDRAWS, _given_up),
    _asks("autoscaling", "fleet.replicas", a.DRAINS, lambda p: p.pool.scales is not None),
    _asks("admission", "admission", a.IN_ORDER, lambda p: p.scenario.admission is not None),
    _asks("order: fair", "scheduler.order", a.IN_ORDER, lambda p: p.knobs.order == Fair.name),
    _asks("drafts", "speculative", a.DRAFTS, lambda p: p.pool.speculative is not None),
    _asks("num_tokens_per_batch_size", "speculative", a.DRAFTS_BY_BATCH, _by_batch),
    _asks(
        "memory in the host", "kv_cache.host_memory", a.HOST, lambda p: p.kv.host_memory is not None
    ),
)


@dataclass(frozen=True)
class RoutedFleet(WholeFleet):
    """A fleet with the class of its router."""

    kind: type[Router]


ROUTERS: Chapter[RoutedFleet, RoutedFleet] = Chapter(
    "a router of one's own that does not say so",
    itself,
    Clash(
        "weights of pools",
        lambda f: is_own(f.scenario.router) and weighted(f.pools) and not f.kind.weighs,
        "router {scenario.router!r} does not say that it goes by weights",
        "give its class `weighs = True` once it heeds `target.weight`, or take one of "
        f"{', '.join(WEIGHTED)}",
        ("fleet.weight",),
    ),
)
