"""The page of ``infersim sensitivity``, made of its ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.planning import tornado
from reports.planning.study import HEADS, Headline, page, percent, reasons, text, values, within
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

NOTE = "Each input at its low and its high end, everything else as it is."


def write_sensitivity_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_sensitivity(document))
    return target


def render_sensitivity(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    tone = "warn" if document["flips"] else {True: "good", False: "bad"}.get(document["holds"])
    return page(
        document,
        kind="sensitivity",
        sections=SECTIONS,
        headline=Headline(tone or "neutral", document["answer"], document["verdict"]["text"]),
        setup=[
            ("Setup", document["setup"]),
            ("Iteration times", f"within ± {document['band']:.0%}"),
        ],
        plots=tornado.plots(document, NOTE),
        tables=[_inputs(document)],
        failures=reasons(_reasons(document)),
    )


def _inputs(document: Mapping[str, Any]) -> Table:
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    verdict = document["verdict"]
    first = (*values(now), within(verdict["attainment"]))
    rows = [(text("as it is"), *first, text(verdict_word(verdict["slo_state"], document["holds"])))]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is None:
                rows.append(_row(f"{entry['title']} {end['text']}", end))
    together = document["together"]
    if together is not None and together["error"] is None:
        rows.append(_row(together["text"], together))
    columns = (
        Column("Input", False),
        *HEADS.values(),
        Column("Within SLO (%)"),
        Column("SLO" if verdict["limits"] else "Traffic", False),
    )
    caption = "Every input: changes in percent of the run as it is, and the share within the SLO"
    return Table("inputs", caption, columns, tuple(rows))


def _row(title: str, end: Mapping[str, Any]) -> tuple[Cell, ...]:
    changes = (percent(end["changes"][key]) for key in HEADS)
    attained = within(end["attainment"])
    return (text(title), *changes, attained, text(verdict_word(end["slo_state"], end["holds"])))


def _reasons(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [(e["title"], e["missing"]) for e in document["inputs"] if e["missing"] is not None]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is not None:
                found.append((f"{entry['title']} {end['text']}", end["error"]))
    return found
