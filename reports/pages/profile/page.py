"""Renders what is known of a profile as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame.asked import foot
from reports.frame.page import fill
from reports.pages.profile import content, tables
from reports.pages.profile.definitions import DEFINITIONS

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "predicted": "Predicted against measured",
    "errors": "Errors",
    "residuals": "Residuals by regime",
    "roofline": "Roofline",
    "curves": "Curves",
    "parameters": "Parameters",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page; those without content are left out."""


def _shown_as(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The words for the measurements in the head of the page."""
    measured = document["measurements"]
    if measured is None:
        return "not shipped with the profile"
    if tables.is_sample(document):
        return f"a sample of {len(points['operator']):,} timings"
    return str(measured["file"])


def render(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The page; see ``reports.pages.profile.render_profile``."""
    plots, regimes = content.plots(document, points), tables.regimes(document)
    empty = {"predicted": not plots["predicted"]}
    empty["residuals"] = not plots["residuals"] and not regimes.rows
    return fill(
        "profile.html.j2",
        {key: heading for key, heading in SECTIONS.items() if not empty.get(key)},
        DEFINITIONS,
        header={
            "name": document["name"],
            "title": document["title"],
            "source": document["source"],
            "date": document["date"],
        },
        headline=content.headline(document),
        cards=content.cards(document),
        plots=plots,
        tables={
            "errors": tables.errors(document),
            "regimes": regimes,
            "ranges": tables.ranges(document),
            "ceilings": tables.ceilings(document),
            "layers": tables.layers(document),
        },
        parameters=[
            tables.parameters(entry, index) for index, entry in enumerate(document["parameters"])
        ],
        measurements=document["measurements"],
        shown_as=_shown_as(document, points),
        usual=content.USUAL,
        facts=document["facts"],
        notes=document["notes"],
        provenance=foot(document["version"], document),
    )
