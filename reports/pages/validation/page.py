"""Renders a validation as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.frame.asked import foot
from reports.frame.page import fill
from reports.frame.run_directory import Frames
from reports.pages.validation import content, tables
from reports.pages.validation.definitions import DEFINITIONS
from sim.planning.answers.validated import rows_of
from sim.units import counted

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "advice": "What to change",
    "figures": "Metrics",
    "latency": "Latency",
    "timeline": "Timeline",
    "iterations": "Iterations",
    "batches": "Batches and memory",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def render(
    document: Mapping[str, Any], observed: Frames, predicted: Frames, series: Mapping[str, Any]
) -> str:
    """The page; see ``reports.pages.validation.render_validation``."""
    seen, asked = document["observed"], document["predicted"]
    rows = rows_of(document)
    plots = content.plots(document, rows.errors, observed, predicted, series)
    regimes, levels = tables.regimes(rows), tables.levels(rows.levels)
    known = {
        "timeline": bool(plots["timeline"]),
        "iterations": regimes is not None,
        "batches": levels is not None,
    }
    missing = [SECTIONS[name].lower() for name, there in known.items() if not there]
    return fill(
        "validation.html.j2",
        {name: title for name, title in SECTIONS.items() if known.get(name, True)},
        DEFINITIONS,
        header={
            "name": seen["name"],
            "lead": f"{seen['engine']} on {seen['device']}",
            "setup": [
                ("Requests", counted(seen["requests"])),
                *content.load(observed.requests),
                ("Observed", seen["date"]),
                ("Predicted with", f"{asked['model']} on {asked['gpu']}"),
                ("Engine", asked["engine"]),
                ("Sample", document["sample"]["state"] or "engine not fitted to runs"),
            ],
        },
        headline=content.headline(document, rows.errors),
        cards=content.cards(document, rows),
        advice=document["advice"],
        sample=document["sample"],
        plots=plots,
        missing=missing,
        correction=document.get("correction"),
        tables={
            "figures": tables.figures(rows.errors),
            "regimes": regimes,
            "levels": levels,
        },
        agreement=document["composition"]["text"],
        observed=seen,
        predicted=asked,
        repeats=document["repeats"],
        notes=document["notes"],
        provenance=foot(document["infersim"], document),
    )
