"""Lists what does not go with orders of the queue, pipelines, and policies that count pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.scenario.checks.subjects import (
    AHEAD,
    BY_RANK,
    WITHOUT_BLOCKS,
    OnePool,
    WholeFleet,
    batching_without,
    rule_without,
)
from sim.scenario.clash import Chapter, Clash
from sim.scenario.sections.support import any_of
from sim.schedulers import ORDERS, ChunkedPrefill, follows_rule
from sim.schedulers.abilities import IN_FLIGHT, IN_ORDER
from sim.schedulers.orders import Fair

ORDER = ("*.scheduler.order",)

FAIR: Chapter[WholeFleet, OnePool] = Chapter(
    "order: fair",
    WholeFleet.each,
    Clash(
        "batching of whole batches",
        lambda p: p.knobs.order == Fair.name and not p.able(IN_ORDER),
        f"order {Fair.name} is not modelled for {{knobs.batching}} batching",
        where=("scheduler.order",),
    ),
)

DEADLINES: Chapter[WholeFleet, OnePool] = Chapter(
    "order: edf",
    WholeFleet.each,
    Clash(
        "requests without a deadline",
        lambda p: p.order is not None and p.order.ranks_by == "deadline" and not p.dated,
        "{order.name} serves the earliest deadline first, but no request has one: give "
        "slo.ttft, or a deadline to some of workload.classes",
        where=ORDER,
    ),
)


def _no_tree(each: OnePool) -> bool:
    """Whether the memory of a pool is no prefix tree."""
    tree = each.rule.prefix_cache == "radix" and each.kv.enable_prefix_caching
    return not tree or not follows_rule(each.knobs.batching)


PREFIXES: Chapter[WholeFleet, OnePool] = Chapter(
    "order: lpm",
    WholeFleet.each,
    Clash(
        "memory without SGLang's prefix tree",
        lambda p: p.order is not None and p.order.by_prefix and _no_tree(p),
        "{order.name} goes by what SGLang's prefix tree has of a request: it needs "
        "`scheduler.policy: sglang` with continuous batching and "
        "`kv_cache.enable_prefix_caching: true`",
        where=ORDER,
    ),
)

_NEWEST = any_of(n for n, its in ORDERS.items() if not its.preempts_by_rank | its.by_prefix)


def _one_batch(other: str, when: Callable[[OnePool], bool], found: str, key: str) -> Clash[OnePool]:
    return Clash(
        other,
        when,
        f"{found} is not simulated with several batches in flight (pipeline_parallel: "
        "{layout.pipeline})",
        f"supported: {ChunkedPrefill.name} batching by vLLM V1's rule, in an order that preempts "
        f"the newest ({_NEWEST})",
        (f"*.scheduler.{key}",),
    )


IN_STAGES: Chapter[WholeFleet, OnePool] = Chapter(
    "pipelines",
    lambda fleet: (each for each in fleet.each() if each.layout.pipeline > 1),
    _one_batch(*batching_without(IN_FLIGHT), "{knobs.batching} batching", "batching"),
    _one_batch(*rule_without(IN_FLIGHT), "policy: {knobs.rule}", "policy"),
    _one_batch(*AHEAD, "async_scheduling", "async_scheduling"),
    _one_batch(*BY_RANK, "order: {knobs.order}", "order"),
)


def _in_pages(fleet: WholeFleet) -> Iterator[OnePool]:
    return (p for p in fleet.each() if p.rule.in_pages and follows_rule(p.knobs.batching))


PAGES: Chapter[WholeFleet, OnePool] = Chapter(
    "a policy that counts pages",
    _in_pages,
    Clash(
        *WITHOUT_BLOCKS,
        "policy: {knobs.rule} counts free pages, which {kv.allocator} allocation has not",
        where=("*.kv_cache.allocator", "*.scheduler.policy"),
    ),
    Clash(
        "blocks of more tokens than an iteration takes",
        lambda p: p.knobs.chunked_prefill and p.kv.block_size > p.knobs.max_num_batched_tokens,
        "policy: {knobs.rule} cuts prompts into whole pages, but block_size "
        "({kv.block_size:,}) is more than max_num_batched_tokens "
        "({knobs.max_num_batched_tokens:,})",
        where=("*.kv_cache.block_size", "*.scheduler.max_num_batched_tokens"),
    ),
)

ORDERED: tuple[Chapter[WholeFleet, OnePool], ...] = (FAIR, DEADLINES, PREFIXES, IN_STAGES)
