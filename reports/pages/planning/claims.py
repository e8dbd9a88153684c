"""Renders the ``result.json`` of ``infersim claims`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame.asked import provenance
from reports.frame.content import Headline
from reports.frame.page import fill
from reports.frame.tables import Cell, PageColumn, PageTable
from reports.pages.planning.study import text
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.definitions import METRIC
from sim.planning.claims.words import headline, shown

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "claims": "Claims",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

TONES = {"holds": "good", "fails": "bad"}

MOST_TOLD = 4
"""Variants whose figures stand in the list of claims."""


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    keys = [figure["key"] for entry in document["claims"] for figure in entry["figures"]]
    named = dict.fromkeys(METRIC[key].definition for key in keys)
    return fill(
        "claims.html.j2",
        SECTIONS,
        {name: OF_RUNS[name] for name in named},
        header={
            "title": "claims",
            "kind": "claims",
            "name": "What is said about serving, and what comes out",
            "asked": "",
            "changes": "",
            "lead": "A claim holds if all that it says of simulated figures is true.",
            "setup": [("Claims", str(len(document["claims"])))],
        },
        headline=Headline("bad" if document["unexpected"] else "good", headline(document)),
        index=[
            (entry["name"], entry["claim"], entry["verdict"], TONES[entry["verdict"]], _told(entry))
            for entry in document["claims"]
        ],
        claims=[{**entry, "tone": TONES[entry["verdict"]], "table": _table(entry)}
                for entry in document["claims"]],
        provenance=provenance(document),
    )  # fmt: skip


def _told(entry: Mapping[str, Any]) -> str:
    """The figure that the claim compares first, of the first variants and of the last."""
    figure, variants = _compared(entry), entry["variants"]
    found = [*variants[: MOST_TOLD - 1], variants[-1]] if len(variants) > MOST_TOLD else variants
    values = (
        f"{variant['name'].replace('_', ' ')} {shown(figure, variant['figures'][figure['key']])}"
        for variant in found
    )
    return f"{figure['title']}: {', '.join(values)}"


def _compared(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figure that the first statement about one of those shown compares; without any, the first
    of them."""
    figures: Sequence[Mapping[str, Any]] = entry["figures"]
    stated = (
        each for check in entry["checks"] for each in figures if each["key"] in check["statement"]
    )
    return next(stated, figures[0])


def _table(entry: Mapping[str, Any]) -> PageTable:
    """The figures of each variant; the one that is compared has bars, as wide as its part of the
    largest."""
    columns = [
        PageColumn("Variant", False),
        *(PageColumn(f["title"], definition=METRIC[f["key"]].definition) for f in entry["figures"]),
    ]
    drawn = _compared(entry)["key"]
    most = max((v["figures"][drawn] or 0.0 for v in entry["variants"]), default=0.0)
    rows = []
    for variant in entry["variants"]:
        cells = [text(variant["name"].replace("_", " "))]
        for figure in entry["figures"]:
            value = variant["figures"][figure["key"]]
            bar = value / most if value is not None and most and figure["key"] == drawn else None
            cells.append(Cell(shown(figure, value), value, bar=bar))
        rows.append(tuple(cells))
    return PageTable(f"claim-{entry['name']}", "Figures", tuple(columns), tuple(rows))
