"""Computes, without a simulation, what fits in the memory of GPUs, in which layouts of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.catalog.published import origin_notes, published_note
from sim.cost import CostModel, Deployment
from sim.host_memory import break_even
from sim.memory.capacity import Capacity
from sim.planning.rooflines import subject
from sim.specs.drafter import on_layout
from sim.specs.gpu import GpuSpec
from sim.specs.layers import Role
from sim.specs.layout import Layout
from sim.specs.precision import precision_bytes
from sim.units import show_bytes

MOST_GPUS = 8
"""GPUs of the largest layout that is listed, however many a node has."""

CapacityOf = Callable[[Deployment], Capacity]
"""The memory arithmetic of a deployment under settings that are decided."""


def node_layouts(
    *, experts: bool, most: int = MOST_GPUS, pipelines: bool = False
) -> Iterator[Layout]:
    """Every layout of 1, 2, 4, ... GPUs up to ``most``: tensor ranks, and for models with
    ``experts`` data ranks and experts that are cut or whole; as engines start, by powers of two.
    With ``pipelines``, stages of tensor ranks in the place of data ranks.

    >>> [layout.text for layout in node_layouts(experts=True, most=2)]
    ['TP 1', 'TP 2', 'TP 2, EP', 'DP 2', 'DP 2, EP']
    >>> [layout.text for layout in node_layouts(experts=False)]
    ['TP 1', 'TP 2', 'TP 4', 'TP 8']
    >>> [layout.text for layout in node_layouts(experts=False, most=4, pipelines=True)]
    ['TP 1', 'TP 2', 'PP 2', 'TP 4', 'TP 2 x PP 2', 'PP 4']
    """
    gpus = 1
    while gpus <= most:
        tensor = gpus
        while tensor >= 1:
            data = gpus // tensor
            if pipelines:
                yield Layout(tensor, data)
                if experts and tensor > 1:
                    yield Layout(tensor, data, expert=tensor)
            elif data == 1 or experts:
                yield Layout(tensor, data=data)
                if experts and gpus > 1:
                    yield Layout(tensor, data=data, expert=gpus)
            tensor //= 2
        gpus *= 2


def most_of(gpu: GpuSpec) -> int:
    """GPUs of the largest replica that is proposed: those of a node, up to ``MOST``."""
    return min(gpu.node.gpus or MOST_GPUS, MOST_GPUS)


def layout_rows(d: Deployment, capacity_of: CapacityOf, context: int) -> list[dict[str, Any]]:
    """The memory of each layout of ``d`` on a node for requests of ``context`` tokens.

    Bytes and blocks are of one GPU, ``kv_cache_tokens`` and ``max_concurrency`` of the replica.
    ``reason`` says why one does not fit or cannot be; amounts are None where it cannot be.
    """
    rows = []
    piped = d.layout.pipeline > 1
    for layout in node_layouts(experts=d.model.has_experts, most=most_of(d.gpu), pipelines=piped):
        head = {
            "layout": layout.text,
            "gpus": layout.gpus,
            "tensor_parallel": layout.tensor,
            "pipeline_parallel": layout.pipeline,
            "data_parallel": layout.data,
            "expert_parallel": layout.expert,
        }
        try:
            memory = capacity_of(on_layout(d, layout))
        except ValueError as error:
            rows.append(head | dict.fromkeys(_AMOUNTS) | {"fits": False, "reason": str(error)})
            continue
        short = shortage(memory, context)
        amounts = (
            memory.weights,
            memory.activations,
            memory.kv_cache,
            memory.kv_bytes_per_token,
            memory.num_gpu_blocks,
            memory.printed_tokens(context) * layout.data,
            memory.max_concurrency(context) * layout.data,
        )
        reason = None if short == 0 else f"{show_bytes(short)} short on each GPU"
        found = head | dict(zip(_AMOUNTS, amounts, strict=True))
        rows.append(found | {"fits": short == 0, "reason": reason})
    return rows


_AMOUNTS = (
    *("weight_bytes", "activation_bytes", "kv_cache_bytes", "kv_bytes_per_token"),
    *("num_gpu_blocks", "kv_cache_tokens", "max_concurrency"),
)


def shortage(memory: Capacity, context: int) -> float:
    """Bytes of each GPU that are missing for one request of ``context`` tokens; 0: it fits."""
    blocks = memory.blocks_of(context)
    if memory.usable_blocks >= blocks:
        return 0.0
    needed = (blocks + memory.null_blocks) * memory.block_size * memory.kv_bytes_per_token
    return needed - memory.kv_cache


GPUS_OF_A_REPLICA = (1, 2, 4, 8)
"""Tensor-parallel GPUs that are tried where a model does not fit, within a node."""

NARROWER = ("fp8", "int8", "int4")
"""Precisions of weights that are tried where a model does not fit."""

ESTIMATED = 0.5
"""The share by which activations and reserve may be more or less: weights and the bytes of a token
are counted, these two are estimates. Of nine published sizes six lie within; the others are of
checkpoints with parts that are not counted (vision, drafts) and of a card that shares the memory of
its host."""


MORE = 1.1
"""By what factor more requests have to fit when they decode for that to be said."""


def kv_band(memory: Capacity) -> list[float]:
    """The least and the most bytes that the KV cache may have: what comes off for activations and
    reserve is an estimate."""
    apart = ESTIMATED * (memory.activations + memory.reserve)
    most = memory.budget - memory.weights - memory.adapters
    return [max(0.0, memory.kv_cache - apart), max(0.0, min(most, memory.kv_cache + apart))]


def fit_document(d: Deployment, capacity_of: CapacityOf, context: int) -> dict[str, Any]:
    """Whether ``d`` fits with a request of ``context`` tokens, the memory of one GPU in bytes, and
    where it does not fit what would.
    """
    memory = capacity_of(d)
    short = shortage(memory, context)
    remedies = [] if short == 0 else _remedies(d, capacity_of, context)
    return {
        "command": "fit",
        **subject(d),
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
        **_longest(d, memory),
        "max_concurrency": memory.max_concurrency(context),
        "decoding_concurrency": memory.decoding(context),
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
            for note in (beyond(d, context), d.format_note, published_note(d), *origin_notes(d))
            if note is not None
        ],
    }


def _longest(d: Deployment, memory: Capacity) -> dict[str, Any]:
    """The tokens of the longest request that can be served, and whether ``memory`` or the limit of
    the ``model`` bounds it."""
    limit, held = d.model.max_position_embeddings, memory.longest
    bound = "memory" if held < limit else "model"
    return {"longest_context": min(held, limit), "longest_context_bound": bound}


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
    found, limit = _longest(d, memory), d.model.max_position_embeddings
    tokens = f"{found['longest_context']:,} tokens"
    whose = "the model's limit"
    if found["longest_context_bound"] == "memory":
        whose = f"all that memory holds; {whose} is {limit:,}"
    elif d.model.assumed_context:
        whose = "what transformers takes by default where config.json gives no limit"
    if short == 0:
        where = " on each data rank" if d.layout.data > 1 else ""
        first, decoding = memory.max_concurrency(context), memory.decoding(context)
        apart = decoding > MORE * first
        either = " if all are in their prompts (as engines count)"
        either = f"{either}, {decoding:,.0f} if all decode" if apart else ""
        return (
            f"Fits: one request can have up to {tokens} ({whose}); at once{where} "
            f"{first:,.1f} requests of {context:,} tokens{either}."
        )
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
    elif found["longest_context"]:
        would += f"; a request of up to {tokens} fits as it is"
    return f"{what}: {lacking}; {would}."


def beyond(d: Deployment, context: int) -> str | None:
    """The note on a context that the model was not made for."""
    if context <= d.model.max_position_embeddings:
        return None
    return (
        f"{context:,} tokens are more than {d.model.made_for}; a scenario takes them with "
        "allow_long_max_model_len: true."
    )
