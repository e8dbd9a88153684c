"""Renders the ``result.json`` of ``infersim ablate`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import waterfall
from reports.figures.naming import TITLES
from reports.frame.content import Headline, Plot, to_json
from reports.frame.formats import MISSING
from reports.frame.tables import Cell, PageColumn, PageTable
from reports.pages.planning.study import (
    HEADS,
    StudyHead,
    page,
    reasons,
    text,
    value,
)
from sim.metrics.terms.definitions import METRIC
from sim.planning.causes.ablate_words import adds_up, figures, headline, kind, part_text

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Waterfalls",
    "numbers": "Numbers",
    "failures": "What does not run",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    return page(
        document,
        StudyHead(
            "ablation",
            SECTIONS,
            _headline(document),
            [
                *([("Setup", document["setup"])] if "setup" in document else []),
                ("Techniques", str(len(document["techniques"]))),
                ("Traffic", "all at once" if document["saturated"] else "as the scenario has it"),
            ],
        ),
        plots=[_plot(document, f) for f in figures(document) if f["full"] or f["baseline"]],
        tables=[_steps(document), _parts(document), _subsets(document)],
        failures=reasons(
            [(", ".join(e["with"]) or "the baseline", e["why"]) for e in document["infeasible"]]
        ),
    )


def _headline(document: Mapping[str, Any]) -> Headline:
    text = f"The baseline: {document['baseline']['text']}. {document['orders']['text']}"
    return Headline("neutral", headline(document), text)


def _plot(document: Mapping[str, Any], figure: Mapping[str, Any]) -> Plot:
    key = figure["key"]
    note = "In the order asked for; what a technique brings depends on those before it."
    gone = [step["title"] for step in figure["steps"] if step["value"] is None]
    if gone:
        note += f" Left out, as it has no such figure: {', '.join(gone)}."
    drawn = to_json(waterfall.figure(document, key))
    return Plot(f"waterfall-{key}", TITLES[key], METRIC[key].definition, note, drawn, kind="own")


def _columns(document: Mapping[str, Any], first: str) -> tuple[PageColumn, ...]:
    return (PageColumn(first, False), *(HEADS[figure["key"]] for figure in figures(document)))


def _steps(document: Mapping[str, Any]) -> PageTable:
    found = figures(document)
    rows = [(text("baseline"), *(value(f["key"], f["baseline"]) for f in found))]
    for index, step in enumerate(found[0]["steps"]):
        reached = (value(f["key"], f["steps"][index]["value"]) for f in found)
        rows.append((text(f"+ {step['title']}"), *reached))
    columns = _columns(document, "Configuration")
    return PageTable("steps", "Added one after the other", columns, tuple(rows))


def _parts(document: Mapping[str, Any]) -> PageTable:
    found = figures(document)
    rows = [
        (text(part["title"]), *(_part(f, f["parts"][index]) for f in found))
        for index, part in enumerate(found[0]["parts"])
    ]
    rows.append((text("all together"), *(_part(f, f) for f in found)))
    caption = "What each brings, whatever the order: factors, whose product is the whole"
    if any(map(adds_up, found)):
        caption += ", or differences (+, -), which add up to it"
    first, *columns = _columns(document, "Technique")
    plain = (column._replace(title=column.title.partition(" (")[0], unit="") for column in columns)
    return PageTable("parts", caption, (first, *plain), tuple(rows))


def _part(figure: Mapping[str, Any], part: Mapping[str, Any]) -> Cell:
    told = part_text(figure, part)
    return Cell(MISSING if told == "-" else told, part[kind(figure)])


def _subsets(document: Mapping[str, Any]) -> PageTable:
    rows = tuple(
        (
            text(", ".join(row["with"]) or "baseline"),
            text(row["state"]),
            *(value(f["key"], row["figures"][f["key"]]) for f in figures(document)),
        )
        for row in document["subsets"]
    )
    first, *columns = _columns(document, "With")
    columns = [first, PageColumn("State", False), *columns]
    return PageTable("subsets", "Every set that was simulated", tuple(columns), rows)
