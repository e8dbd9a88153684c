"""Refuses settings of a pool that cannot be had together, each with the reason and what can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.memory import ALLOCATORS
from sim.scenario.admission import check_admission
from sim.scenario.classes import check_fair
from sim.scenario.fields import trouble
from sim.scenario.pools import PoolSettings
from sim.scenario.speculation import unspeculated
from sim.scenario.support import any_of
from sim.schedulers import ORDERS, RULES, ChunkedPrefill, able, follows_rule
from sim.schedulers.abilities import IN_FLIGHT

if TYPE_CHECKING:
    from sim.scenario.schema import Scenario

Place = tuple[str | int, ...]


def check_orders(scenario: Scenario) -> None:
    """Refuse an order of the queue by what no request has: a deadline, or a prefix in a tree."""
    classes = scenario.workload.classes or ()
    dated = scenario.slo.ttft is not None or any(item.deadline is not None for item in classes)
    retried = scenario.failures is not None or scenario.patience.client_timeout is not None
    check_admission(scenario.pools, scenario.admission, dated=dated, retried=retried)
    check_fair(scenario.pools)
    for pool in scenario.pools:
        order = ORDERS.get(pool.scheduler.order)
        if order is not None and order.ranks_by == "deadline" and not dated:
            raise trouble(
                f"{order.name} serves the earliest deadline first, but no request has one: "
                "give slo.ttft, or a deadline to some of workload.classes",
                _place(scenario, pool, "scheduler", "order"),
            )
    for pool in scenario.pools:
        order = ORDERS.get(pool.scheduler.order)
        if order is None or not order.by_prefix:
            continue
        tree = RULES[pool.scheduler.rule].prefix_cache == "radix"
        tree = tree and pool.kv_cache.enable_prefix_caching
        if not tree or not follows_rule(pool.scheduler.batching):
            raise trouble(
                f"{order.name} goes by what SGLang's prefix tree has of a request: it needs "
                "`scheduler.policy: sglang` with continuous batching and "
                "`kv_cache.enable_prefix_caching: true`",
                _place(scenario, pool, "scheduler", "order"),
            )


def check_pipelines(scenario: Scenario) -> None:
    """Refuse pipelines whose scheduler does not know several batches in flight."""
    for pool in scenario.pools:
        knobs, order = pool.scheduler, ORDERS.get(pool.scheduler.order)
        if pool.layout.pipeline == 1:
            continue
        if not able(knobs.batching, IN_FLIGHT):
            found, key = f"{knobs.batching} batching", "batching"
        elif IN_FLIGHT not in RULES[knobs.rule].abilities:
            found, key = f"policy: {knobs.rule}", "policy"
        elif knobs.plans_ahead:
            found, key = "async_scheduling", "async_scheduling"
        elif order is None or order.preempts_by_rank:
            found, key = f"order: {knobs.order}", "order"
        else:
            continue
        newest = [name for name, its in ORDERS.items() if not its.preempts_by_rank | its.by_prefix]
        raise trouble(
            f"{found} is not simulated with several batches in flight (pipeline_parallel: "
            f"{pool.layout.pipeline}); supported: {ChunkedPrefill.name} batching by vLLM V1's "
            f"rule, in an order that preempts the newest ({any_of(newest)})",
            _place(scenario, pool, "scheduler", key),
        )


def check_drafts(scenario: Scenario) -> None:
    """Refuse drafts where a pool's other settings are not simulated with them."""
    for pool in scenario.pools if scenario.speculative is not None else ():
        found = unspeculated(pool)
        if found is not None:
            why, section, key = found
            at: Place = ("fleet", pool.index, key)
            if section != "fleet":
                at = _place(scenario, pool, section, key)
            raise trouble(f"speculative: {why}", at, ("speculative",))


def check_pages(scenario: Scenario) -> None:
    """Refuse policies that count pages where memory has none, or larger ones than a pass."""
    for pool in scenario.pools:
        knobs, kv = pool.scheduler, pool.kv_cache
        if not RULES[knobs.rule].in_pages or not follows_rule(knobs.batching):
            continue
        if ALLOCATORS[kv.allocator].reserves_longest:
            raise trouble(
                f"policy: {knobs.rule} counts free pages, which {kv.allocator} allocation has not",
                _place(scenario, pool, "kv_cache", "allocator"),
                _place(scenario, pool, "scheduler", "policy"),
            )
        if knobs.chunked_prefill and kv.block_size > knobs.max_num_batched_tokens:
            raise trouble(
                f"policy: {knobs.rule} cuts prompts into whole pages, but block_size "
                f"({kv.block_size:,}) is more than max_num_batched_tokens "
                f"({knobs.max_num_batched_tokens:,})",
                _place(scenario, pool, "kv_cache", "block_size"),
                _place(scenario, pool, "scheduler", "max_num_batched_tokens"),
            )


def _place(scenario: Scenario, pool: PoolSettings, section: str, key: str) -> Place:
    """Where ``key`` of a section that rules ``pool`` stands: in the pool, if it has its own."""
    own = getattr(scenario.fleet[pool.index], section) is not None
    return ("fleet", pool.index, section, key) if own else (section, key)
