"""Computes, without a simulation, what fits in memory and what bounds each operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.catalog.published import origin_notes, published_note
from sim.cost import CostModel, Deployment, Operator
from sim.cost.kernels.latent_attention import ROWS
from sim.cost.parts.mixture_of_experts import ROUTED
from sim.errors import UsageError
from sim.host_memory import break_even
from sim.iteration import Batch, Part
from sim.memory.capacity import Capacity
from sim.planning.node import CapacityOf, layout_rows, most_of, shortage
from sim.specs.drafter import on_layout
from sim.specs.latent import Latent
from sim.specs.layers import Role
from sim.specs.links import on_link, pcie
from sim.specs.precision import precision_bytes
from sim.units import show_bytes, show_number, show_time

SMALL = (2, 4, 8, 16, 32, 64)
"""Batches with which a smaller one is compared: kernels for few rows differ from those for many."""

GPUS_OF_A_REPLICA = (1, 2, 4, 8)
"""Tensor-parallel GPUs that are tried where a model does not fit, within a node."""

NARROWER = ("fp8", "int8", "int4")
"""Precisions of weights that are tried where a model does not fit."""

TILES = "tiles"
"""The arithmetic of whole tiles, most of whose rows are empty."""


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
    sequences of ``context`` tokens; larger batches are timed all the same, and noted: all, unless
    ``weights_fit``. ``memory_bound`` has the batches at which memory no longer binds.
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
        *(_slow_batch(cost, batch, context) for batch in batches),
    ]
    return {
        "command": "roofline",
        **_subject(d),
        "flops_per_s": d.gpu.flops(d.arithmetic),
        "bytes_per_s": d.gpu.bandwidth,
        "ridge_flops_per_byte": d.gpu.flops(d.arithmetic) / d.gpu.bandwidth,
        "passes": passes,
        "memory_bound": _memory_bound(cost, context, room if weights_fit else 0.0),
        "notes": [note for note in notes if note],
    }


LARGEST_BATCH = 2**20
"""The largest batch that is tried where memory has room for more."""


def _memory_bound(cost: CostModel, context: int, room: float) -> dict[str, int | None]:
    """The least batch at which arithmetic takes as long as memory: in the ``products``, and in the
    whole ``pass`` of sequences of ``context`` tokens. None: at no batch up to the largest that
    ``fits``."""
    fits = int(min(room, LARGEST_BATCH))

    def fed(batch: int, products: bool) -> bool:
        seconds = {"memory": 0.0, "compute": 0.0}
        for operator in cost.pass_operators(Batch(batch, batch * context)):
            shared = _sharing(operator) in ("weights", "in part")
            if operator.bound in seconds and (shared or not products):
                seconds[operator.bound] += float(operator.seconds)
        return seconds["compute"] >= seconds["memory"]

    def least(products: bool) -> int | None:
        low, high = 0, 1
        while not fed(high, products):
            if high == fits:
                return None
            low, high = high, min(2 * high, fits)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fed(middle, products) else (middle, high)
        return high

    found = (least(True), least(False)) if fits else (None, None)
    return {"products": found[0], "pass": found[1], "fits": fits}


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
        f"{which} {do} not fit: memory holds {show_number(room)} sequences of {context:,} tokens "
        "(`infersim fit`)."
    )


def _either_way(d: Deployment, passes: Sequence[Batch]) -> str | None:
    """How long passes take if cards on PCIe reach each other and if they do not, where nothing says
    which; None elsewhere."""
    gpu = d.gpu
    if d.layout.gpus == 1 or not gpu.link.kind == gpu.host_link.kind == "pcie":
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


def _subject(d: Deployment) -> dict[str, Any]:
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
        heads = attention.num_heads // d.layout.tensor if isinstance(attention, Latent) else 0
        if heads % ROWS:
            whole = math.ceil(heads / ROWS) * ROWS
            return (
                f"Decode attention takes heads in tiles of {ROWS}: the {heads} of each GPU take as "
                f"long as {whole} would. Work and FLOP per byte are those of the {heads}."
            )
    return None


def _slow_batch(cost: CostModel, batch: int, context: int) -> str | None:
    """Why a decode pass takes longer than one of a larger batch, where measured kernels do: by more
    than they are off; None where it does not, or the kernels were not measured."""
    mine = cost.pass_operators(Batch(batch, batch * context))
    total = sum(float(o.seconds) for o in mine)
    for other in SMALL:
        if other <= batch:
            continue
        theirs = cost.pass_operators(Batch(other, other * context))
        faster = sum(float(o.seconds) for o in theirs)
        slow, fast = max(
            zip(mine, theirs, strict=True),
            key=lambda pair: float(pair[0].seconds - pair[1].seconds),
        )
        drop = 1 - float(fast.seconds) / float(slow.seconds)
        measured = bool(slow.measured) and bool(fast.measured)
        if faster < total and measured and drop > float(slow.error) + float(fast.error):
            return (
                f"A batch of {batch:,} takes {show_time(total)}, longer than one of {other:,} "
                f"({show_time(faster)}). This is in the kernel timings of this GPU, mostly in "
                f"{slow.name} ({show_time(float(slow.seconds))} and "
                f"{show_time(float(fast.seconds))}): its kernels for few rows are the slower ones."
            )
    return None


ESTIMATED = 0.5
"""The share by which activations and reserve may be more or less: weights and the bytes of a token
are counted, these two are estimates. Of nine published sizes six lie within; the others are of
checkpoints with parts that are not counted (vision, drafts) and of a card that shares the memory of
its host."""


def kv_band(memory: Capacity) -> list[float]:
    """The least and the most bytes that the KV cache may have: what comes off for activations and
    reserve is an estimate."""
    apart = ESTIMATED * (memory.activations + memory.reserve)
    most = memory.budget - memory.weights - memory.adapters
    return [max(0.0, memory.kv_cache - apart), max(0.0, min(most, memory.kv_cache + apart))]


def fit_document(d: Deployment, capacity_of: CapacityOf, context: int) -> dict[str, Any]:
    """Whether ``d`` fits with a request of ``context`` tokens, the memory of one GPU in bytes, and
    where it does not fit what would.

    Raises UsageError for a context that the model was not made for.
    """
    check_context(d, context)
    memory = capacity_of(d)
    short = shortage(memory, context)
    remedies = [] if short == 0 else _remedies(d, capacity_of, context)
    return {
        "command": "fit",
        **_subject(d),
        "fits": short == 0,
        "short_bytes": short,
        "memory_bytes": memory.memory,
        "budget_bytes": memory.budget,
        "weight_bytes": memory.weights,
        "activation_bytes": memory.activations,
        "reserve_bytes": memory.reserve,
        **({"adapter_bytes": memory.adapters} if memory.adapters else {}),
        "kv_cache_bytes": memory.kv_cache,
        "kv_cache_bytes_band": kv_band(memory),
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "block_size": memory.block_size,
        "num_gpu_blocks": memory.num_gpu_blocks,
        "kv_cache_tokens": memory.printed_tokens(context),
        "context": context,
        "max_concurrency": memory.max_concurrency(context),
        **({"kv_groups": _groups(memory, context)} if memory.windowed else {}),
        **_states(d, memory),
        **_drafter(d),
        **({"stages": stage_rows(d, memory)} if memory.stages else {}),
        **_swapping(d, memory, context),
        "remedies": remedies,
        "text": _fit_text(d, memory, short, remedies, context),
        "weights": _weights(memory.deciding(d)),
        "layouts": layout_rows(d, capacity_of, context),
        "notes": [
            note
            for note in (d.format_note, published_note(d), *origin_notes(d))
            if note is not None
        ],
    }


def _swapping(d: Deployment, memory: Capacity, context: int) -> dict[str, int | None]:
    """From how many tokens on a preempted request is back sooner from the host than computed again,
    None if never; nothing of what cannot be swapped."""
    if memory.hybrid or memory.stages or memory.usable_blocks == 0:
        return {}
    budget = memory.in_flight // (1 + d.engine.overlapped)
    return {"swap_break_even_tokens": break_even(CostModel(d), memory, budget, context)}


def stage_rows(d: Deployment, memory: Capacity) -> list[dict[str, Any]]:
    """The memory of one GPU in each stage of a pipeline; the stage that ``decides`` has the fewest
    blocks."""
    decides = memory.decides
    return [
        {
            "stage": number + 1,
            "layers": stage.model.num_layers,
            "weight_bytes": own.weights,
            "activation_bytes": own.activations,
            "kv_cache_bytes": own.kv_cache,
            "kv_bytes_per_token": own.kv_bytes_per_token,
            "num_gpu_blocks": own.num_gpu_blocks,
            "decides": number == decides,
        }
        for number, (stage, own) in enumerate(zip(d.stages(), memory.stages, strict=True))
    ]


def _weights(d: Deployment) -> list[dict[str, Any]]:
    """The model's weights on one GPU, part by part, in the order of the model."""
    formats = d.formats
    found: dict[tuple[str, Role], float] = {}
    for each in d.model.weights(d.layout):
        key = each.name, each.role
        found[key] = found.get(key, 0.0) + each.parameters
    parts: list[dict[str, Any]] = [
        {
            "name": name,
            "parameters": parameters,
            "precision": formats[role],
            "bytes": parameters * precision_bytes(formats[role]),
        }
        for (name, role), parameters in found.items()
        if parameters
    ]
    copies = d.model.copies(d.layout)
    if copies:
        name = "copies in another form"
        parts.append({"name": name, "parameters": copies, "precision": "bf16", "bytes": 2 * copies})
    return parts


def _states(d: Deployment, memory: Capacity) -> dict[str, Any]:
    """The memory that a request keeps at any length; empty for models without recurrent layers."""
    if not d.state_bytes():
        return {}
    return {
        "state_bytes": d.state_bytes(),
        "state_blocks": memory.state_blocks,
        "reserved_state_bytes": memory.states,
    }


def _drafter(d: Deployment) -> dict[str, Any]:
    """The drafter, and its share of one GPU's weights and of a token's KV; nothing where nothing
    drafts."""
    if d.speculation is None or d.drafter is None:
        return {}
    return {
        "drafter": {
            "method": d.speculation.method,
            "model": d.drafter.deployment.model.name,
            "weight_bytes": d.drafter.weight_bytes(),
            "kv_bytes_per_token": d.drafter.deployment.kv_bytes_per_token(),
        }
    }


def _groups(memory: Capacity, context: int) -> list[dict[str, Any]]:
    """The groups of layers that have blocks of their own, and how many blocks of each group one
    request of ``context`` tokens takes."""
    return [
        {
            "groups": number,
            "window": None if window is None else window.size,
            "chunked": window is not None and window.chunked,
            "block_size": block,
            "blocks": blocks,
        }
        for (number, window, block), blocks in zip(
            memory.groups, memory.most_at_once(context), strict=True
        )
    ]


def _remedies(d: Deployment, capacity_of: CapacityOf, context: int) -> list[dict[str, Any]]:
    """The smallest larger replica, and the widest narrower weights, with which it would fit."""
    larger = [
        {"tensor_parallel": n}
        for n in GPUS_OF_A_REPLICA
        if n > d.layout.tensor and d.layout.with_tensor(n).gpus <= most_of(d.gpu)
    ]
    own = precision_bytes(d.weights)
    narrower = [{"weights": name} for name in NARROWER if precision_bytes(name) < own]
    groups: tuple[Sequence[Mapping[str, Any]], ...] = (larger, narrower)
    found = []
    for group in groups:
        for change in group:
            try:
                other = _changed(d, **change)
            except ValueError:  # heads that cannot be shared out, activations that do not match
                continue
            if shortage(capacity_of(other), context) == 0:
                found.append(dict(change))
                break
    return found


def _changed(
    d: Deployment, *, tensor_parallel: int | None = None, weights: str | None = None
) -> Deployment:
    """``d`` on other GPUs, or with weights in another precision."""
    layout = d.layout.with_tensor(tensor_parallel) if tensor_parallel else d.layout
    return on_layout(replace(d, weights=weights or d.weights), layout)


def _fit_text(
    d: Deployment,
    memory: Capacity,
    short: float,
    remedies: Sequence[Mapping[str, Any]],
    context: int,
) -> str:
    """Whether it fits, in a sentence, and what would."""
    if short == 0:
        where = " on each data rank" if d.layout.data > 1 else ""
        requests = f"{memory.max_concurrency(context):,.1f} requests of {context:,} tokens"
        return f"Fits, with {requests}{where}."
    what = "Does not fit" if memory.kv_cache <= 0 else f"No request of {context:,} tokens fits"
    words = [
        f"{each['tensor_parallel']} GPUs (--tensor-parallel {each['tensor_parallel']})"
        if "tensor_parallel" in each
        else f"{each['weights']} weights (--weights {each['weights']})"
        for each in remedies
    ]
    would = f"it fits with {', or with '.join(words)}" if words else "take a GPU with more memory"
    lacking = f"{show_bytes(short)} short on each GPU"
    if memory.kv_cache <= 0:
        lacking += f", one request of {context:,} tokens included"
    return f"{what}: {lacking}; {would}."


def check_context(d: Deployment, context: int) -> None:
    """Raise UsageError for a context that the model was not made for."""
    if context > d.model.max_position_embeddings:
        raise UsageError(f"--context {context:,} is more than {d.model.made_for}")
