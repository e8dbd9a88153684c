"""Provides the batching policies, found by name or as ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sim.errors import UsageError
from sim.growth.steady import Steady
from sim.memory import Allocator, PagedAllocator
from sim.registry import Registry
from sim.schedulers.abilities import HOST, Ability
from sim.schedulers.adapters import (
    Adapted,
    AdapterPrefill,
    AdapterSglang,
    AdapterSglangOverlap,
    AdapterSlots,
    AsyncAdapterPrefill,
)
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.ahead_drafts import AsyncDraftedPrefill
from sim.schedulers.base import ASSUMED, BatchShape, Chunk, Limits, Plan, Scheduler
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.drafts import DraftsByBatch
from sim.schedulers.fair import FairQueue
from sim.schedulers.offloading import OffloadedPrefill, Offloading
from sim.schedulers.orders import ORDERS, FirstCome, Order, make_order
from sim.schedulers.pipelined import PipelinedPrefill
from sim.schedulers.prefill_first import PrefillFirst
from sim.schedulers.ranked import RankedPrefill
from sim.schedulers.roles import DecodeRole, PrefillRole
from sim.schedulers.rules import (
    RULES,
    MaxUtilizationRule,
    NoEvictRule,
    SglangRule,
    VllmRule,
    VllmV0Rule,
)
from sim.schedulers.whole_batch import RequestLevel, Static

__all__ = [
    "ASSUMED",
    "ORDERS",
    "POLICIES",
    "ROLES",
    "RULES",
    "Adapted",
    "AdapterPrefill",
    "AdapterSlots",
    "AsyncChunkedPrefill",
    "BatchShape",
    "Chunk",
    "ChunkedPrefill",
    "DraftsByBatch",
    "Limits",
    "MaxUtilizationRule",
    "NoEvictRule",
    "OffloadedPrefill",
    "Offloading",
    "Order",
    "PipelinedPrefill",
    "Plan",
    "PrefillFirst",
    "RankedPrefill",
    "ReplicaTraits",
    "RequestLevel",
    "Scheduler",
    "SglangRule",
    "Static",
    "VllmRule",
    "VllmV0Rule",
    "able",
    "follows_rule",
    "make_scheduler",
    "scheduler_class",
]

T = TypeVar("T", bound=Scheduler)

POLICIES: Registry[Scheduler] = Registry(
    "batching", Scheduler, Static, RequestLevel, ChunkedPrefill, package=__name__
)


ROLES: Mapping[str, type[ChunkedPrefill]] = {
    PrefillRole.role: PrefillRole,
    DecodeRole.role: DecodeRole,
}
"""The policies for a pool of only one phase."""


ADAPTED: Mapping[tuple[str, bool], Callable[[Limits, Allocator, AdapterSlots], Adapted]] = {
    (VllmRule.name, False): AdapterPrefill,
    (VllmRule.name, True): AsyncAdapterPrefill,
    (SglangRule.name, False): AdapterSglang,
    (SglangRule.name, True): AdapterSglangOverlap,
}
"""The policies that serve LoRA adapters, by rule and by whether they plan ahead."""


@dataclass(frozen=True, slots=True)
class ReplicaTraits:
    """Further traits of a replica that decide the class of its scheduler.

    ``decoding`` makes its batch of decoding sequences, or each of as many ``batches`` as are in
    flight at once: a ``PipelinedPrefill`` where those are more than one. With a ``host``, vLLM's
    rule has blocks there: an ``OffloadedPrefill``; with slots for ``adapters``,
    its own and SGLang's are ``Adapted``. In a pool that serves only one phase, its
    ``role`` decides.
    """

    decoding: Callable[[], Steady] = Steady
    batches: int = 1
    host: Offloading | None = None
    role: str = "both"
    adapters: AdapterSlots | None = None


def make_scheduler(
    batching: str,
    limits: Limits,
    kv: Allocator,
    *,
    order: str = FirstCome.name,
    rule: str = VllmRule.name,
    ahead: bool = False,
    folders: Sequence[Path] = (),
    traits: ReplicaTraits | None = None,
) -> Scheduler:
    """The scheduler that ``scheduler.batching`` names, its queue in ``scheduler.order``, for a
    replica of these ``traits``; None: one of an own batch, without a host, that does everything.

    Continuous batching follows the ``rule`` of an engine, planned ``ahead`` or not. A name with a
    colon is imported: ``package.module:Class``, a subclass of ``Scheduler`` or ``Order``, looked
    for in ``folders`` first. Raises UsageError for a name that leads nowhere.
    """
    ranks = make_order(order, folders)
    policy = scheduler_class(
        batching,
        ranks.preempts_by_rank,
        rule=rule,
        ahead=ahead,
        folders=folders,
    )
    traits = traits or ReplicaTraits()
    scheduler: Scheduler
    if traits.host is not None:
        assert HOST.of(policy), policy
        assert isinstance(kv, PagedAllocator), kv
        scheduler = _variant(policy, OffloadedPrefill)(limits, kv, traits.host, ranks.queue())
        return _counted(scheduler)
    if traits.batches > 1:
        scheduler = _variant(policy, PipelinedPrefill)(limits, kv, traits.batches, traits.decoding)
    else:
        batch = traits.decoding()
        chosen = _variant(policy, ROLES[traits.role]) if traits.role in ROLES else policy
        if batch.drafts_by_batch:
            chosen = _variant(policy, DraftsByBatch)
        if batch.drafts_ahead:
            chosen = AsyncDraftedPrefill
        if traits.adapters is None:
            scheduler = chosen(limits, kv)
        else:
            scheduler = ADAPTED[rule, ahead](limits, kv, traits.adapters)
        scheduler.decoding = batch
    scheduler.waiting = ranks.queue()
    return _counted(scheduler)


def _variant(policy: type[Scheduler], serving: type[T]) -> type[T]:
    """``policy`` if it is one of the class that is ``serving`` there; else that class."""
    return policy if issubclass(policy, serving) else serving


def _counted(scheduler: Scheduler) -> Scheduler:
    """``scheduler``, whose queue sees the tokens that it delivers if it counts them."""
    if isinstance(scheduler.waiting, FairQueue):
        scheduler.waiting.progress = scheduler.steps
    return scheduler


def follows_rule(batching: str) -> bool:
    """Whether ``scheduler.policy`` chooses the class that serves."""
    return POLICIES.get(batching) is ChunkedPrefill


def able(batching: str, ability: Ability, folders: Sequence[Path] | None = None) -> bool:
    """Whether the policy of that name has ``ability``; one of one's own is taken to have it where
    no ``folders`` are given in which it is looked for."""
    policy = POLICIES.get(batching) if folders is None else POLICIES.find(batching, folders)
    return policy is None or ability.of(policy)


def scheduler_class(
    batching: str,
    preempts_by_rank: bool = False,
    *,
    rule: str = VllmRule.name,
    ahead: bool = False,
    folders: Sequence[Path] = (),
) -> type[Scheduler]:
    """The policy of that name, as for ``make_scheduler``."""
    policy = POLICIES.find(batching, folders)
    if not follows_rule(batching):
        return policy
    found = RULES.find(rule).policy(preempts_by_rank, ahead)
    if found is None:
        raise UsageError(
            f"async_scheduling: the rule of {rule} is not planned ahead with an order that "
            "preempts by rank"
            if RULES[rule].policy(False, True)
            else f"async_scheduling: the rule of {rule} is not planned ahead"
        )
    return found
