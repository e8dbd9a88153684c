"""Lays out the answer of ``infersim fit``: the memory of a GPU, and the layouts on a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sim.cost import Deployment
from sim.findings import Column, Lines, Part, Table
from sim.memory.capacity import Capacity
from sim.planning.answers.cells import Document, toned
from sim.planning.fits import MORE, stage_rows
from sim.specs.layers import Attention
from sim.specs.links import host_rate
from sim.specs.recurrent import Recurrent
from sim.specs.window import Window
from sim.units import show_bytes, show_number, show_rate

Row = tuple[str, str, str]
"""A quantity, its computation and its size."""

HELD = ("weight_bytes", "activation_bytes", "kv_cache_bytes")

LAYOUTS = (
    "TP: GPUs that share each layer. DP: ranks with a scheduler and a KV cache each. EP: whole "
    "experts on each GPU, not a part of each. PP: stages of consecutive layers, which "
    "--pipeline-parallel lists."
)


def parts(d: Deployment, memory: Capacity, context: int, document: Document) -> Iterator[Part]:
    """Whether it fits, then the memory of one GPU, of each stage of a pipeline, and other layouts;
    ``document`` is that of the command."""
    yield _answer(d, memory, document)
    yield memory_table(d, memory, context, document)
    if memory.stages:
        yield _stages(d, memory)
    yield from _layouts(document)


def first_parts(
    d: Deployment, memory: Capacity, context: int, document: Document
) -> Iterator[Part]:
    """The first lines of ``parts``: whether it fits, and the memory of one GPU in a line."""
    yield _answer(d, memory, document)
    yield Lines((*_in_a_line(d, memory, document), *_data_ranks(d, document)), "")
    yield Lines(tuple(document["notes"]))


def _answer(d: Deployment, memory: Capacity, document: Document) -> Lines:
    """Whether it fits, and why requests in their prompts take more where they do."""
    told = [document["text"]]
    if document["fits"] and document["decoding_concurrency"] > MORE * document["max_concurrency"]:
        told.append(
            "A request in its prompt takes more: layers with windows or compressed KV keep all "
            f"that a pass computes of it (up to {memory.in_flight:,} tokens), and later only what "
            "their windows show."
        )
    return Lines(tuple(told), "" if document["fits"] else "bad")


def _in_a_line(d: Deployment, memory: Capacity, document: Document) -> Iterator[str]:
    """The subject, and the memory of one of its GPUs, of a pipeline in the stage that decides."""
    stage = f" in stage {memory.decides + 1}" if memory.stages else ""
    each = f"Each GPU{stage}" if d.layout.split == 1 else "All GPUs, which work in turn"
    gpus = f" ({d.layout.text})" if d.layout.gpus > 1 else ""
    formats = _weights(memory.deciding(d))
    low, high = document["kv_cache_bytes_band"]
    parts = {
        "weights": memory.weights,
        "activations": memory.activations,
        "reserve": memory.reserve,
        "adapters": memory.adapters,
        "states": memory.states,
    }
    told = [f"{show_number(held / GIB)} {name}" for name, held in parts.items() if held]
    band = f" (give or take {show_number((high - low) / 2 / GIB)})" if high > low else ""
    yield (
        f"{d.model.name} ({formats}, {d.kv_cache} KV) on {d.layout.gpus} x {d.gpu.name}{gpus}, "
        f"{d.engine.name}."
    )
    yield (
        f"{each}: {show_bytes(memory.budget)} the engine may use: {', '.join(told)}, "
        f"{show_number(memory.kv_cache / GIB)} KV cache{band}."
    )
    if not memory.num_gpu_blocks:
        return
    size = memory.block_size
    blocks = f"{memory.num_gpu_blocks:,} blocks of {size} tokens, {memory.tokens:,} tokens"
    if memory.hybrid:  # each group of layers has blocks of its own
        whole = show_bytes(size * memory.kv_bytes_per_token)
        blocks = f"{memory.num_gpu_blocks:,} blocks of {whole}"
    token = f"{show_bytes(d.kv_bytes_per_token())} a token"
    if memory.windowed and not memory.stages and d.drafter is None:
        context = document["context"]
        held = show_bytes(d.model.kv_bytes_of(context, d.kv_cache, d.layout))
        taken = show_bytes(memory.decoding_blocks(context) * size * memory.kv_bytes_per_token)
        token += f" in all windows, {held} for a decoding request of {context:,}"
        token += f" ({taken} in whole blocks)"
    yield f"KV cache: {token}; {blocks}."


GIB = 2.0**30

CLEARLY = 1.5
"""By what factor data ranks have to hold more requests for that to be said."""


def _data_ranks(d: Deployment, document: Document) -> Iterator[str]:
    """That data ranks of the same GPUs would hold clearly more, where tensor ranks keep copies."""
    held = document["max_concurrency"] * d.layout.data
    others = [
        row
        for row in document["layouts"]
        if row["fits"]
        and row["gpus"] == d.layout.gpus
        and row["data_parallel"] > d.layout.data
        and (row["expert_parallel"] > 1) == (d.layout.expert > 1)
    ]
    best = max(others, key=lambda row: row["max_concurrency"], default=None)
    if best is not None and best["max_concurrency"] > CLEARLY * held:
        more = best["max_concurrency"] / held
        yield (
            f"As {best['layout']} the same GPUs hold {best['max_concurrency']:,.1f} such requests, "
            f"{show_number(more)} times as many: tensor ranks keep copies of the KV cache."
        )


def memory_table(d: Deployment, memory: Capacity, context: int, document: Document) -> Table:
    """The memory of one GPU, line by line, down to how many requests of ``context`` tokens fit."""
    model, count = d.model, d.layout.gpus
    gpus = f"{count} GPU" if count == 1 else f"{count} GPUs"
    what = "memory of one GPU" if d.layout.split == 1 else "memory of all, which work in turn"
    if memory.stages:
        d, count = memory.deciding(d), d.layout.ranks
        what += f", stage {memory.decides + 1}"
    columns = Column("", False, prose=True, fold=2), Column("", False, prose=True, fold=4)
    return Table(
        "memory",
        f"{model.name} on {gpus} of {d.gpu.name}: {what}",
        (*columns, Column("")),
        tuple(
            toned(row, "") for row in _rows(d, memory, context, document, count // d.layout.split)
        ),
        look="framed",
        note="\n".join(document["notes"]),
    )


def _stages(d: Deployment, memory: Capacity) -> Table:
    """The memory of one GPU of each stage of a pipeline."""
    heads = ("stage", "layers", "weights", "largest\npass", "KV cache", "KV of a\ntoken", "blocks")
    rows = [
        toned(
            (
                str(row["stage"]),
                str(row["layers"]),
                *(show_bytes(row[name]) for name in (*HELD, "kv_bytes_per_token")),
                f"{row['num_gpu_blocks']:,}",
            ),
            "strong" if row["decides"] else "",
        )
        for row in stage_rows(d, memory)
    ]
    caption = "Stages: the one with the fewest blocks decides for all"
    return Table("stages", f"\n{caption}", tuple(map(Column, heads)), tuple(rows), look="compact")


def _layouts(document: Document) -> Iterator[Part]:
    """The layouts of a node, each in a line, those that cannot be with their reason."""
    heads = ("GPUs", "weights\na GPU", "largest\npass", "KV cache\na GPU", "blocks\na rank")
    last = Column("requests\nat once", prose=True)
    rows = []
    for row in document["layouts"]:
        known = row["num_gpu_blocks"] is not None
        held = [show_bytes(row[name]) for name in HELD] if known else ["-"] * len(HELD)
        blocks = f"{row['num_gpu_blocks']:,}" if known else "-"
        at_once = f"{row['max_concurrency']:,.1f}" if row["fits"] else "-"
        cells = (row["layout"], str(row["gpus"]), *held, blocks, at_once)
        rows.append(toned(cells, "" if row["fits"] else "none"))
    columns = (Column("layout", False), *map(Column, heads), last)
    caption = f"Layouts on a node, {document['context']:,} tokens a request"
    yield Table("layouts", f"\n{caption}", columns, tuple(rows), look="compact")
    reasons = [row for row in document["layouts"] if not row["fits"]]
    yield Lines((*(f"{row['layout']}: {row['reason']}" for row in reasons), LAYOUTS), "")


def _rows(
    d: Deployment, memory: Capacity, context: int, document: Document, count: int
) -> Iterator[Row]:
    """Rows of a quantity, its computation and its size; ``count`` GPUs share the weights."""
    shared = f" / {count}" if count > 1 and not d.model.has_experts else ""
    copied = ""
    if d.model.copies(d.layout):  # of latent attention
        copied = ", some on every GPU, some twice" if count > 1 else ", some twice"
    weights = f"{_parameters(d, memory)} in {_weights(d)}{shared}{copied}"
    used = f"x {memory.utilization:g} {_of_what(memory)}"
    yield "visible memory", "", show_bytes(memory.memory)
    yield "engine's share", used, show_bytes(memory.budget)
    yield "- weights", weights, show_bytes(memory.weights)
    for part in document["weights"] if d.model.has_experts else ():
        what = f"{part['parameters']:,.0f} in {part['precision']}"
        yield f"  {part['name']}", what, show_bytes(part["bytes"])
    yield from _drafting(d)
    yield "- activations", "largest pass, and its logits", show_bytes(memory.activations)
    reserve = f"context, graphs and buffers of {d.engine.name}"
    yield "- reserve", reserve, show_bytes(memory.reserve)
    if d.lora is not None:
        slots = f"{d.lora.max_loras} slots of rank {d.lora.rank}"
        yield "- adapters", slots, show_bytes(memory.adapters)
    if memory.states:
        yield "- states", "of max_num_seqs requests", show_bytes(memory.states)
    yield "= KV cache", "", show_bytes(memory.kv_cache)
    low, high = document["kv_cache_bytes_band"]
    if high > low:
        what = "activations and reserve are estimates"
        yield "  give or take", what, show_bytes((high - low) / 2)
    yield from _kv_of_a_token(d, memory)
    yield from _blocks(d, memory, context)
    yield from _swapping(d, document)


def _blocks(d: Deployment, memory: Capacity, context: int) -> Iterator[Row]:
    """The blocks of the KV cache, and the requests of ``context`` tokens that they hold."""
    block, number = f"x {memory.block_size} tokens", f"{memory.num_gpu_blocks:,}"
    each = show_bytes(memory.kv_bytes_per_token * memory.block_size)
    counted = "as given" if memory.given else f"{show_bytes(memory.kv_cache)} / {each}"
    size = f"in requests of {context:,} tokens" if memory.hybrid else block
    blocks, ranks = memory.blocks_of(context), ", on each data rank" * (d.layout.data > 1)
    most = f"{memory.max_concurrency(context):.1f}x"
    yield "KV of one block", block, each
    yield "num_gpu_blocks", counted, number
    yield "KV cache size", size, f"{memory.printed_tokens(context):,} tokens"
    yield "one request", _blocks_arithmetic(memory, context), f"{blocks:,} blocks"
    yield "maximum concurrency", f"{number} / {blocks:,}{ranks}", most


def _swapping(d: Deployment, document: Document) -> Iterator[Row]:
    """From which length on a preempted request is back sooner from the host than computed again."""
    if "swap_break_even_tokens" in document:
        tokens, host = document["swap_break_even_tokens"], d.gpu.host_link
        link = f"over {host.kind}, {show_rate(host_rate(host), 'B/s')} each way, if preempted"
        says = "at no length" if tokens is None else f"from {tokens:,} tokens on"
        yield "swap beats recompute", link, "at any length" if tokens == 1 else says


def _parameters(d: Deployment, memory: Capacity) -> str:
    """The parameters of the model, or of the stage of a pipeline that ``d`` is."""
    if not memory.stages:
        return f"{d.model.parameters:,} parameters"
    held = sum(each.parameters for each in d.model.weights())
    return f"{held:,.0f} parameters"


def _of_what(memory: Capacity) -> str:
    if memory.of_static:
        return "for weights and KV cache, and what comes on top"
    return "of what is free" if memory.of_free else "(gpu_memory_utilization)"


def _kv_of_a_token(d: Deployment, memory: Capacity) -> Iterator[Row]:
    """The rows on what a token takes: in all layers, and in one group of them where there are
    several."""
    yield "KV of one token", _kv_arithmetic(d), show_bytes(d.kv_bytes_per_token())
    if d.state_bytes():
        yield "states of one request", _state_arithmetic(d), show_bytes(d.state_bytes())
        if memory.state_blocks:
            yield f"in {memory.state_blocks} blocks", "of the groups of recurrent layers", ""
    elif memory.windowed:
        kinds = ", ".join(
            f"{number} {'with everything' if window is None else _window(window)}"
            for number, window, _ in memory.groups
        )
        yield "in one group of layers", kinds, show_bytes(memory.kv_bytes_per_token)


def _drafting(d: Deployment) -> Iterator[Row]:
    """The row on what drafts, which the weights above and the KV below have in them."""
    if d.speculation is not None and d.drafter is not None:
        own, method = d.drafter.deployment, d.speculation.method
        told = own.model.name if method == "draft_model" else f"{method} layer"
        kv = f"{told}; {show_bytes(own.kv_bytes_per_token())} of KV a token"
        yield "  of them the drafter", kv, show_bytes(d.drafter.weight_bytes())


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
    vocabulary = d.formats["vocabulary"]
    if vocabulary == d.weights:
        return weights
    return f"{weights}, embedding and LM head in {vocabulary}"
