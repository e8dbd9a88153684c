"""Shows what fits in memory and what bounds each operator as tables: ``fit`` and ``roofline``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sim.cost import Deployment
from sim.memory.capacity import Capacity
from sim.planning.analysis import TILES, check_context, stage_rows
from sim.specs.layers import Attention
from sim.specs.links import host_rate
from sim.specs.recurrent import Recurrent
from sim.specs.window import Window
from sim.units import show_bytes, show_number, show_rate, show_time

MOST_SHOWN = 1e5
"""A column takes the first unit in which its largest number is less."""

Scale = Sequence[tuple[str, float]]

FLOP: Scale = [(f"{p}FLOP", 10.0 ** (3 * i)) for i, p in enumerate(("", "k", "M", "G", "T", "P"))]

BYTES: Scale = [(unit, 2.0 ** (10 * i)) for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]

TIME: Scale = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]

EMPTY = "tiles: a kernel computes whole tiles of rows, and a small batch fills few of them."

SHARING = (
    "Can it be batched? 'weights': read once for the whole batch, so more sequences cost little "
    "until compute binds. 'no, KV': every sequence reads its own cache, a larger batch reads more. "
    "'in part': the experts that a batch touches, more with every sequence until all are. "
    "'no': work that grows with the tokens in the pass."
)


def roofline_view(d: Deployment, found: Mapping[str, Any]) -> Group:
    """``found``, a ``roofline_document`` of ``d``, as tables of at most 88 columns."""
    computed = "" if d.arithmetic == d.weights else f", computed in {d.arithmetic}"
    parts: list[Table | Text] = [
        Text(
            f"{d.model.name} ({_formats(d)}{computed}, {d.kv_cache} KV) on "
            f"{d.layout.gpus} x {d.gpu.name}: {show_rate(found['flops_per_s'], 'FLOP/s')}, "
            f"{show_rate(found['bytes_per_s'], 'B/s')}, "
            f"ridge at {found['ridge_flops_per_byte']:.0f} FLOP per byte"
        )
    ]
    parts.extend(Text(note, style="yellow") for note in found["notes"])
    parts.extend(_operator_table(each) for each in found["passes"])
    if any(row["bound_by"] == TILES for each in found["passes"] for row in each["operators"]):
        parts.append(Text(f"{EMPTY}\n"))
    return Group(*parts, Text(SHARING))


def _formats(d: Deployment) -> str:
    """The precision of the weights, and of the experts where that is another one."""
    experts = d.formats["experts"]
    other = d.model.has_experts and experts != d.weights
    return f"{d.weights} weights{f', experts in {experts}' if other else ''}"


def _operator_table(found: Mapping[str, Any]) -> Table:
    """The operators of one pass; a column has one unit, which its head names."""
    tokens = f"{found['tokens']:,}"
    what = (
        f"Decode, batch {found['batch']:,}, {tokens} tokens of context each"
        if found["phase"] == "decode"
        else f"Prefill, {tokens} tokens"
    )
    title = f"{what}: {show_time(found['seconds'])} a pass"
    if "stages" in found:
        title += f"\nstages: {', '.join(show_time(each) for each in found['stages'])}"
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


def fit_view(d: Deployment, memory: Capacity, context: int, document: Mapping[str, Any]) -> Table:
    """The memory of one GPU, line by line, down to how many requests of ``context`` tokens fit;
    ``document`` is that of the command."""
    check_context(d, context)
    model, count = d.model, d.layout.gpus
    gpus = f"{count} GPU" if count == 1 else f"{count} GPUs"
    what = "memory of one GPU"
    if memory.stages:
        d, count = memory.deciding(d), d.layout.ranks
        what += f", stage {memory.decides + 1}"
    table = Table(title=f"{model.name} on {gpus} of {d.gpu.name}: {what}",
                  title_justify="left", expand=True, show_header=False)  # fmt: skip
    table.add_column("line", ratio=2)
    table.add_column("arithmetic", ratio=4)
    table.add_column("amount", justify="right", no_wrap=True)
    for row in _fit_rows(d, memory, context, document, count):
        table.add_row(*row)
    if document["notes"]:
        table.caption = "\n".join(document["notes"])
    return table


def _fit_rows(
    d: Deployment, memory: Capacity, context: int, document: Mapping[str, Any], count: int
) -> list[tuple[str, str, str]]:
    """Rows of a quantity, its computation and its size; ``count`` GPUs share the weights."""
    weights: Sequence[Mapping[str, Any]] = document["weights"]
    shared = f" / {count}" if count > 1 and not d.model.has_experts else ""
    copied = ""
    if d.model.copies(d.layout):  # of latent attention
        copied = ", some on every GPU, some twice" if count > 1 else ", some twice"
    return [
        ("visible memory", "", show_bytes(memory.memory)),
        (
            "engine's share",
            f"x {memory.utilization:g} {_of_what(memory)}",
            show_bytes(memory.budget),
        ),
        (
            "- weights",
            f"{_parameters(d, memory)} in {_weights(d)}{shared}{copied}",
            show_bytes(memory.weights),
        ),
        *_held(d, weights),
        *_drafting(d),
        ("- activations", "largest pass, and its logits", show_bytes(memory.activations)),
        (
            "- reserve",
            f"context, graphs and buffers of {d.engine.name}",
            show_bytes(memory.reserve),
        ),
        *(
            [("- states", "of max_num_seqs requests", show_bytes(memory.states))]
            if memory.states
            else []
        ),
        ("= KV cache", "", show_bytes(memory.kv_cache)),
        *_kv_of_a_token(d, memory),
        *_block_rows(d, memory, context),
        *_swapping(d, document),
    ]


def _block_rows(d: Deployment, memory: Capacity, context: int) -> list[tuple[str, str, str]]:
    """The blocks of the KV cache, and the requests of ``context`` tokens that they hold."""
    per_block = memory.kv_bytes_per_token * memory.block_size
    return [
        ("KV of one block", f"x {memory.block_size} tokens", show_bytes(per_block)),
        (
            "num_gpu_blocks",
            "as given"
            if memory.given
            else f"{show_bytes(memory.kv_cache)} / {show_bytes(per_block)}",
            f"{memory.num_gpu_blocks:,}",
        ),
        (
            "KV cache size",
            f"in requests of {context:,} tokens"
            if memory.hybrid
            else f"x {memory.block_size} tokens",
            f"{memory.printed_tokens(context):,} tokens",
        ),
        (
            "one request",
            _blocks_arithmetic(memory, context),
            f"{memory.blocks_of(context):,} blocks",
        ),
        (
            "maximum concurrency",
            f"{memory.num_gpu_blocks:,} / {memory.blocks_of(context):,}"
            + (", on each data rank" if d.layout.data > 1 else ""),
            f"{memory.max_concurrency(context):.1f}x",
        ),
    ]


def _swapping(d: Deployment, document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """From which length on a preempted request is back sooner from the host than computed again."""
    if "swap_break_even_tokens" not in document:
        return []
    tokens = document["swap_break_even_tokens"]
    link = f"over {d.gpu.host_link.kind}, {show_rate(host_rate(d.gpu.host_link), 'B/s')} each way"
    says = "at no length" if tokens is None else f"from {tokens:,} tokens on"
    if tokens == 1:
        says = "at any length"
    return [("swap beats recompute", f"{link}, if preempted", says)]


def _parameters(d: Deployment, memory: Capacity) -> str:
    """The parameters of the model, or of the stage of a pipeline that ``d`` is."""
    if not memory.stages:
        return f"{d.model.parameters:,} parameters"
    held = sum(each.parameters for each in d.model.weights())
    return f"{held:,.0f} parameters"


def stages_view(d: Deployment, memory: Capacity) -> Table:
    """The memory of one GPU of each stage of a pipeline."""
    title = "Stages: the one with the fewest blocks decides for all"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("stage", "layers", "weights", "largest\npass", "KV cache", "KV of a\ntoken"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("blocks", justify="right", no_wrap=True)
    amounts = ("weight_bytes", "activation_bytes", "kv_cache_bytes", "kv_bytes_per_token")
    for row in stage_rows(d, memory):
        cells = [
            str(row["stage"]),
            str(row["layers"]),
            *(show_bytes(row[name]) for name in amounts),
        ]
        table.add_row(*cells, f"{row['num_gpu_blocks']:,}", style="bold" if row["decides"] else "")
    return table


def layouts_view(found: Mapping[str, Any]) -> Group:
    """The layouts of ``fit_document``, each in a line, those that cannot be with their reason."""
    title = f"Layouts on a node, {found['context']:,} tokens a request"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layout", no_wrap=True)
    for head in ("GPUs", "weights\na GPU", "largest\npass", "KV cache\na GPU", "blocks\na rank"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("requests\nat once", justify="right")
    for row in found["layouts"]:
        cells = [row["layout"], str(row["gpus"])]
        if row["num_gpu_blocks"] is None:
            cells += ["-"] * 4
        else:
            amounts = ("weight_bytes", "activation_bytes", "kv_cache_bytes")
            cells += [show_bytes(row[name]) for name in amounts]
            cells.append(f"{row['num_gpu_blocks']:,}")
        cells.append(f"{row['max_concurrency']:,.1f}" if row["fits"] else "-")
        table.add_row(*cells, style="" if row["fits"] else "dim")
    reasons = [row for row in found["layouts"] if not row["fits"]]
    return Group(table, *(Text(f"{row['layout']}: {row['reason']}") for row in reasons), Text(TOLD))


TOLD = (
    "TP: GPUs that share each layer. DP: ranks with a scheduler and a KV cache each. EP: whole "
    "experts on each GPU, not a part of each. PP: stages of consecutive layers, which "
    "--pipeline-parallel lists."
)


def _of_what(memory: Capacity) -> str:
    if memory.of_static:
        return "for weights and KV cache, and what comes on top"
    return "of what is free" if memory.of_free else "(gpu_memory_utilization)"


def _held(d: Deployment, weights: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The weights of one GPU part by part, where a model has more than dense layers."""
    if not d.model.has_experts:
        return []
    return [
        (
            f"  {part['name']}",
            f"{part['parameters']:,.0f} in {part['precision']}",
            show_bytes(part["bytes"]),
        )
        for part in weights
    ]


def _kv_of_a_token(d: Deployment, memory: Capacity) -> list[tuple[str, str, str]]:
    """The rows on what a token takes: in all layers, and in one group of them where there are
    several."""
    whole = ("KV of one token", _kv_arithmetic(d), show_bytes(d.kv_bytes_per_token()))
    if d.state_bytes():
        states = ("states of one request", _state_arithmetic(d), show_bytes(d.state_bytes()))
        padded = (f"in {memory.state_blocks} blocks", "one for each group of recurrent layers", "")
        return [whole, states, *([padded] if memory.state_blocks else [])]
    if not memory.windowed:
        return [whole]
    kinds = ", ".join(
        f"{number} {'with everything' if window is None else _window(window)}"
        for number, window, _ in memory.groups
    )
    group = ("in one group of layers", kinds, show_bytes(memory.kv_bytes_per_token))
    return [whole, group]


def _drafting(d: Deployment) -> list[tuple[str, str, str]]:
    """The row on what drafts, which the weights above and the KV below have in them."""
    if d.speculation is None or d.drafter is None:
        return []
    own = d.drafter.deployment
    told = (
        own.model.name if d.speculation.method == "draft_model" else f"{d.speculation.method} layer"
    )
    kv = f"{told}; {show_bytes(own.kv_bytes_per_token())} of KV a token"
    return [("  of them the drafter", kv, show_bytes(d.drafter.weight_bytes()))]


def _window(window: Window) -> str:
    return f"{'in chunks' if window.chunked else 'with a window'} of {window.size:,}"


def _blocks_arithmetic(memory: Capacity, context: int) -> str:
    """The blocks of one request as a sum over the groups of layers."""
    if not memory.windowed:
        states = f" + {memory.state_blocks} of states" if memory.state_blocks else ""
        return f"{context:,} tokens / {memory.block_size}, rounded up{states}"
    pairs = zip(memory.groups, memory.most_at_once(context), strict=True)
    blocks = " + ".join(f"{group.number} x {most:,}" for group, most in pairs)
    return f"{context:,} tokens, {memory.in_flight:,} of them in flight: {blocks}"


def _kv_arithmetic(d: Deployment) -> str:
    """KV bytes of a token as a sum of products, one for each kind of attention."""
    layers: Counter[Attention] = Counter()
    for group in d.model.layers:
        layers[group.attention] += group.count
    terms = (kind.kv_arithmetic(count, d.kv_cache, d.layout) for kind, count in layers.items())
    return " + ".join(term for term in terms if term)


def _state_arithmetic(d: Deployment) -> str:
    """The bytes of a sequence's states as a sum of products, one for each kind of layer."""
    kinds = [(group.count, group.attention) for group in d.model.layers]
    return " + ".join(
        kind.state_arithmetic(count, d.layout)
        for count, kind in kinds
        if isinstance(kind, Recurrent)
    )


def _weights(d: Deployment) -> str:
    """The precisions of the weights: engines quantise neither embedding nor LM head."""
    experts = d.formats["experts"]
    differ = d.model.has_experts and experts != d.weights
    weights = f"{d.weights}, experts in {experts}" if differ else d.weights
    vocabulary = d.weight_precision_of_vocabulary
    if vocabulary == d.weights:
        return weights
    return f"{weights}, embedding and LM head in {vocabulary}"
