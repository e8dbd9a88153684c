"""Renders a study of sensitivity in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.causes.ablate_words import value_text
from sim.planning.points.wording import share, verdict_word
from sim.terminal.ablate import HEADS
from sim.units import TWICE, number

SHOWN = ("p99_ttft_ms", "p99_tpot_ms", "capacity", "output_throughput")


def sensitivity_view(document: Mapping[str, Any]) -> Group:
    """The answer and the inputs of ``sim.planning.causes.sensitivity_document.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text.assemble((document["scenario"], "bold"), f"  {document['setup']}")
    flips, holds = document["flips"], document["holds"]
    yield Text(document["answer"], style="yellow" if flips else "green" if holds else "")
    yield _table(document)
    for line in (*document["footnotes"], *document["sure"]):
        yield Text(line, style="dim")
    if document["scaling"] is not None:
        yield Text(document["scaling"]["text"], style="dim")
    for entry in document["inputs"]:
        if entry["missing"] is not None:
            yield Text(f"{entry['title']}: {entry['missing']}", style="dim")
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is not None:
                told = f"{entry['title']} {end['text']}: {end['error']}"
                yield Text(f"Does not run: {told}", style="yellow")
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("", ratio=1, overflow="fold")
    table.add_column("in SLO", justify="right", no_wrap=True)
    table.add_column("SLO" if document["verdict"]["limits"] else "traffic", no_wrap=True)
    for key in SHOWN:
        table.add_column(HEADS[key], justify="right", no_wrap=True)
    values = {figure["key"]: figure["value"] for figure in document["figures"]}
    attained = share(document["verdict"]["attainment"])
    word = verdict_word(document["verdict"]["slo_state"], document["holds"])
    table.add_row("unchanged", attained, word, *(value_text(key, values[key]) for key in SHOWN))
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None:
                _add(table, f"{entry['title']} {end['text']}", end, document["holds"])
    if document["together"] is not None:
        _add(table, document["together"]["text"], document["together"], document["holds"])
    return table


def _add(table: Table, title: str, end: Mapping[str, Any], holds: bool | None) -> None:
    style = "yellow" if end["holds"] != holds else ""
    cells = [_change(end["changes"].get(key)) for key in SHOWN]
    word = verdict_word(end["slo_state"], end["holds"])
    table.add_row(title, share(end["attainment"]), word, *cells, style=style)


def _change(change: float | None) -> str:
    if change is None:
        return "-"
    if 1 + change >= TWICE:
        return f"{number(1 + change)}x"
    return f"{change:+.0%}" if round(change, 2) else "0%"
