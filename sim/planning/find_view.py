"""What does the answer of ``find`` look like in a terminal of 88 columns?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.sentences import (
    ends_text,
    first_to_break,
    highest,
    knee_text,
    opening,
    own_load,
    slo_text,
    sureness,
)
from sim.units import show_time


def find_view(document: Mapping[str, Any]) -> Group:
    """The content of ``sim.planning.find.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    gpus = f"{document['gpus']} x {document['gpu']}"
    yield Text.assemble((document["scenario"], "bold"), f"  {document['model']} on {gpus}")
    yield Text(slo_text(document))
    yield Text(highest(document), style="bold")
    for line in ends_text(document):
        yield Text(line)
    yield Text(first_to_break(document))
    own = document["own"]
    if own is not None:
        yield Text(own_load(document), style="green" if own["holds"] else "red")
    yield Text(knee_text(document))
    yield _table(document)
    for line in [*opening(document), sureness(document)]:
        yield Text(line, style="dim")


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    promised = bool(document["promises"])
    titles = [
        document["unit"],
        "",
        "kept",
        "95 % interval",
        "TTFT p99",
        "TPOT p99",
        "tokens/s",
        "runs",
    ]
    for title in titles:
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for probe in document["probes"]:
        kept = probe["promises"][0] if promised else None
        mark = "holds" if probe["holds"] else f"{probe['breaks']}"
        style = "green" if probe["holds"] else "red"
        style += " bold" if probe["load"] == document["load"] else ""
        table.add_row(
            f"{probe['load']:.4g}",
            Text(mark + ("" if probe["sure"] else " ?"), style=style),
            "-" if kept is None else f"{kept['attainment']:.2%}",
            "-" if kept is None else f"{kept['low']:.2%}..{kept['high']:.2%}",
            _time(probe["p99_ttft_ms"]),
            _time(probe["p99_tpot_ms"]),
            "-" if probe["output_throughput"] is None else f"{probe['output_throughput']:,.0f}",
            str(probe["runs"]),
        )
    return table


def _time(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else show_time(milliseconds / 1e3)
