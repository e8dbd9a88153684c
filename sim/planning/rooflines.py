"""Computes, without a simulation, what bounds each operator of a pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sim.cost import CostModel, Deployment, Operator
from sim.cost.kernels.latent_attention import ROWS
from sim.cost.parts.mixture_of_experts import ROUTED
from sim.cost.plausible import implausible
from sim.iteration import Batch, Part
from sim.specs.compressed import CompressedLatent
from sim.specs.latent import Latent
from sim.specs.links import on_link, pcie
from sim.units import show_time

SMALL = (2, 4, 8, 16, 32, 64)
"""Batches with which a smaller one is compared: kernels for few rows differ from those for many."""

STEP = 1.2
"""A pass that takes this many times as long as one of a sequence fewer is worth a note."""

TILES = "tiles"
"""The arithmetic of whole tiles, most of whose rows are empty."""

ARITHMETIC = ("compute", TILES)
"""The bounds that are arithmetic, together the opposite of memory."""


def roofline_document(
    d: Deployment,
    batches: Sequence[int],
    context: int,
    prompt: int,
    *,
    joined: bool = False,
    room: float = math.inf,
    weights_fit: bool = True,
) -> dict[str, Any]:
    """Every operator of a decode pass at each batch size, and of the prefill of one prompt.

    ``context`` is the tokens that each decoding sequence holds, ``prompt`` the length prefilled.
    FLOP, bytes and seconds are of one GPU and one pass; of a pipeline, of one GPU of each stage,
    added up, and ``stages`` has the seconds in each. ``joined`` is whether it is stated what joins
    the GPUs: of cards on PCIe both cases are noted where it is not. Memory has ``room`` for so many
    sequences that hold ``context`` tokens and decode; larger batches are timed all the same, and
    noted: all, unless ``weights_fit``. ``memory_bound`` has the batches at which memory no longer
    binds.
    """
    cost = CostModel(d)
    timed = [Batch(batch, batch * context) for batch in batches]
    passes = [
        _pass("decode", batch, context, cost, of) for batch, of in zip(batches, timed, strict=True)
    ]
    timed.append(Batch(0, 0, [Part(prompt, 0)]))
    passes.append(_pass("prefill", 1, prompt, cost, timed[-1]))
    either = None if joined else _either_way(d, timed)
    notes = [
        d.format_note,
        d.node_note,
        _padded_heads(d),
        either,
        _beyond_memory(batches, context, room, weights_fit=weights_fit),
        *(_slow_batch(cost, batch, context, batches) for batch in batches),
        *implausible(d, cost.pass_operators(timed[-1])),
    ]
    return {
        "command": "roofline",
        **subject(d),
        "engine": d.engine.label,
        "flops_per_s": d.gpu.flops(d.arithmetic),
        "bytes_per_s": d.gpu.bandwidth,
        "ridge_flops_per_byte": d.gpu.flops(d.arithmetic) / d.gpu.bandwidth,
        "passes": passes,
        "memory_bound": _memory_bound(cost, context, room if weights_fit else 0.0),
        "notes": [note for note in notes if note],
    }


LARGEST_BATCH = 2**20
"""The largest batch that is tried where memory has room for more."""


def _memory_bound(cost: CostModel, context: int, room: float) -> dict[str, Any]:
    """Which batches of sequences of ``context`` tokens take longer for memory than for arithmetic,
    ``TILES`` included: in the ``products``, and in the whole ``pass``. Each has the least batch of
    which that is not so, None if it is so up to the largest that ``fits``, and ``by`` what most of
    its arithmetic is; ``ranges`` has all that are so, first and last batch of each: a larger batch
    that fills its tiles may be bound by memory again."""
    fits = int(min(room, LARGEST_BATCH))

    @cache
    def taken(batch: int) -> tuple[dict[str, float], dict[str, float]]:
        """The seconds of the products, and of the whole pass, by what bounds them."""
        products, whole = (dict.fromkeys((*ARITHMETIC, "memory"), 0.0) for _ in range(2))
        for operator in cost.pass_operators(Batch(batch, batch * context)):
            bound, seconds = _bound(operator, cost.deployment), float(operator.seconds)
            if bound in whole:
                whole[bound] += seconds
                products[bound] += seconds if _is_product(_sharing(operator)) else 0.0
        return products, whole

    def bound(batch: int) -> list[bool]:
        return [each["memory"] > arithmetic(each) for each in taken(batch)]

    def ranges(index: int) -> list[list[int]]:
        found: list[list[int]] = []
        low, before = 0, False
        for high in sorted({each for each in (*TILE_ENDS, fits) if each <= fits}):
            now = bound(high)[index]
            if now != before:
                change = high
                while change - low > 1:  # low is as before, change as now
                    middle = (low + change) // 2
                    low, change = (low, middle) if bound(middle)[index] == now else (middle, change)
                if now:
                    found.append([change, fits])
                else:
                    found[-1][1] = change - 1
            low, before = high, now
        return found

    both = {name: ranges(index) for index, name in enumerate(("products", "pass"))}
    least = {name: _beyond(found, fits) for name, found in both.items()}
    by = {
        name: None if at is None else max(ARITHMETIC, key=lambda kind: taken(at)[index][kind])
        for index, (name, at) in enumerate(least.items())
    }
    return {**least, "by": by, "fits": fits, "ranges": both}


def arithmetic(seconds: Mapping[str, float]) -> float:
    """The seconds of arithmetic among ``seconds`` by what bounds them; a pass is memory-bound where
    those of memory are more."""
    return sum(seconds[kind] for kind in ARITHMETIC)


def _beyond(ranges: Sequence[Sequence[int]], fits: int) -> int | None:
    """The least batch outside of ``ranges``; None where there is none up to ``fits``."""
    least = ranges[0][1] + 1 if ranges and ranges[0][0] == 1 else 1
    return least if least <= fits else None


TILE_ENDS = (
    *(1, *SMALL),
    *(each for tile in range(64, 4097, 64) for each in (tile, tile + 1)),
    *(2**power for power in range(13, 20)),
)
"""Batches between which the bound is looked for: of most tiles the last row, and one row more,
where arithmetic takes longest next to memory."""


def _is_product(shared: str) -> bool:
    return shared in ("weights", "in part")


def _beyond_memory(
    batches: Sequence[int], context: int, room: float, *, weights_fit: bool = True
) -> str | None:
    """The batches that do not fit in memory, so that no server runs them; None where all do.

    >>> _beyond_memory([32, 256], 30_000, 45.93)
    'A batch of 256 does not fit: memory holds 45.9 sequences of 30,000 tokens (`infersim fit`).'
    >>> _beyond_memory([256], 30_000, 0.0, weights_fit=False)
    'No batch fits: the weights alone exceed what an engine may use of memory (`infersim fit`).'
    """
    if not weights_fit:
        return (
            "No batch fits: the weights alone exceed what an engine may use of memory "
            "(`infersim fit`)."
        )
    large = [f"{batch:,}" for batch in batches if batch > room]
    if not large:
        return None
    do = "does" if len(large) == 1 else "do"
    which = f"A batch of {large[0]}" if len(large) == 1 else f"Batches of {', '.join(large)}"
    return (
        f"{which} {do} not fit: memory holds {room:,.1f} sequences of {context:,} tokens "
        "(`infersim fit`)."
    )


def _either_way(d: Deployment, passes: Sequence[Batch]) -> str | None:
    """How long passes take if cards on PCIe reach each other and if they do not, where nothing says
    which; None elsewhere."""
    gpu = d.gpu
    if not d.layout.linked or not gpu.link.kind == gpu.host_link.kind == "pcie":
        return None
    told = []
    for direct in (True, False):
        link = pcie(gpu, direct)
        cost = CostModel(replace(d, gpu=on_link(gpu, link, frameworks=direct)))
        seconds = [sum(float(o.seconds) for o in cost.pass_operators(each)) for each in passes]
        told.append(", ".join(map(show_time, seconds)))
    return (
        f"Whether {gpu.name} cards reach each other directly over PCIe depends on the host and is "
        f"not stated (--link); passes take {told[0]} if they do, {told[1]} if they do not."
    )


def subject(d: Deployment) -> dict[str, Any]:
    """The subject of an answer: model, GPUs, engine and precision."""
    return {
        "model": d.model.name,
        "gpu": d.gpu.name,
        "tensor_parallel": d.layout.tensor,
        "pipeline_parallel": d.layout.pipeline,
        "data_parallel": d.layout.data,
        "expert_parallel": d.layout.expert,
        "precision": {
            "weights": d.weights,
            "activations": d.activations,
            "kv_cache": d.kv_cache,
            "computed": d.arithmetic,
        },
    }


def _pass(phase: str, batch: int, tokens: int, cost: CostModel, of: Batch) -> dict[str, Any]:
    operators = cost.pass_operators(of)
    piped = cost.deployment.layout.pipeline > 1
    return {
        "phase": phase,
        "batch": batch,
        "tokens": tokens,
        "seconds": sum(float(o.seconds) for o in operators),
        **({"stages": list(cost.passage(of).stages)} if piped else {}),
        "operators": [
            {
                "name": o.name,
                "flops": float(o.flops),
                "bytes": float(o.bytes),
                "seconds": float(o.seconds),
                "bound_by": _bound(o, cost.deployment),
                "shared": _sharing(o),
            }
            for o in operators
        ],
    }


def _bound(o: Operator, d: Deployment) -> str:
    """The resource that takes most of a pass's time; ``TILES`` where that is the arithmetic of a
    product although less was asked for than the memory could feed. Attention rereads what it has
    read: its bytes do not say that."""
    if o.bound != "compute" or "attention" in o.name:
        return o.bound
    ridge = d.gpu.flops(d.arithmetic) / d.gpu.bandwidth
    return TILES if float(o.flops) < ridge * float(o.bytes) else o.bound


def _sharing(o: Operator) -> str:
    if "attention" in o.name:
        return "no, KV"
    if o.name in ROUTED:
        return "in part"
    return "weights" if o.per_batch else "no"


def _padded_heads(d: Deployment) -> str | None:
    """The note that latent kernels compute heads which a GPU does not have; None elsewhere."""
    for group in d.model.layers:
        attention = group.attention
        if not isinstance(attention, Latent | CompressedLatent):
            continue
        heads = attention.num_heads // d.layout.tensor
        if heads % ROWS:
            whole = math.ceil(heads / ROWS) * ROWS
            return (
                f"Decode attention takes heads in tiles of {ROWS}: the {heads} of each GPU take as "
                f"long as {whole} would. Work and FLOP per byte are those of the {heads}."
            )
    return None


def _slow_batch(
    cost: CostModel, batch: int, context: int, batches: Sequence[int] = ()
) -> str | None:
    """Why a decode pass takes longer than one of a larger batch, of ``batches`` or ``SMALL``, or
    more than ``STEP`` times as long as one of a sequence fewer, where measured kernels do: by more
    than they are off, and than their work. None where it does not, or they were not measured."""
    mine = cost.pass_operators(Batch(batch, batch * context))
    total = sum(float(o.seconds) for o in mine)
    others = sorted({each for each in (*SMALL, *batches) if each > batch})
    for other in [batch - 1, *others] if batch > 1 else others:
        theirs = cost.pass_operators(Batch(other, other * context))
        faster = sum(float(o.seconds) for o in theirs)
        slow, fast = max(
            zip(mine, theirs, strict=True),
            key=lambda pair: float(pair[0].seconds - pair[1].seconds),
        )
        work, least = (1.0, faster) if other > batch else (batch / other, STEP * faster)
        drop = 1 - work * float(fast.seconds) / float(slow.seconds)
        measured = bool(slow.measured) and bool(fast.measured)
        if least < total and measured and drop > float(slow.error) + float(fast.error):
            longer = "longer than" if other > batch else f"{total / faster - 1:.0%} longer than"
            return (
                f"A batch of {batch:,} takes {show_time(total)}, {longer} one of {other:,} "
                f"({show_time(faster)}). This is in the kernel timings of this GPU, mostly in "
                f"{slow.name} ({show_time(float(slow.seconds))} and "
                f"{show_time(float(fast.seconds))}): its kernels for "
                f"{'fewer' if other > batch else 'more'} rows are the slower ones."
            )
    return None
