"""Analyses without simulating what fits in memory, and what bounds each operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sim.capacity import Capacity
from sim.cost import CostModel, Deployment, Operator
from sim.errors import UsageError
from sim.model import precision_bytes
from sim.plans import Chunk
from sim.request import Request
from sim.units import show_bytes, show_number, show_rate, show_time

SMALL = (2, 4, 8, 16, 32, 64)
"""Batches with which a smaller one is compared: kernels for few rows differ from those for many."""

GPUS_OF_A_REPLICA = (1, 2, 4, 8, 16)
"""Sizes of a replica that are tried where a model does not fit: a node, and two."""

NARROWER = ("fp8", "int8", "int4")
"""Precisions of weights that are tried where a model does not fit."""

MOST_SHOWN = 1e5
"""A column takes the first unit in which its largest number is less."""

Scale = Sequence[tuple[str, float]]

FLOP: Scale = [(f"{p}FLOP", 10.0 ** (3 * i)) for i, p in enumerate(("", "k", "M", "G", "T", "P"))]
BYTES: Scale = [(unit, 2.0 ** (10 * i)) for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]
TIME: Scale = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]

SHARING = (
    "Can it be batched? 'weights': read once for the whole batch, so more sequences cost little "
    "until compute binds. 'no, KV': every sequence reads its own cache, a larger batch reads more. "
    "'no': work that grows with the tokens in the pass."
)


def roofline_document(
    d: Deployment, batches: Sequence[int], context: int, prompt: int
) -> dict[str, Any]:
    """Every operator of a decode pass at each batch size, and of the prefill of one prompt.

    ``context`` is the tokens that each decoding sequence holds, ``prompt`` the length prefilled.
    FLOP, bytes and seconds are of one GPU and one pass.
    """
    cost = CostModel(d)
    passes = [
        _pass("decode", batch, context, cost.pass_operators(batch, batch * context, []))
        for batch in batches
    ]
    chunk = Chunk(Request(0, 0.0, prompt, 1), prompt, 0)
    passes.append(_pass("prefill", 1, prompt, cost.pass_operators(0, 0, [chunk])))
    notes = [d.format_note, *(_slow_batch(cost, batch, context) for batch in batches)]
    return {
        "command": "roofline",
        **_subject(d),
        "flops_per_s": d.gpu.flops(d.arithmetic),
        "bytes_per_s": d.gpu.bandwidth,
        "ridge_flops_per_byte": d.gpu.flops(d.arithmetic) / d.gpu.bandwidth,
        "passes": passes,
        "notes": [note for note in notes if note],
    }


def _subject(d: Deployment) -> dict[str, Any]:
    """What an answer describes: model, GPUs, engine and precision."""
    return {
        "model": d.model.name,
        "gpu": d.gpu.name,
        "tensor_parallel": d.tensor_parallel,
        "precision": {
            "weights": d.weights,
            "activations": d.activations,
            "kv_cache": d.kv_cache,
            "computed": d.arithmetic,
        },
    }


def _pass(phase: str, batch: int, tokens: int, operators: Sequence[Operator]) -> dict[str, Any]:
    return {
        "phase": phase,
        "batch": batch,
        "tokens": tokens,
        "seconds": sum(float(o.seconds) for o in operators),
        "operators": [
            {
                "name": o.name,
                "flops": float(o.flops),
                "bytes": float(o.bytes),
                "seconds": float(o.seconds),
                "bound_by": o.bound,
                "shared": _sharing(o),
            }
            for o in operators
        ],
    }


def _sharing(o: Operator) -> str:
    if "attention" in o.name:
        return "no, KV"
    return "weights" if o.per_batch else "no"


def _slow_batch(cost: CostModel, batch: int, context: int) -> str | None:
    """Why a decode pass takes longer than one of a larger batch, where measured kernels do: by more
    than they are off; None where it does not, or the kernels were not measured."""
    mine = cost.pass_operators(batch, batch * context, [])
    total = sum(float(o.seconds) for o in mine)
    for other in SMALL:
        if other <= batch:
            continue
        theirs = cost.pass_operators(other, other * context, [])
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


def roofline_view(d: Deployment, batches: Sequence[int], context: int, prompt: int) -> Group:
    """``roofline_document`` as tables of at most 88 columns."""
    found = roofline_document(d, batches, context, prompt)
    computed = "" if d.arithmetic == d.weights else f", computed in {d.arithmetic}"
    parts: list[Table | Text] = [
        Text(
            f"{d.model.name} ({d.weights} weights{computed}, {d.kv_cache} KV) on "
            f"{d.tensor_parallel} x {d.gpu.name}: {show_rate(found['flops_per_s'], 'FLOP/s')}, "
            f"{show_rate(found['bytes_per_s'], 'B/s')}, "
            f"ridge at {found['ridge_flops_per_byte']:.0f} FLOP per byte"
        )
    ]
    parts.extend(Text(note, style="yellow") for note in found["notes"])
    parts.extend(_operator_table(each) for each in found["passes"])
    return Group(*parts, Text(SHARING))


def _operator_table(found: Mapping[str, Any]) -> Table:
    """The operators of one pass; a column has one unit, which its head names."""
    tokens = f"{found['tokens']:,}"
    what = (
        f"Decode, batch {found['batch']:,}, {tokens} tokens of context each"
        if found["phase"] == "decode"
        else f"Prefill, {tokens} tokens"
    )
    title = f"{what}: {show_time(found['seconds'])} a pass"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("operator")
    rows = found["operators"]
    scales = {"flops": FLOP, "bytes": BYTES, "seconds": TIME}
    units = {name: _unit([row[name] for row in rows], scale) for name, scale in scales.items()}
    flop, size, time = (units[name][0] for name in scales)
    for head in (f"work\n{flop}", f"traffic\n{size}", "FLOP\nper byte", f"time\n{time}"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("shared", no_wrap=True)
    for row in rows:
        table.add_row(
            row["name"],
            _cell(row["flops"], units["flops"]),
            _cell(row["bytes"], units["bytes"]),
            show_number(row["flops"] / row["bytes"]) if row["flops"] else "-",
            _cell(row["seconds"], units["seconds"]),
            row["bound_by"],
            row["shared"],
        )
    return table


def _unit(values: Sequence[float], scale: Scale) -> tuple[str, float]:
    """The unit of a column."""
    largest = max(values)
    return next((unit for unit in scale if largest < MOST_SHOWN * unit[1]), scale[-1])


def _cell(value: float, unit: tuple[str, float]) -> str:
    return show_number(value / unit[1]) if value else "-"


CapacityOf = Callable[[Deployment], Capacity]
"""The memory arithmetic of a deployment under settings that are decided."""


def fit_document(d: Deployment, capacity_of: CapacityOf, context: int) -> dict[str, Any]:
    """Whether ``d`` fits with a request of ``context`` tokens, the memory of one GPU in bytes, and
    where it does not fit what would.

    Raises UsageError for a context that the model was not made for.
    """
    _check_context(d, context)
    memory = capacity_of(d)
    short = _shortage(memory, context)
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
        "kv_cache_bytes": memory.kv_cache,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "block_size": memory.block_size,
        "num_gpu_blocks": memory.num_gpu_blocks,
        "kv_cache_tokens": memory.tokens,
        "context": context,
        "max_concurrency": memory.max_concurrency(context),
        "remedies": remedies,
        "text": _fit_text(memory, short, remedies, context),
        "notes": [] if d.format_note is None else [d.format_note],
    }


def _shortage(memory: Capacity, context: int) -> float:
    """Bytes of each GPU that are missing for one request of ``context`` tokens; 0: it fits."""
    blocks = -(-context // memory.block_size)
    if memory.usable_blocks >= blocks:
        return 0.0
    needed = (blocks + memory.null_blocks) * memory.block_size * memory.kv_bytes_per_token
    return needed - memory.kv_cache


def _remedies(d: Deployment, capacity_of: CapacityOf, context: int) -> list[dict[str, Any]]:
    """The smallest larger replica, and the widest narrower weights, with which it would fit."""
    larger = [(n, {"tensor_parallel": n}) for n in GPUS_OF_A_REPLICA if n > d.tensor_parallel]
    own = precision_bytes(d.weights)
    narrower = [(0, {"weights": name}) for name in NARROWER if precision_bytes(name) < own]
    found = []
    for group in (larger, narrower):
        for _, change in group:
            try:
                other = replace(d, **change)
            except ValueError:  # heads that cannot be shared out, activations that do not match
                continue
            if _shortage(capacity_of(other), context) == 0:
                found.append(change)
                break
    return found


def _fit_text(
    memory: Capacity, short: float, remedies: Sequence[Mapping[str, Any]], context: int
) -> str:
    """Whether it fits, in a sentence, and what would."""
    if short == 0:
        return f"Fits, with {memory.max_concurrency(context):,.1f} requests of {context:,} tokens."
    what = "Does not fit" if memory.kv_cache <= 0 else f"No request of {context:,} tokens fits"
    lacking = -memory.kv_cache if memory.kv_cache <= 0 else short
    words = [
        f"{each['tensor_parallel']} GPUs (--tensor-parallel {each['tensor_parallel']})"
        if "tensor_parallel" in each
        else f"{each['weights']} weights (--weights {each['weights']})"
        for each in remedies
    ]
    would = f"it fits with {', or with '.join(words)}" if words else "take a GPU with more memory"
    return f"{what}: {show_bytes(lacking)} short on each GPU; {would}."


def _check_context(d: Deployment, context: int) -> None:
    if context > d.model.max_position_embeddings:
        raise UsageError(
            f"--context {context:,} is more than the {d.model.max_position_embeddings:,} tokens "
            f"that {d.model.name} was made for"
        )


def fit_view(d: Deployment, memory: Capacity, context: int) -> Table:
    """The memory of one GPU, line by line, down to how many requests of ``context`` tokens fit."""
    _check_context(d, context)
    model, tp = d.model, d.tensor_parallel
    gpus = f"{tp} GPU" if tp == 1 else f"{tp} GPUs"
    table = Table(title=f"{model.name} on {gpus} of {d.gpu.name}: memory of one GPU",
                  title_justify="left", expand=True, show_header=False)  # fmt: skip
    table.add_column("line", ratio=2)
    table.add_column("arithmetic", ratio=4)
    table.add_column("amount", justify="right", no_wrap=True)
    shared = f" / {tp}" if tp > 1 else ""
    heads = max(1, model.num_kv_heads // tp)
    per_block = memory.kv_bytes_per_token * memory.block_size
    bytes_each = memory.kv_bytes_per_token / (2 * model.num_layers * heads * model.head_dim)
    rows = [
        ("visible memory", "", show_bytes(memory.memory)),
        (
            "engine's share",
            f"x {memory.utilization:g} "
            + ("of what is free" if memory.of_free else "(gpu_memory_utilization)"),
            show_bytes(memory.budget),
        ),
        (
            "- weights",
            f"{model.parameters:,} parameters in {_weights(d)}{shared}",
            show_bytes(memory.weights),
        ),
        ("- activations", "largest pass, and its logits", show_bytes(memory.activations)),
        (
            "- reserve",
            f"context, graphs and buffers of {d.engine.name}",
            show_bytes(memory.reserve),
        ),
        ("= KV cache", "", show_bytes(memory.kv_cache)),
        (
            "KV of one token",
            f"2 (K, V) x {model.num_layers} layers x {heads} heads x {model.head_dim} x "
            f"{bytes_each:g} B",
            show_bytes(memory.kv_bytes_per_token),
        ),
        ("KV of one block", f"x {memory.block_size} tokens", show_bytes(per_block)),
        (
            "num_gpu_blocks",
            "as given"
            if memory.given
            else f"{show_bytes(memory.kv_cache)} / {show_bytes(per_block)}",
            f"{memory.num_gpu_blocks:,}",
        ),
        ("KV cache size", f"x {memory.block_size} tokens", f"{memory.tokens:,} tokens"),
        (
            "one request",
            f"{context:,} tokens / {memory.block_size}, rounded up",
            f"{-(-context // memory.block_size):,} blocks",
        ),
        (
            "maximum concurrency",
            f"{memory.num_gpu_blocks:,} / {-(-context // memory.block_size):,}",
            f"{memory.max_concurrency(context):.1f}x",
        ),
    ]
    for row in rows:
        table.add_row(*row)
    if d.format_note is not None:
        table.caption = d.format_note
    return table


def _weights(d: Deployment) -> str:
    """The precisions of the weights: engines quantise neither embedding nor LM head."""
    vocabulary = d.weight_precision_of_vocabulary
    if vocabulary == d.weights:
        return d.weights
    return f"{d.weights}, embedding and LM head in {vocabulary}"
