"""Renders an ablation in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.causes import ablate_words
from sim.planning.causes.ablate_words import adds_up, headline, part_text, value_text
from sim.planning.contrast.gains import FIGURES, THROUGHPUT

HEADS = {figure.key: figure.title for figure in FIGURES} | {THROUGHPUT.key: THROUGHPUT.unit}


def ablate_view(document: Mapping[str, Any]) -> Group:
    """The waterfall, and the parts, of ``sim.planning.causes.ablate_document.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text.assemble((document["scenario"], "bold"), "  taken apart")
    yield Text(headline(document))
    yield Text(f"Baseline: {document['baseline']['text']}.", style="dim")
    yield _waterfall(document)
    yield _shares(document)
    yield Text(document["orders"]["text"], style="dim")
    for entry in document["infeasible"]:
        names = ", ".join(entry["with"]) or "the baseline"
        yield Text(f"Does not run: {names}: {entry['why']}", style="yellow")
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _table(title: str, figures: list[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", expand=True, box=box.SIMPLE, padding=(0, 1))
    table.add_column("", ratio=1, overflow="fold")
    for figure in figures:
        table.add_column(HEADS[figure["key"]], justify="right", no_wrap=True)
    return table


def _waterfall(document: Mapping[str, Any]) -> Table:
    figures = ablate_words.figures(document)
    table = _table("Added one after the other", figures)
    table.add_row("baseline", *(value_text(f["key"], f["baseline"]) for f in figures))
    for index, step in enumerate(figures[0]["steps"]):
        cells = (value_text(f["key"], f["steps"][index]["value"]) for f in figures)
        table.add_row(f"+ {step['title']}", *cells)
    return table


def _shares(document: Mapping[str, Any]) -> Table:
    """The parts: factors, which multiply to the whole, or else differences, which add up to it."""
    figures = ablate_words.figures(document)
    head = "What each brings, whatever the order: factors, which multiply"
    if any(map(adds_up, figures)):
        head += ", or differences (+, -), which add up"
    table = _table(head, figures)
    for index, part in enumerate(figures[0]["parts"]):
        table.add_row(part["title"], *(part_text(f, f["parts"][index]) for f in figures))
    table.add_row("all together", *(part_text(f, f) for f in figures), style="bold")
    return table
