"""What does an ablation look like in a terminal of 88 columns?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.wording import milliseconds, number

HEADS = {
    "output_throughput": "tokens/s",
    "request_goodput": "goodput",
    "p99_ttft_ms": "p99 TTFT",
    "p99_tpot_ms": "p99 TPOT",
    "capacity": "capacity",
}


def ablate_view(document: Mapping[str, Any]) -> Group:
    """The waterfall, and the parts, of ``sim.planning.ablate_document.document``."""
    return Group(*_parts(document))


def value_text(key: str, value: float | None) -> str:
    """A figure with its unit, as columns have them."""
    if key.endswith("_ms"):
        return milliseconds(value)
    return f"{number(value)}x" if key == "capacity" and value is not None else number(value)


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    figures = document["figures"]
    yield Text.assemble((document["scenario"], "bold"), "  taken apart", _headline(figures))
    yield Text(f"Baseline: {document['baseline']['text']}.", style="dim")
    yield _waterfall(document)
    yield _shares(document)
    yield Text(document["orders"]["text"], style="dim")
    for entry in document["infeasible"]:
        names = ", ".join(entry["with"]) or "the baseline"
        yield Text(f"Does not run: {names}: {entry['why']}", style="yellow")
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _headline(figures: list[Mapping[str, Any]]) -> str:
    found = {figure["key"]: figure["factor"] for figure in figures}
    told = [
        f"{found[key]:.3g}x {word}"
        for key, word in (("output_throughput", "the throughput"), ("capacity", "the capacity"))
        if found[key] is not None
    ]
    return f": {', '.join(told)} of the baseline" if told else ""


def _table(title: str, figures: list[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", expand=True, box=box.SIMPLE, padding=(0, 1))
    table.add_column("", ratio=1, overflow="fold")
    for figure in figures:
        table.add_column(HEADS[figure["key"]], justify="right", no_wrap=True)
    return table


def _waterfall(document: Mapping[str, Any]) -> Table:
    figures = document["figures"]
    table = _table("Added one after the other", figures)
    table.add_row("baseline", *(value_text(f["key"], f["baseline"]) for f in figures))
    for index, step in enumerate(figures[0]["steps"]):
        cells = (value_text(f["key"], f["steps"][index]["value"]) for f in figures)
        table.add_row(f"+ {step['title']}", *cells)
    return table


def _shares(document: Mapping[str, Any]) -> Table:
    """The parts: factors, which multiply to the whole, or else differences, which add up to it."""
    figures = document["figures"]
    kinds = ["factor" if _has_factors(f) else "difference" for f in figures]
    head = "What each brings, whatever the order: factors, which multiply"
    if any(map(_adds_up, figures)):
        head += ", or differences (+, -), which add up"
    table = _table(head, figures)
    for index, part in enumerate(figures[0]["parts"]):
        cells = zip(kinds, figures, strict=True)
        table.add_row(part["title"], *(_part(k, f["key"], f["parts"][index]) for k, f in cells))
    whole = (_part(kind, f["key"], f) for kind, f in zip(kinds, figures, strict=True))
    table.add_row("all together", *whole, style="bold")
    return table


def _has_factors(figure: Mapping[str, Any]) -> bool:
    return all(part["factor"] is not None for part in figure["parts"])


def _adds_up(figure: Mapping[str, Any]) -> bool:
    known = [part["difference"] is not None for part in figure["parts"]]
    return not _has_factors(figure) and all(known)


def _part(kind: str, key: str, part: Mapping[str, Any]) -> str:
    """A factor, or a difference with its sign and unit."""
    value = part[kind]
    if value is None:
        return "-"
    if kind == "factor":
        return f"x {value:.3g}"
    return f"{'-' if value < 0 else '+'}{value_text(key, abs(value))}"
