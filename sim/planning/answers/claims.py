"""Lays out the answer of ``infersim claims``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Findings, Heading, Headline, Lines, Part, Table, Thesis
from sim.planning.answers.cells import Document, text
from sim.units import milliseconds, number, show_rate


def headline(document: Mapping[str, Any]) -> str:
    """How many claims hold, and which came out otherwise than their authors say."""
    verdicts, wrong = [e["verdict"] for e in document["claims"]], document["unexpected"]
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "fails")}
    told = ", ".join(
        f"{count} {verdict if count == 1 else verdict.removesuffix('s')}"
        for verdict, count in counts.items()
        if count
    )
    of = f"Of {len(verdicts)} claim{'s' * (len(verdicts) != 1)}"
    if not wrong:
        return f"{of} {told}, as was expected."
    return f"{of} {told}. Unexpected: {', '.join(wrong)}."


WRITTEN: Mapping[str, Callable[[float], str]] = {
    "ms": milliseconds,
    "share": lambda value: f"{100 * value:.1f} %",
    "usd": lambda value: f"${value:,.2f}",
    "count": lambda value: f"{value:,.0f}",
    "bytes": lambda value: show_rate(value, "B"),
}
"""Kind of a figure -> how its value is written, where that is no plain number."""


def shown(figure: Mapping[str, Any], value: float | None) -> str:
    """The value of a figure with its unit."""
    return "-" if value is None else WRITTEN.get(figure["kind"], number)(value)


TONES = {"holds": "good", "fails": "bad"}

MOST_SHOWN = 4
"""Variants whose figures stand in the list of claims."""

MOST_FIGURES = 3
"""Figures of each that stand there."""


def findings(document: Document) -> Findings:
    """How many claims hold, then each with its figures and statements."""
    parts = tuple(part for entry in document["claims"] for part in _claim(entry))
    return Findings(
        "What is said about serving, and what comes out",
        "claims",
        document["infersim"],
        Headline("bad" if document["unexpected"] else "good", headline(document)),
        (Heading("summary", "Summary"), Heading("claims", "Claims", parts)),
        (("Claims", str(len(document["claims"]))),),
        description="A claim holds if all that it says of simulated figures is true.",
    )


def _claim(entry: Mapping[str, Any]) -> tuple[Part, ...]:
    verdict, because = entry["verdict"], entry["because"]
    if verdict != entry["expected"]:
        because = f"Its author expects: {entry['expected']}. {because}"
    box = Thesis(entry["name"], TONES[verdict], entry["claim"], verdict, because, _brief(entry))
    checks = (
        f"{'Yes' if check['true'] else 'No'}: `{check['statement']}` ({check['text']})"
        for check in entry["checks"]
    )
    return box, _table(entry), Lines(tuple(checks))


def _brief(entry: Mapping[str, Any]) -> str:
    """The figures that the claim compares first, of the first variants and of the last."""
    variants = entry["variants"]
    found = [*variants[: MOST_SHOWN - 1], variants[-1]] if len(variants) > MOST_SHOWN else variants
    told = []
    for figure in compared(entry)[:MOST_FIGURES]:
        values = (
            f"{shown(figure, variant['figures'][figure['key']])} "
            f"({variant['name'].replace('_', ' ')})"
            for variant in found
        )
        told.append(f"{figure['title']}: {', '.join(values)}")
    return "; ".join(told)


def compared(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The figures that the statements compare, in their order; without any, the first of those
    shown."""
    figures: Sequence[Mapping[str, Any]] = entry["figures"]
    stated = (
        each for check in entry["checks"] for each in figures if each["key"] in check["statement"]
    )
    return list({each["key"]: each for each in stated}.values()) or figures[:1]


def _table(entry: Mapping[str, Any]) -> Table:
    """The figures of each variant; the one that is compared has bars, as wide as its part of the
    largest."""
    columns = [
        Column("Variant", False),
        *(Column(f["title"], definition=f["definition"]) for f in entry["figures"]),
    ]
    drawn = compared(entry)[0]["key"]
    most = max((v["figures"][drawn] or 0.0 for v in entry["variants"]), default=0.0)
    rows = []
    for variant in entry["variants"]:
        cells = [text(variant["name"].replace("_", " "))]
        for figure in entry["figures"]:
            value = variant["figures"][figure["key"]]
            bar = value / most if value is not None and most and figure["key"] == drawn else None
            cells.append(Cell(shown(figure, value), value, bar=bar))
        rows.append(tuple(cells))
    return Table(f"claim-{entry['name']}", "Figures", tuple(columns), tuple(rows))
