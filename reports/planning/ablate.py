"""How does an ablation become one HTML page? From what ``infersim ablate`` has in its
``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.content import Plot, to_json
from reports.planning import waterfall
from reports.planning.study import (
    DEFINED,
    HEADS,
    TITLES,
    Headline,
    factor,
    page,
    reasons,
    text,
    values,
)
from reports.tables import Column, Table
from reports.whole_file import write_whole

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Waterfalls",
    "numbers": "Numbers",
    "failures": "What does not run",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def write_ablate_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_ablation(document))
    return target


def render_ablation(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    return page(
        document,
        kind="ablation",
        sections=SECTIONS,
        headline=_headline(document),
        setup=[
            ("Techniques", ", ".join(entry["title"] for entry in document["techniques"])),
            ("Traffic", "all at once" if document["saturated"] else "as the scenario has it"),
        ],
        plots=[_plot(document, f) for f in document["figures"] if f["full"] is not None],
        tables=[_steps(document), _parts(document), _subsets(document)],
        failures=reasons(
            [(", ".join(e["with"]) or "the baseline", e["why"]) for e in document["infeasible"]]
        ),
    )


def _headline(document: Mapping[str, Any]) -> Headline:
    found = {figure["key"]: figure for figure in document["figures"]}
    ratio = found["output_throughput"]["factor"]
    told = "not comparable" if ratio is None else f"{ratio:.3g} times the throughput"
    title = f"{told} of the naive baseline"
    text = f"The baseline: {document['baseline']['text']}. {document['orders']['text']}"
    return Headline("neutral", title[0].upper() + title[1:], text)


def _plot(document: Mapping[str, Any], figure: Mapping[str, Any]) -> Plot:
    key = figure["key"]
    note = "In the order asked for; what a technique brings depends on those before it."
    gone = [step["title"] for step in figure["steps"] if step["value"] is None]
    if gone:
        note += f" Left out, as it has no such figure: {', '.join(gone)}."
    drawn = to_json(waterfall.figure(document, key))
    return Plot(f"waterfall-{key}", TITLES[key], DEFINED[key], note, drawn)


def _steps(document: Mapping[str, Any]) -> Table:
    figures = document["figures"]
    rows = [(text("baseline"), *values({f["key"]: f["baseline"] for f in figures}))]
    for index, step in enumerate(figures[0]["steps"]):
        found = {f["key"]: f["steps"][index]["value"] for f in figures}
        rows.append((text(f"+ {step['title']}"), *values(found)))
    columns = (Column("Configuration", False), *HEADS.values())
    return Table("steps", "Added one after the other", columns, tuple(rows))


def _parts(document: Mapping[str, Any]) -> Table:
    figures = document["figures"]
    rows = [
        (text(part["title"]), *(factor(f["parts"][index]["factor"]) for f in figures))
        for index, part in enumerate(figures[0]["parts"])
    ]
    rows.append((text("all together"), *(factor(f["factor"]) for f in figures)))
    caption = "What each brings, whatever the order: factors, whose product is the whole"
    return Table("parts", caption, (Column("Technique", False), *HEADS.values()), tuple(rows))


def _subsets(document: Mapping[str, Any]) -> Table:
    rows = tuple(
        (text(", ".join(row["with"]) or "baseline"), *values(row["figures"]), text(row["state"]))
        for row in document["subsets"]
    )
    columns = (Column("With", False), *HEADS.values(), Column("State", False))
    return Table("subsets", "Every set that was simulated", columns, rows)
