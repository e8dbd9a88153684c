"""Translates a scenario into the settings of Hugging Face transformers, and refuses what has none.

Decided without the package itself, so that a scenario that does not fit is refused before anything
is loaded. Sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from calibrate.dense import dense_layer
from calibrate.device import Device
from calibrate.engine.asked import no_drafts, no_prefixes, one_precision, refuse, single
from sim.errors import UsageError, did_you_mean
from sim.memory import PagedAllocator
from sim.schedulers import ChunkedPrefill, Static
from sim.schedulers.orders import FirstCome
from sim.setup import Setup
from sim.units import show_bytes

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
"""The formats of arithmetic, and PyTorch's names for them; fp64 is for comparing arithmetic."""

WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
"""Bytes of a number."""

DRIVEN = "transformers runs"
"""The beginning of a sentence about what it cannot do."""

SMALLEST_BLOCK = 4
"""Tokens of the smallest block of its cache."""

EXTRA_BLOCKS = 2
"""Blocks that it lays out for padding, in addition to those that requests can have."""

SAFETY_MARGIN = 0.15
"""Share of the blocks that must be free for its first-come-first-served scheduler to take a second
prompt into a batch; its own default."""

WORKSPACE = 256 * 2**20
"""Bytes allowed for activations, in addition to weights, cache and mask."""


@dataclass(frozen=True, slots=True)
class TransformersSettings:
    """The settings of the engine; the names are those of ``ContinuousBatchingConfig``.

    A static batch has none of the last three: it is as large as the scheduler makes it.
    """

    precision: str
    batching: str
    max_requests_per_batch: int
    block_size: int | None
    num_blocks: int | None
    max_batch_tokens: int | None

    def continuous(self) -> dict[str, Any]:
        """The settings as keywords of ``ContinuousBatchingConfig``."""
        named = asdict(self)
        del named["precision"], named["batching"]
        return named | {
            "scheduler_type": "fifo",
            "safety_margin": SAFETY_MARGIN,
            "allow_block_sharing": False,  # random prompts have nothing in common
            "use_async_batching": False,
        }


SERVED = {
    ChunkedPrefill.name: "continuous batches (its manager)",
    Static.name: "static ones (generate)",
}
"""The kinds of batches that transformers has."""


def wanted(setup: Setup, precision: str | None) -> TransformersSettings:
    """The settings of transformers for ``setup``; ``precision`` overrides the scenario's.

    UsageError, naming the key, for what it does not support.
    """
    pool = setup.only
    limits, memory = pool.limits, pool.capacity
    _check(setup)
    name = precision or one_precision(setup, DRIVEN)
    if name not in DTYPES:
        raise UsageError(
            f"precision: transformers computes in {', '.join(DTYPES)} here, not in {name}"
            f"{did_you_mean(name, DTYPES)}"
        )
    static = pool.settings.scheduler.batching == Static.name
    return TransformersSettings(
        precision=name,
        batching=pool.settings.scheduler.batching,
        max_requests_per_batch=limits.max_num_seqs,
        block_size=None if static else memory.block_size,
        num_blocks=None if static else memory.num_gpu_blocks,
        max_batch_tokens=None if static else limits.max_num_batched_tokens,
    )


def check_memory(
    setup: Setup, settings: TransformersSettings, device: Device, masked: bool
) -> None:
    """Raise UsageError if weights, cache and (``masked``) attention mask are more than is free.

    The mask is laid out at the start, for the largest batch over the whole cache. A static batch
    has no cache laid out before it comes: there, that of one full batch is counted.
    """
    model, element = setup.only.deployment.model, WIDTHS[settings.precision]
    weights = model.parameters * element
    per_token = 2 * model.num_layers * dense_layer(model).attention.kv_size * element
    mask = 0
    if settings.num_blocks is not None and settings.block_size is not None:
        tokens = (settings.num_blocks + EXTRA_BLOCKS) * settings.block_size
        rows = settings.max_batch_tokens or 0
        mask = rows * (settings.num_blocks * settings.block_size + rows) * element if masked else 0
    else:
        tokens = setup.only.capacity.tokens
    free = device.free_memory()
    if weights + tokens * per_token + mask + WORKSPACE > free:
        told = f" and the attention mask {show_bytes(mask)}" if mask else ""
        raise UsageError(
            f"{model.name} takes {show_bytes(weights)}, the KV cache "
            f"{show_bytes(tokens * per_token)}{told}, but {device.facts.name} has "
            f"{show_bytes(free)} free; give kv_cache.num_gpu_blocks, or a smaller model"
        )


def _check(setup: Setup) -> None:
    """Raise UsageError for the first thing that does not fit."""
    knobs, kv = setup.only.settings.scheduler, setup.only.settings.kv_cache
    continuous = knobs.batching == ChunkedPrefill.name
    refusals = [
        *single(setup, DRIVEN),
        (
            knobs.batching not in SERVED,
            f"scheduler.batching: {knobs.batching} is not supported by transformers; it has "
            f"{' and '.join(SERVED.values())}",
        ),
        (
            continuous and not knobs.chunked_prefill,
            "scheduler.chunked_prefill: transformers always cuts prompts to what is left of "
            "max_num_batched_tokens; set it to true",
        ),
        (
            continuous and knobs.order != FirstCome.name,
            f"scheduler.order: {knobs.order} is not supported by transformers; only fcfs is",
        ),
        (
            continuous and setup.only.limits.long_prefill_token_threshold > 0,
            "scheduler.long_prefill_token_threshold: transformers has no such cap; set it to null",
        ),
        (
            continuous and kv.allocator != PagedAllocator.name,
            f"kv_cache.allocator: {kv.allocator} is not supported by transformers; only paged is",
        ),
        (
            continuous and kv.block_size < SMALLEST_BLOCK,
            f"kv_cache.block_size: transformers has blocks of at least {SMALLEST_BLOCK} "
            f"tokens, not of {kv.block_size}",
        ),
        no_prefixes(setup),
        no_drafts(setup),
    ]
    refuse(refusals)
