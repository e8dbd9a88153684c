"""Lays out the answer of ``infersim roofline``: what bounds each operator of a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.cost import Deployment
from sim.findings import Column, Lines, Part, Table
from sim.planning.answers.cells import Document, text
from sim.planning.points.wording import listed
from sim.planning.rooflines import ARITHMETIC, LARGEST_BATCH, TILES, arithmetic
from sim.units import show_number, show_rate, show_time

IDEAL = "ideal"
"""The engine that adds nothing to the kernels, which an answer need not name."""

MOST_SHOWN = 1e5
"""A column takes the first unit in which its largest number is less."""

Scale = Sequence[tuple[str, float]]

FLOP: Scale = [(f"{p}FLOP", 10.0 ** (3 * i)) for i, p in enumerate(("", "k", "M", "G", "T", "P"))]

BYTES: Scale = [(unit, 2.0 ** (10 * i)) for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]

TIME: Scale = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]

EMPTY = "tiles: kernels compute whole tiles of rows, also one that a batch leaves mostly empty."

BOUND = (
    "Memory-bound: operators bound by 'memory' take longer in all than those bound by 'compute' or "
    "'tiles'."
)

SHARING = (
    "Can it be batched? 'weights': read once for the whole batch, so more sequences cost little "
    "until compute binds. 'no, KV': every sequence reads its own cache, a larger batch reads more. "
    "'in part': the experts that a batch touches, more with every sequence until all are. "
    "'no': work that grows with the tokens in the pass."
)


def parts(d: Deployment, document: Document) -> Iterator[Part]:
    """What the GPU can, and each pass of ``document``, the ``roofline_document`` of ``d``."""
    yield _title(d, document)
    yield Lines((*_memory_bound(document), *([BOUND] if fits(document) else [])), "")
    yield Lines(tuple(document["notes"]), "warn")
    yield from (_operators(each, fits(document)) for each in document["passes"])
    bounds = [row["bound_by"] for each in document["passes"] for row in each["operators"]]
    yield Lines(_tiles([*_memory_bound(document), *bounds]), "")
    yield Lines((SHARING,), "")


def first_parts(d: Deployment, document: Document) -> Iterator[Part]:
    """The first lines of ``parts``: each pass in a row, and what takes most of it."""
    yield _title(d, document)
    yield Lines(_memory_bound(document), "")
    yield _passes(d, document)
    yield Lines(_tiles([*_memory_bound(document), *map(_bounds, document["passes"])]), "")
    yield Lines(tuple(document["notes"]), "warn")


def fits(document: Document) -> int:
    """The largest batch of which a pass fits in memory."""
    return int(document["memory_bound"]["fits"])


def _title(d: Deployment, document: Document) -> Lines:
    """The subject of the answer, and what its GPU can."""
    computed = "" if d.arithmetic == d.weights else f", computed in {d.arithmetic}"
    by = "" if d.engine.name == IDEAL else f" by {d.engine.label}"
    return Lines(
        (
            f"{d.model.name} ({_formats(d)}{computed}, {d.kv_cache} KV) on "
            f"{d.layout.gpus} x {d.gpu.name}{by}: {'each ' if d.layout.gpus > 1 else ''}"
            f"{show_rate(document['flops_per_s'], 'FLOP/s')}, "
            f"{show_rate(document['bytes_per_s'], 'B/s')}, "
            f"ridge at {document['ridge_flops_per_byte']:.0f} FLOP per byte",
        ),
        "",
    )


def _memory_bound(document: Document) -> tuple[str, ...]:
    """At which batches memory stops binding; nothing where no batch fits.

    >>> ranges = {"products": [[1, 302], [410, 459]], "pass": [[1, 459]]}
    >>> found = {"fits": 459, "ranges": ranges, "by": {"products": "tiles", "pass": None}}
    >>> print(*"".join(_memory_bound({"memory_bound": found})).split(". "), sep="\\n")
    Decoding is memory-bound at every batch that fits (up to 459)
    Its matrix products stop being so at a batch of 303 (tiles), and are again at 410 to 459.
    """
    found = document["memory_bound"]
    if not found["fits"]:
        return ()
    most = "" if found["fits"] >= LARGEST_BATCH else f" that fits (up to {found['fits']:,})"

    def bound(name: str, what: str, verb: str, stop: str) -> str:
        """The sentence on the batches of ``name``."""
        by, ranges = found["by"][name], [list(each) for each in found["ranges"][name]]
        if ranges == [[1, found["fits"]]]:
            return f"{verb} {what} at every batch{most}"
        named = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ranges]
        if not ranges or ranges[0][0] > 1:
            where = (
                f"only at batches of {listed(named, apart=' and ')}"
                if named
                else f"at no batch{most}"
            )
            return f"{verb} {what} {where}"
        again = f", and {verb} again at {listed(named[1:], apart=' and ')}" if named[1:] else ""
        return f"{stop} being {what} at a batch of {ranges[0][1] + 1:,} ({by}){again}"

    whole = bound("pass", "memory-bound", "is", "stops")
    products = bound("products", "so", "are", "stop")
    if products == bound("pass", "so", "are", "stop"):
        do = "do" if products.startswith("stop") else "are"
        return (f"Decoding {whole}; so {do} its matrix products.",)
    return (f"Decoding {whole}. Its matrix products {products}.",)


def _tiles(told: Sequence[str]) -> tuple[str, ...]:
    """What tiles are, where one of the texts that are ``told`` names them; empty elsewhere."""
    return (EMPTY,) * any(TILES in each for each in told)


def _formats(d: Deployment) -> str:
    """The precision of the weights, and of the experts where that is another one."""
    experts = d.formats["experts"]
    other = d.model.has_experts and experts != d.weights
    return f"{d.weights} weights{f', experts in {experts}' if other else ''}"


def _passes(d: Deployment, document: Document) -> Table:
    """Each pass in a row: its time, its tokens a second, and the resource and the operator that
    take the largest shares of the time."""
    rows = []
    for each in document["passes"]:
        longest = max(each["operators"], key=lambda row: row["seconds"])
        decoded = each["phase"] == "decode"
        tokens = each["batch"] if decoded else each["tokens"]
        cells = (
            f"decode, batch {each['batch']:,}" if decoded else "prefill",
            show_time(each["seconds"]),
            f"{tokens / each['seconds']:,.0f}",
            _bounds(each),
            f"{longest['name']} {longest['seconds'] / each['seconds']:.0%}",
        )
        rows.append(tuple(map(text, cells)))
    context, prompt = (document["passes"][at]["tokens"] for at in (0, -1))
    caption = f"Decode at {context:,} tokens of context each, prefill of {prompt:,} tokens"
    last = Column("bound by", False, prose=True), Column("longest operator", False)
    rate = "tokens/s" if d.layout.data == 1 else "tokens/s of each rank"
    columns = (Column("pass", False), Column("time"), Column(rate), *last)
    return Table("passes", caption, columns, tuple(rows), look="compact")


def _bounds(found: Mapping[str, Any]) -> str:
    """What binds a pass, with its share of the time: memory or arithmetic, whichever is more, after
    what takes longer than both.

    >>> rows = [("memory", 4.0), ("tiles", 4.1), ("compute", 1.9)]
    >>> operators = [{"bound_by": bound, "seconds": seconds} for bound, seconds in rows]
    >>> _bounds({"seconds": 10.0, "operators": operators})
    'tiles + compute 60%'
    >>> operators.append({"bound_by": "latency", "seconds": 10.0})
    >>> _bounds({"seconds": 20.0, "operators": operators})
    'latency 50%, tiles + compute 30%'
    >>> _bounds({"seconds": 10.0, "operators": operators[-1:]})
    'latency 100%, compute 0%'
    """
    seconds: Counter[str] = Counter()
    for row in found["operators"]:
        seconds[row["bound_by"]] += row["seconds"]
    kinds = [name for name, _ in seconds.most_common() if name in ARITHMETIC]
    shown = [name for name in kinds if seconds[name] >= 0.005 * found["seconds"]]
    computed = " + ".join(shown or ARITHMETIC[:1])
    shares = {computed: arithmetic(seconds)}
    shares |= {name: held for name, held in seconds.items() if name not in ARITHMETIC}
    told = []
    for name, held in sorted(shares.items(), key=lambda each: -each[1]):
        told.append(f"{name} {held / found['seconds']:.0%}")
        if name in (computed, "memory"):
            break
    return ", ".join(told)


def _operators(found: Mapping[str, Any], fits: int) -> Table:
    """The operators of one pass; a column has one unit, which its head names. Memory ``fits`` so
    large a batch."""
    tokens, rows = f"{found['tokens']:,}", found["operators"]
    what = (
        f"Decode, batch {found['batch']:,}{', which does not fit' * (found['batch'] > fits)}, "
        f"{tokens} tokens of context each"
        if found["phase"] == "decode"
        else f"Prefill, {tokens} tokens"
    )
    title = f"{what}: {show_time(found['seconds'])} a pass"
    if "stages" in found:
        title += f"\nstages: {', '.join(map(show_time, found['stages']))}"
    scales = {"flops": FLOP, "bytes": BYTES, "seconds": TIME}
    units = {name: _unit([row[name] for row in rows], scale) for name, scale in scales.items()}
    flop, size, time = (units[name][0] for name in scales)
    heads = (f"work\n{flop}", f"traffic\n{size}", "FLOP\nper byte", f"time\n{time}")
    columns = (
        Column("operator", False, prose=True),
        *map(Column, heads),
        Column("bound by", False),
        Column("shared", False),
    )
    lines = []
    for row in rows:
        flops, moved, seconds = (
            show_number(row[name] / units[name][1]) if row[name] else "-" for name in scales
        )
        intensity = show_number(row["flops"] / row["bytes"]) if row["flops"] else "-"
        cells = (row["name"], flops, moved, intensity, seconds, row["bound_by"], row["shared"])
        lines.append(tuple(map(text, cells)))
    return Table(found["phase"], f"\n{title}", columns, tuple(lines), look="compact")


def _unit(values: Sequence[float], scale: Scale) -> tuple[str, float]:
    """The unit of a column."""
    largest = max(values)
    return next((unit for unit in scale if largest < MOST_SHOWN * unit[1]), scale[-1])
