"""Renders the findings of any decision as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from reports.figures.charts import chart
from reports.frame.content import Plot, to_json
from reports.frame.page import fill, provenance, question
from sim.findings import (
    Cards,
    Drawing,
    Drawings,
    Findings,
    Heading,
    Headline,
    Part,
    Table,
    Thesis,
)
from sim.planning.answers import findings_of
from sim.planning.answers.definitions import DEFINITIONS


def render(command: str, document: Mapping[str, Any], more: Heading | None = None) -> str:
    """The page of ``document``, the result of ``command``, as HTML; a function of its arguments.

    The section ``more``, if it has parts, follows the first one.
    """
    found = findings_of(command, document)
    if more is not None and more.parts:
        first, *others = found.sections
        found = replace(found, sections=(first, more, *others))
    named = _named(found)
    return fill(
        "findings.html.j2",
        sections(found),
        {name: DEFINITIONS[name] for name in named},
        header={
            "name": found.name,
            "kind": found.kind,
            **question(
                found.name,
                found.kind,
                found.asked,
                found.description,
                on=found.hardware.replace(" x ", " \u00d7 "),
            ),
            "setup": found.setup,
        },
        headline=_in_short(found.headline),
        boxes=[p for section in found.sections for p in section.parts if isinstance(p, Thesis)],
        parts={
            section.name: [_drawn(part) for part in section.parts] for section in found.sections
        },
        provenance=provenance(document),
    )


def _in_short(headline: Headline) -> Headline:
    """``headline`` with how sure its answer is in the text below."""
    return headline._replace(text=f"{headline.sure} {headline.text}".strip())


def sections(findings: Findings) -> dict[str, str]:
    """Anchor -> heading, in the order of the page."""
    last = {"definitions": "Definitions"} if _named(findings) else {}
    return {each.name: each.title for each in findings.sections} | last


def _named(findings: Findings) -> dict[str, None]:
    """The definitions that tables and figures link to."""
    return dict.fromkeys(name for name in _links(findings) if name is not None)


def _links(findings: Findings) -> Iterator[str | None]:
    for section in findings.sections:
        for part in section.parts:
            if isinstance(part, Table):
                yield from (column.definition for column in part.columns)
                yield from (cell.definition for row in part.rows for cell in row)
            elif isinstance(part, Drawings | Cards):
                yield from (each.definition for each in part.each)


def _drawn(part: Part) -> tuple[str, Any]:
    """The name of the macro that shows ``part``, and what it shows."""
    if not isinstance(part, Drawings):
        return type(part).__name__.lower(), part
    wide, others = ([_plot(d) for d in part.each if d.wide is wanted] for wanted in (True, False))
    return "drawings", {"wide": wide, "plots": others, "nothing": part.nothing}


def _plot(drawing: Drawing) -> Plot:
    data: Any = drawing.data
    drawn = to_json(data if isinstance(data, go.Figure) else chart(data))
    title, definition, caption = drawing.title, drawing.definition, drawing.caption
    return Plot(drawing.name, title, definition, caption, drawn, kind=drawing.kind)
