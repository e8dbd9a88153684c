"""How does a diagnosis become one HTML page? From what ``infersim diagnose`` has in its
``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.content import Plot, to_json
from reports.planning import parts, tornado
from reports.planning.study import HEADS, Headline, page, percent, reasons, text, values
from reports.tables import Cell, Column, Table
from reports.whole_file import write_whole

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "advice": "What to change first",
    "figures": "Figures",
    "numbers": "Numbers",
    "failures": "Not possible",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

NOTE = "Green is better, red is worse than it is now."


def write_diagnose_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_diagnosis(document))
    return target


def render_diagnosis(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    bound = document["bound"]
    title = f"Bound by {bound['by']}" if bound["by"] else "Bound by none of the hardware"
    return page(
        document,
        kind="diagnosis",
        sections=SECTIONS,
        headline=Headline("neutral", title, f"{bound['text']} {document['verdict']['text']}"),
        setup=[("Setup", document["setup"])],
        wide=_latency(document),
        plots=tornado.plots(document, NOTE),
        tables=[_trials(document), _latency_table(document)],
        failures=reasons(
            [(t["title"], t["error"]) for t in document["trials"] if t["error"] is not None]
        ),
        advice=_advice(document),
    )


def _advice(document: Mapping[str, Any]) -> list[dict[str, str]]:
    trials = {trial["name"]: trial for trial in document["trials"]}
    titles = {figure["key"]: figure["title"] for figure in document["figures"]}
    efforts = {effort["name"]: effort["title"] for effort in document["efforts"]}
    return [
        {
            "effect": f"{trials[name]['effect']:+.0%}",
            "effort": efforts[trials[name]["effort"]],
            "title": trials[name]["title"],
            "text": ", ".join(
                f"{titles[key]} {change:+.0%}"
                for key, change in trials[name]["changes"].items()
                if change is not None and abs(change) >= 0.02
            ),
            "command": trials[name]["command"],
        }
        for name in document["advice"]
    ]


def _latency(document: Mapping[str, Any]) -> list[Plot]:
    if not document["latency"]:
        return []
    note = "Parts add up to the latency of each request exactly; drawn are their means."
    return [
        Plot(f"parts-{name}", f"Where the {title} goes", definition, note,
             to_json(parts.figure(document, name)), kind="own")
        for name, title, definition in (("ttft", "TTFT", "ttft"), ("e2el", "E2EL", None))
    ]  # fmt: skip


def _trials(document: Mapping[str, Any]) -> Table:
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    blank = Cell("", None)
    rows = [(text("as it is"), *values(now), blank, text(""))]
    for trial in document["trials"]:
        if trial["error"] is None:
            changes = (percent(trial["changes"][key]) for key in HEADS)
            effect = percent(trial["effect"])
            rows.append((text(trial["title"]), *changes, effect, text(trial["effort"])))
    columns = (
        Column("If it were", False),
        *HEADS.values(),
        Column("Effect (%)"),
        Column("Effort", False),
    )
    caption = "Every counterfactual: changes in percent, below the figures as they are"
    return Table("trials", caption, columns, tuple(rows))


def _latency_table(document: Mapping[str, Any]) -> Table:
    latency = document["latency"]
    rows = tuple(
        (text(title), *(_part(latency[name].get(part)) for name in parts.BARS))
        for part, title in parts.TITLES.items()
        if latency
    )
    columns = (Column("Part", False), *(Column(f"{title} (ms)") for title in parts.BARS.values()))
    return Table("latency", "Where the latency goes: means", columns, rows)


def _part(value: float | None) -> Cell:
    return Cell("", None) if value is None else Cell(f"{value:,.2f}", round(value, 6))
