"""Lays out the answer of ``infersim ablate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.findings import Cell, Column, Drawing, Drawings, Findings, Heading, Headline, Lines, Table
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import CHANGES, HEADS, Document, failures, text, value
from sim.planning.answers.drawings import LadderStep, Waterfall
from sim.planning.causes.ablate_words import adds_up, figures, headline, kind, part_text


def findings(document: Document) -> Findings:
    """The gain from all techniques together, and from each."""
    traffic = "all at once" if document["saturated"] else "as the scenario has it"
    baseline = f"The baseline: {document['baseline']['text']}. {document['orders']['text']}"
    reasons = [(", ".join(e["with"]) or "the baseline", e["why"]) for e in document["infeasible"]]
    return Findings(
        document["scenario"],
        "ablation",
        document["infersim"],
        Headline("neutral", headline(document), baseline),
        (
            Heading("summary", "Summary"),
            Heading("figures", "Waterfalls", (Drawings(tuple(_waterfalls(document))),)),
            Heading(
                "numbers",
                "Numbers",
                (
                    *(_steps(document), _parts(document), _subsets(document)),
                    Lines(tuple(document["notes"]), "warn"),
                ),
            ),
            *failures("What does not run", reasons),
        ),
        (
            ("Setup", document["setup"]),
            ("Techniques", str(len(document["techniques"]))),
            ("Traffic", traffic),
        ),
        document.get("asked"),
        document["description"],
    )


def _waterfalls(document: Document) -> Iterator[Drawing]:
    for figure in figures(document):
        if not (figure["full"] or figure["baseline"]):
            continue
        note = "In the order asked for; what a technique brings depends on those before it."
        gone = [step["title"] for step in figure["steps"] if step["value"] is None]
        if gone:
            note += f" Left out, as it has no such figure: {', '.join(gone)}."
        metric = METRIC[figure["key"]]
        name = f"waterfall-{metric.key}"
        yield Drawing(name, metric.head, metric.definition, note, waterfall(document, metric.key))


def waterfall(document: Document, key: str) -> Waterfall:
    """The steps of the metric ``key`` in the order asked for."""
    figure = next(each for each in document["figures"] if each["key"] == key)
    steps = tuple(LadderStep(step["title"], step["value"]) for step in figure["steps"])
    ends = figure["baseline"], steps, figure["full"]
    return Waterfall(key, figure["unit"], figure["more"], *ends)


def _columns(document: Document, first: str) -> tuple[Column, ...]:
    return (Column(first, False), *(HEADS[figure["key"]] for figure in figures(document)))


def _steps(document: Document) -> Table:
    found = figures(document)
    rows = [(text("baseline"), *(value(f["key"], f["baseline"]) for f in found))]
    for index, step in enumerate(found[0]["steps"]):
        reached = (value(f["key"], f["steps"][index]["value"]) for f in found)
        rows.append((text(f"+ {step['title']}"), *reached))
    columns = _columns(document, "Configuration")
    return Table("steps", "Added one after the other", columns, tuple(rows))


def _parts(document: Document) -> Table:
    found = figures(document)
    rows = [
        (text(part["title"]), *(_part(f, f["parts"][index]) for f in found))
        for index, part in enumerate(found[0]["parts"])
    ]
    rows.append((text("all together"), *(_part(f, f) for f in found)))
    caption = "What each brings, whatever the order: factors, whose product is the whole"
    if any(map(adds_up, found)):
        caption += ", or differences (+, -), which add up to it"
    plain = (CHANGES[figure["key"]]._replace(unit="") for figure in found)
    columns = (Column("Technique", False), *plain)
    return Table("parts", caption, columns, tuple(rows), ruled=(len(rows) - 2,))


def _part(figure: Mapping[str, Any], part: Mapping[str, Any]) -> Cell:
    return Cell(part_text(figure, part), part[kind(figure)])


def _subsets(document: Document) -> Table:
    rows = tuple(
        (
            text(", ".join(row["with"]) or "baseline"),
            text(row["state"]),
            *(value(f["key"], row["figures"][f["key"]]) for f in figures(document)),
        )
        for row in document["subsets"]
    )
    first, *columns = _columns(document, "With")
    columns = [first, Column("State", False), *columns]
    caption = "Every set that was simulated"
    return Table("subsets", caption, tuple(columns), rows, on_terminal=False)
