"""Two questions that need no simulation: what fits in memory, and what binds each operator?"""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sim.capacity import Capacity
from sim.cost import CostModel, Deployment, Operator
from sim.errors import UsageError
from sim.plans import Chunk
from sim.request import Request
from sim.units import show_bytes, show_rate, show_time


def roofline_view(d: Deployment, batches: list[int], context: int, prompt: int) -> Group:
    """Every operator of a decode pass at each batch size, and of the prefill of one prompt.

    ``context`` is the tokens that each decoding sequence holds, ``prompt`` the length prefilled.
    """
    cost = CostModel(d)
    gpu = d.gpu
    computed = "" if d.arithmetic == d.weights else f", computed in {d.arithmetic}"
    parts: list[Table | Text] = [
        Text(
            f"{d.model.name} ({d.weights} weights{computed}, {d.kv_cache} KV) on "
            f"{d.tensor_parallel} x {gpu.name}: "
            f"{show_rate(gpu.flops(d.arithmetic), 'FLOP/s')}, {show_rate(gpu.bandwidth, 'B/s')}, "
            f"ridge at {gpu.flops(d.arithmetic) / gpu.bandwidth:.0f} FLOP per byte"
        )
    ]
    if d.format_note is not None:
        parts.append(Text(d.format_note, style="yellow"))
    for batch in batches:
        title = f"Decode, batch {batch}, {context:,} tokens of context each"
        parts.append(_operator_table(title, cost.pass_operators(batch, batch * context, [])))
    chunk = Chunk(Request(0, 0.0, prompt, 1), prompt, 0)
    parts.append(_operator_table(f"Prefill, {prompt:,} tokens", cost.pass_operators(0, 0, [chunk])))
    parts.append(
        Text(
            "Can it be batched? 'weights': read once for the whole batch, so more sequences cost "
            "little until compute binds. 'no, KV': every sequence reads its own cache, a larger "
            "batch reads more. 'no': work that grows with the tokens in the pass."
        )
    )
    return Group(*parts)


def _operator_table(title: str, operators: list[Operator]) -> Table:
    total = sum(float(o.seconds) for o in operators)
    table = Table(title=f"{title}: {show_time(total)} a pass", title_justify="left", expand=True)
    table.add_column("operator", no_wrap=True)
    for name in ("FLOP", "bytes", "FLOP/B", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("shared", no_wrap=True)
    for o in operators:
        flops, traffic = float(o.flops), float(o.bytes)
        table.add_row(
            o.name,
            show_rate(flops, "") if flops else "-",
            show_bytes(traffic),
            f"{flops / traffic:.3g}" if flops else "-",
            show_time(float(o.seconds)),
            o.bound,
            _sharing(o),
        )
    return table


def _sharing(o: Operator) -> str:
    if "attention" in o.name:
        return "no, KV"
    return "weights" if o.per_batch else "no"


def fit_view(d: Deployment, memory: Capacity, context: int) -> Table:
    """The memory of one GPU, line by line, down to how many requests of ``context`` tokens fit."""
    model, tp = d.model, d.tensor_parallel
    if context > model.max_position_embeddings:
        raise UsageError(
            f"--context {context:,} is more than the {model.max_position_embeddings:,} tokens that "
            f"{model.name} was made for"
        )
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
            f"{model.parameters:,} parameters in {d.weights}{shared}",
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
