"""Renders checked claims in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim.planning.claims.words import headline, shown

INDENT = (0, 0, 0, 6)
STYLES = {"holds": "green", "fails": "red"}


def claims_view(document: Mapping[str, Any]) -> Group:
    """Each claim of ``sim.planning.claims.check`` with its verdict, figures and statements."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    for entry in document["claims"]:
        verdict = entry["verdict"]
        yield Text.assemble((f"{verdict:<6}", STYLES[verdict]), (entry["claim"], "bold"))
        if entry["verdict"] != entry["expected"]:
            yield Text(f"      Its author expects: {entry['expected']}.", style="yellow")
        yield Padding(Text(entry["because"], style="dim"), INDENT)
        yield Padding(_figures(entry), INDENT)
        for check in entry["checks"]:
            sign = "yes" if check["true"] else "no"
            told = f"{sign}: {check['statement']}   ({check['text']})"
            yield Padding(Text(told, style="dim"), INDENT)
        yield Text("")
    yield Text(headline(document), style="bold")


def _figures(entry: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1))
    table.add_column("", overflow="fold")
    for figure in entry["figures"]:
        table.add_column(figure["title"], justify="right")
    for variant in entry["variants"]:
        cells = (shown(figure, variant["figures"][figure["key"]]) for figure in entry["figures"])
        table.add_row(variant["name"].replace("_", " "), *cells)
    return table
