"""Lays out the answer of ``infersim roofline``: what bounds each operator of a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.cost import Deployment
from sim.findings import Column, Lines, Part, Table
from sim.planning.answers.cells import Document, text
from sim.planning.rooflines import TILES
from sim.units import show_number, show_rate, show_time

MOST_SHOWN = 1e5
"""A column takes the first unit in which its largest number is less."""

Scale = Sequence[tuple[str, float]]

FLOP: Scale = [(f"{p}FLOP", 10.0 ** (3 * i)) for i, p in enumerate(("", "k", "M", "G", "T", "P"))]

BYTES: Scale = [(unit, 2.0 ** (10 * i)) for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]

TIME: Scale = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]

EMPTY = "tiles: a kernel computes whole tiles of rows, and a small batch fills few of them."

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
    if any(row["bound_by"] == TILES for each in document["passes"] for row in each["operators"]):
        yield Lines((f"{EMPTY}\n",), "")
    yield Lines((SHARING,), "")


def first_parts(d: Deployment, document: Document) -> Iterator[Part]:
    """The first lines of ``parts``: each pass in a row, and what takes most of it."""
    yield _title(d, document)
    yield Lines(_memory_bound(document), "")
    yield _passes(document)
    yield Lines(tuple(document["notes"]), "warn")


def fits(document: Document) -> int:
    """The largest batch of which a pass fits in memory."""
    return int(document["memory_bound"]["fits"])


def _title(d: Deployment, document: Document) -> Lines:
    """The subject of the answer, and what its GPU can."""
    computed = "" if d.arithmetic == d.weights else f", computed in {d.arithmetic}"
    return Lines(
        (
            f"{d.model.name} ({_formats(d)}{computed}, {d.kv_cache} KV) on "
            f"{d.layout.gpus} x {d.gpu.name}: {'each ' if d.layout.gpus > 1 else ''}"
            f"{show_rate(document['flops_per_s'], 'FLOP/s')}, "
            f"{show_rate(document['bytes_per_s'], 'B/s')}, "
            f"ridge at {document['ridge_flops_per_byte']:.0f} FLOP per byte",
        ),
        "",
    )


def _memory_bound(document: Document) -> tuple[str, ...]:
    """At which batches memory binds; nothing where no batch fits.

    >>> found = {"products": [[1, 302], [410, 459]], "pass": [[1, 459]]}
    >>> (text,) = _memory_bound({"memory_bound": {"fits": 459, "ranges": found}})
    >>> text.partition(": ")[2].replace("that fits (459).", "...")
    'products are memory-bound at batches of 1 to 302 and 410 to 459, the whole pass at any ...'
    """
    found = document["memory_bound"]
    if not found["fits"]:
        return ()

    def at(ranges: Sequence[Sequence[int]]) -> str:
        if list(map(list, ranges)) == [[1, found["fits"]]]:
            return f"at any that fits ({found['fits']:,})"
        named = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ranges]
        return f"at batches of {' and '.join(named)}" if named else "at none"

    both = found["ranges"]
    return (
        f"Decoding: products are memory-bound {at(both['products'])}, the whole pass "
        f"{at(both['pass'])}.",
    )


def _formats(d: Deployment) -> str:
    """The precision of the weights, and of the experts where that is another one."""
    experts = d.formats["experts"]
    other = d.model.has_experts and experts != d.weights
    return f"{d.weights} weights{f', experts in {experts}' if other else ''}"


def _passes(document: Document) -> Table:
    """Each pass in a row: its time, its tokens a second, and the resource and the operator that
    take the largest shares of the time."""
    rows = []
    for each in document["passes"]:
        by_bound: Counter[str] = Counter()
        for row in each["operators"]:
            by_bound[row["bound_by"]] += row["seconds"]
        (bound, held), *_ = by_bound.most_common()
        longest = max(each["operators"], key=lambda row: row["seconds"])
        decoded = each["phase"] == "decode"
        tokens = each["batch"] if decoded else each["tokens"]
        cells = (
            f"decode, batch {each['batch']:,}" if decoded else "prefill",
            show_time(each["seconds"]),
            f"{tokens / each['seconds']:,.0f}",
            f"{bound} {held / each['seconds']:.0%}",
            f"{longest['name']} {longest['seconds'] / each['seconds']:.0%}",
        )
        rows.append(tuple(map(text, cells)))
    context, prompt = (document["passes"][at]["tokens"] for at in (0, -1))
    caption = f"Decode at {context:,} tokens of context each, prefill of {prompt:,} tokens"
    last = Column("mostly bound by", False), Column("longest operator", False)
    columns = (Column("pass", False), Column("time"), Column("tokens/s"), *last)
    return Table("passes", caption, columns, tuple(rows), look="compact")


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
