"""Lays out the answer of ``infersim claims``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Findings, Heading, Headline, Lines, Part, Table, Thesis
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import Document, text
from sim.units import milliseconds, number


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


def shown(figure: Mapping[str, Any], value: float | None) -> str:
    """The value of a metric with its unit."""
    if value is None:
        return "-"
    match figure["kind"]:
        case "ms":
            return milliseconds(value)
        case "share":
            return f"{100 * value:.1f} %"
        case "usd":
            return f"${value:,.2f}"
        case "count":
            return f"{value:,.0f}"
    return number(value)


TONES = {"holds": "good", "fails": "bad"}

MOST_SHOWN = 4
"""Variants whose figures stand in the list of claims."""


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
    """The figure that the claim compares first, of the first variants and of the last."""
    figure, variants = compared(entry), entry["variants"]
    found = [*variants[: MOST_SHOWN - 1], variants[-1]] if len(variants) > MOST_SHOWN else variants
    values = (
        f"{shown(figure, variant['figures'][figure['key']])} ({variant['name'].replace('_', ' ')})"
        for variant in found
    )
    return f"{figure['title']}: {', '.join(values)}"


def compared(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figure that the first statement about one of those shown compares; without any, the first
    of them."""
    figures: Sequence[Mapping[str, Any]] = entry["figures"]
    stated = (
        each for check in entry["checks"] for each in figures if each["key"] in check["statement"]
    )
    return next(stated, figures[0])


def _table(entry: Mapping[str, Any]) -> Table:
    """The figures of each variant; the one that is compared has bars, as wide as its part of the
    largest."""
    columns = [
        Column("Variant", False),
        *(Column(f["title"], definition=METRIC[f["key"]].definition) for f in entry["figures"]),
    ]
    drawn = compared(entry)["key"]
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
