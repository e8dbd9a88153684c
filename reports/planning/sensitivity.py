"""Renders the ``result.json`` of ``infersim sensitivity`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.content import Plot
from reports.definitions import DEFINITIONS as OF_RUNS
from reports.planning import attained, tornado
from reports.planning.study import (
    CHANGES,
    DEFINITIONS,
    HEADS,
    Headline,
    page,
    percent,
    reasons,
    text,
    values,
    within,
)
from reports.tables import Cell, Column, Table
from reports.whole_file import write_whole
from sim.planning.wording import verdict_word

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "numbers": "Numbers",
    "failures": "Not varied",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

NOTE = "Each input at its low and its high end, everything else unchanged."


def write_sensitivity_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_sensitivity(document))
    return target


def render_sensitivity(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    tone = "warn" if document["flips"] else {True: "good", False: "bad"}.get(document["holds"])
    decides = attained.plot(document)
    return page(
        document,
        kind="sensitivity",
        sections=SECTIONS,
        headline=Headline(tone or "neutral", document["answer"], document["verdict"]["text"]),
        setup=[
            ("Setup", document["setup"]),
            ("Iteration times", f"within ± {document['band']:.0%}"),
        ],
        wide=[] if decides is None else [decides],
        plots=_plots(document, decided=decides is not None),
        tables=[_inputs(document)],
        failures=reasons(_reasons(document)),
        definitions={**DEFINITIONS, "attainment": OF_RUNS["attainment"]},
    )


def _plots(document: Mapping[str, Any], *, decided: bool) -> list[Plot]:
    """What strains the fleet; throughput and goodput, which follow the traffic where it is held,
    only where no share of requests decides."""
    unread = ("tornado-output_throughput", "tornado-request_goodput") if decided else ()
    return [plot for plot in tornado.plots(document, NOTE) if plot.name not in unread]


def _inputs(document: Mapping[str, Any]) -> Table:
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    verdict = document["verdict"]
    holds = text(verdict_word(verdict["slo_state"], document["holds"]))
    rows = [(text("unchanged"), within(verdict["attainment"]), holds, *values(now))]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is None:
                rows.append(_row(f"{entry['title']} {end['text']}", end))
    together = document["together"]
    if together is not None and together["error"] is None:
        rows.append(_row(together["text"], together))
    columns = (
        Column("Input", False),
        Column("Within SLO (%)", definition="attainment"),
        Column("SLO" if verdict["limits"] else "Traffic", False),
        *CHANGES.values(),
    )
    caption = "Every input: changes against the unchanged run, whose metrics are on top"
    return Table("inputs", caption, columns, tuple(rows))


def _row(title: str, end: Mapping[str, Any]) -> tuple[Cell, ...]:
    changes = (percent(end["changes"][key]) for key in HEADS)
    word = text(verdict_word(end["slo_state"], end["holds"]))
    return (text(title), within(end["attainment"]), word, *changes)


def _reasons(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [(e["title"], e["missing"]) for e in document["inputs"] if e["missing"] is not None]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is not None:
                found.append((f"{entry['title']} {end['text']}", end["error"]))
    return found
