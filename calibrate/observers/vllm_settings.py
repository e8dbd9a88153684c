"""Translates a scenario into vLLM's settings, and refuses what vLLM cannot honour.

Decided without vLLM itself, so that a scenario that does not fit is refused before anything is
loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrate.device import DeviceFacts
from calibrate.engine.asked import no_drafts, no_prefixes, one_precision, refuse, single
from calibrate.observers.vllm_engine import VllmSettings
from sim.errors import UsageError, did_you_mean
from sim.memory import PagedAllocator
from sim.schedulers import ORDERS, ChunkedPrefill, VllmRule
from sim.setup import Setup

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""The formats of vLLM's arithmetic here, and its names for them."""

DRIVEN = "vLLM runs"
"""The beginning of a sentence about what it cannot do."""

NULL_BLOCKS = 1
"""Blocks that vLLM counts but never gives to a request."""

CPU_BLOCK = 32
"""Tokens of which a block must be a multiple on a CPU."""

POLICIES: Mapping[str, str] = {name: order.vllm for name, order in ORDERS.items() if order.vllm}
"""vLLM's scheduling policies by ``scheduler.order``."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The engine to build: its settings, the precision by our name, further arguments."""

    settings: VllmSettings
    precision: str
    arguments: dict[str, Any]


def wanted(setup: Setup, device: DeviceFacts, precision: str | None) -> Wanted:
    """The settings of vLLM for ``setup`` on ``device``; ``precision`` overrides the scenario's.

    UsageError, naming the key, for what vLLM's V1 engine does not support.
    """
    pool = setup.only
    scenario, limits, memory = setup.scenario, pool.limits, pool.capacity
    _check(setup, device)
    name = precision or one_precision(setup, DRIVEN)
    if name not in DTYPES:
        raise UsageError(
            f"precision: vLLM computes in {', '.join(DTYPES)} here, not in {name}"
            f"{did_you_mean(name, DTYPES)}"
        )
    blocks = pool.settings.kv_cache.num_gpu_blocks
    longest = limits.max_model_len
    if blocks is not None:
        longest = min(longest, (blocks - NULL_BLOCKS) * memory.block_size)
    settings = VllmSettings(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=longest,
        block_size=memory.block_size,
        num_gpu_blocks=blocks,
        long_prefill_token_threshold=min(limits.long_prefill_token_threshold, longest),
        scheduler_reserve_full_isl=limits.scheduler_reserve_full_isl,
        scheduling_policy=POLICIES[pool.settings.scheduler.order],
    )
    arguments = {
        "dtype": DTYPES[name],
        "seed": scenario.seed % 2**31,
        "gpu_memory_utilization": pool.settings.kv_cache.gpu_memory_utilization,
        "enforce_eager": device.kind == "cpu",
    }
    return Wanted(settings, name, arguments)


def _check(setup: Setup, device: DeviceFacts) -> None:
    """Raise UsageError for the first thing that does not fit."""
    knobs, kv = setup.only.settings.scheduler, setup.only.settings.kv_cache
    refusals = [
        *single(setup, DRIVEN),
        (
            knobs.batching != ChunkedPrefill.name,
            f"scheduler.batching: {knobs.batching} is not supported by vLLM; "
            f"only {ChunkedPrefill.name} is",
        ),
        (
            knobs.rule != VllmRule.name,
            f"scheduler.policy: {knobs.rule} is not the rule of vLLM V1; only {VllmRule.name} is",
        ),
        (
            not knobs.chunked_prefill,
            "scheduler.chunked_prefill: false is not supported: vLLM is driven with chunked "
            "prefill; set it to true",
        ),
        (
            knobs.order not in POLICIES,
            f"scheduler.order: {knobs.order} is not supported by vLLM; "
            f"only {' or '.join(POLICIES)}",
        ),
        (
            kv.allocator != PagedAllocator.name,
            f"kv_cache.allocator: {kv.allocator} is not supported by vLLM; "
            f"only {PagedAllocator.name} is",
        ),
        no_prefixes(setup),
        no_drafts(setup),
        (
            kv.num_gpu_blocks is not None and kv.num_gpu_blocks <= NULL_BLOCKS,
            f"kv_cache.num_gpu_blocks: {kv.num_gpu_blocks} leaves no block for requests, since "
            f"vLLM keeps {NULL_BLOCKS} for itself",
        ),
        (
            device.kind == "cpu" and kv.block_size % CPU_BLOCK > 0,
            f"kv_cache.block_size: on a CPU vLLM requires a multiple of {CPU_BLOCK}, not "
            f"{kv.block_size}",
        ),
    ]
    refuse(refusals)
