"""Renders what is known of a profile as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.page import fill
from reports.profile import content, tables
from reports.profile.definitions import DEFINITIONS

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "provenance": "Provenance",
    "errors": "Errors",
    "predicted": "Predicted against measured",
    "residuals": "Residuals by regime",
    "roofline": "Roofline",
    "curves": "Curves",
    "parameters": "Parameters",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def render(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The page; see ``reports.profile.render_profile``."""
    measurements = document["measurements"]
    return fill(
        "profile.html.j2",
        SECTIONS,
        DEFINITIONS,
        header={
            "name": document["name"],
            "title": document["title"],
            "source": document["source"],
            "date": document["date"],
        },
        headline=content.headline(document),
        cards=content.cards(document),
        plots=content.plots(document, points),
        tables={
            "errors": tables.errors(document),
            "regimes": tables.regimes(document),
            "ranges": tables.ranges(document),
            "ceilings": tables.ceilings(document),
            "layers": tables.layers(document),
        },
        parameters=[
            tables.parameters(entry, index) for index, entry in enumerate(document["parameters"])
        ],
        measurements=measurements,
        facts=document["facts"],
        notes=document["notes"],
        provenance={"version": document["version"]},
    )
