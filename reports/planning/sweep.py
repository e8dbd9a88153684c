"""How does a sweep become one HTML page?

``write_sweep_report`` takes what ``infersim sweep`` has in its ``result.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.content import Plot, to_json
from reports.definitions import DEFINITIONS as OF_RUNS
from reports.definitions import Definition
from reports.formats import MISSING, show
from reports.page import fill
from reports.planning import heat, knee, tradeoff
from reports.planning.series import MOST_LINES, lines
from reports.tables import Cell, Column, Table
from reports.whole_file import write_whole

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "points": "Points",
    "failures": "Failures",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

DEFINITIONS: Mapping[str, Definition] = {
    name: OF_RUNS[name]
    for name in ("request_throughput", "output_throughput", "ttft", "tpot", "attainment", "cost")
}

MOST_ROWS = 2000
"""Points in the table of the page; a browser is slow with more."""

COLUMNS = (
    Column("Requests/s", definition="request_throughput"),
    Column("Output tokens/s", definition="output_throughput"),
    Column("TTFT p50 (ms)", definition="ttft"),
    Column("TTFT p99 (ms)", definition="ttft"),
    Column("TPOT p99 (ms)", definition="tpot"),
    Column("Within SLO (%)", definition="attainment"),
    Column("State", False),
)


def write_sweep_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_sweep(document))
    return target


def render_sweep(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    failed = document["failed"]
    sections = {key: title for key, title in SECTIONS.items() if failed or key != "failures"}
    return fill(
        "sweep.html.j2",
        sections,
        DEFINITIONS,
        header={
            "name": document["name"],
            "setup": [
                ("Points", f"{document['points']:,}"),
                ("Failed", f"{failed:,}"),
                *((axis["name"], _values(axis["values"])) for axis in document["axes"]),
            ],
        },
        answers=[answer["text"] for answer in document["answers"]],
        plots=plots(document),
        points=_points(document),
        failures=_failures(document) if failed else None,
        provenance={"version": document["infersim"]},
    )


def plots(document: Mapping[str, Any]) -> list[Plot]:
    """The figures that suit what was swept; none if every point failed."""
    if document["points"] == document["failed"]:
        return []
    if document["load"] is not None:
        return [_knee(document, name) for name in ("ttft", "tpot")]
    if len(document["axes"]) == 2 and all(map(_numeric, document["axes"])):
        return [_heat(document, metric) for metric in heat.METRICS]
    note = "Each point of the sweep; hover to see its values."
    drawn = to_json(tradeoff.figure(document))
    return [Plot("tradeoff", "Throughput and latency", None, note, drawn, kind="tall")]


def _knee(document: Mapping[str, Any], latency: str) -> Plot:
    count = len(lines(document, document["load"]))
    caption = "Hollow: overloaded; slower still with more requests. Dashed: the limit of the SLO."
    if count > MOST_LINES:
        caption += f" The first {MOST_LINES} of {count:,} lines."
    spec = to_json(knee.figure(document, latency))
    title = f"{latency.upper()} over load"
    return Plot(f"knee-{latency}", title, latency, caption, spec, kind="tall")


def _heat(document: Mapping[str, Any], metric: str) -> Plot:
    name = {"p99_ttft_ms": "ttft"}.get(metric, metric)
    drawn = to_json(heat.figure(document, metric))
    note = "Darker is more. Empty: the point failed."
    return Plot(f"heat-{name}", heat.METRICS[metric], name, note, drawn, kind="tall")


def _numeric(axis: Mapping[str, Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis["values"])


def _values(values: list[Any]) -> str:
    """The values of an axis, or how many there are and the ends."""
    few = [_text(value) for value in values]
    return ", ".join(few) if len(few) <= 6 else f"{len(few)} values, {few[0]} to {few[-1]}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _points(document: Mapping[str, Any]) -> Table:
    axes = tuple(Column(axis["name"], _numeric(axis)) for axis in document["axes"])
    shown = document["results"][:MOST_ROWS]
    rows = tuple(
        (*(_setting(value) for value in row["settings"].values()), *_cells(row)) for row in shown
    )
    caption = "Every point"
    if document["points"] > MOST_ROWS:
        caption = f"The first {MOST_ROWS:,} of {document['points']:,} points"
    return Table("points", caption, (*axes, *COLUMNS), rows)


def _setting(value: Any) -> Cell:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(_text(value), value if numeric else _text(value))


def _cells(row: Mapping[str, Any]) -> list[Cell]:
    summary = row["summary"]
    if summary is None:
        word = "infeasible" if row["exit_code"] == 3 else "failed"
        return [*([Cell(MISSING, None)] * 6), Cell(word, word)]
    verdict = summary["infersim"]["verdict"]
    keys = ("request_throughput", "output_throughput", "p50_ttft_ms", "p99_ttft_ms", "p99_tpot_ms")
    return [
        *(Cell(*show(summary[key], "number")) for key in keys),
        Cell(*show(verdict["attainment"], "share")),
        Cell(verdict["state"], verdict["state"]),
    ]


def _failures(document: Mapping[str, Any]) -> Table:
    rows = [
        (Cell(row["label"], row["label"]), Cell(row["error"], row["error"]))
        for row in document["results"]
        if row["error"] is not None
    ]
    columns = (Column("Point", False), Column("Reason", False, prose=True))
    return Table("failures", "Points without figures", columns, tuple(rows[:MOST_ROWS]))
