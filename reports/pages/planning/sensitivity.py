"""Renders the ``result.json`` of ``infersim sensitivity`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import attained_at_ends as attained
from reports.figures.tornado import FOLLOWS
from reports.frame.content import Headline, Plot, to_json
from reports.frame.tables import Cell, PageColumn, PageTable
from reports.pages.planning.study import (
    CHANGES,
    DEFINITIONS,
    HEADS,
    StudyHead,
    effect,
    page,
    percent,
    reasons,
    text,
    tornado_plots,
    values,
    within,
)
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.planning.points.wording import verdict_word
from sim.units import show_share

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "numbers": "Numbers",
    "failures": "Not varied",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

NOTE = "Each input at its low and its high end, everything else unchanged."

CAPTION = (
    f"{NOTE} Solid line: the run; dashed: the share that the SLO asks for. "
    "Coloured: the verdict is another one."
)


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    tone = "warn" if document["flips"] else {True: "good", False: "bad"}.get(document["holds"])
    decides, scaling = _attained(document), document.get("scaling")
    still = decides is None and _decided(document)
    # which results of older versions lack
    sure = [*document.get("footnotes", ()), *document.get("sure", ())]
    return page(
        {
            **document,
            "notes": [
                *([_still(document)] if still else []),
                *([scaling["text"]] if scaling else []),
                *sure,
                *document["notes"],
            ],
        },
        StudyHead(
            "sensitivity",
            SECTIONS,
            _headline(document, tone or "neutral"),
            [
                ("Setup", document["setup"]),
                ("Iteration times", f"within ± {document['band']:.0%}"),
            ],
        ),
        wide=[] if decides is None else [decides],
        plots=_plots(document, decided=_decided(document)),
        tables=[_inputs(document)],
        failures=reasons(_reasons(document)),
        definitions={**DEFINITIONS, "attainment": OF_RUNS["attainment"]},
    )


def _headline(document: Mapping[str, Any], tone: str) -> Headline:
    """The decision and what flips it, then what leaves it open; results of older versions have one
    sentence of all."""
    short, told = document.get("short"), document["answer"]
    if short is None or short == told:
        return Headline(tone, told, document["verdict"]["text"])
    return Headline(tone, short, f"{told} {document['verdict']['text']}")


def _attained(document: Mapping[str, Any]) -> Plot | None:
    """What decides the verdict; None without an SLO that a share of requests decides."""
    if not _decided(document) or not attained.moves(document):
        return None
    caption = " ".join([CAPTION, *_together(document)])
    drawn = to_json(attained.figure(document))
    title = "Requests within the SLO"
    return Plot("attained", title, "attainment", caption, drawn, kind="own")


def _decided(document: Mapping[str, Any]) -> bool:
    """Whether a share of requests decides the verdict."""
    return document["verdict"]["attainment"] is not None and bool(attained.bars(document))


def _still(document: Mapping[str, Any]) -> str:
    """What takes the place of a figure without bars."""
    verdict = document["verdict"]
    now = show_share(verdict["attainment"], verdict["target"])
    told = f"No input alone moves the share within the SLO: {now} at either end of each."
    return " ".join([told, *_together(document)])


def _together(document: Mapping[str, Any]) -> list[str]:
    """The share with all worse ends together, where it is known."""
    together = document["together"]
    if together is None or together["attainment"] is None:
        return []
    share = show_share(together["attainment"], document["verdict"]["target"])
    return [f"With all worse ends together {share} are within the SLO."]


def _plots(document: Mapping[str, Any], *, decided: bool) -> list[Plot]:
    """What strains the fleet; throughput and goodput, which follow the traffic where it is held,
    only where no share of requests decides."""
    unread = ("tornado-output_throughput", "tornado-request_goodput") if decided else ()
    return [plot for plot in tornado_plots(document, NOTE) if plot.name not in unread]


def _inputs(document: Mapping[str, Any]) -> PageTable:
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    verdict = document["verdict"]
    holds = text(verdict_word(verdict["slo_state"], document["holds"]))
    rows = [(text("unchanged"), within(verdict["attainment"]), holds, *values(now))]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is None:
                rows.append(_row(document, f"{entry['title']} {end['text']}", end))
    together = document["together"]
    if together is not None and together["error"] is None:
        rows.append(_row(document, together["text"], together))
    columns = (
        PageColumn("Input", False),
        PageColumn("Within SLO (%)", definition="attainment"),
        PageColumn("SLO" if verdict["limits"] else "Traffic", False),
        *CHANGES.values(),
    )
    caption = "Every input: changes against the unchanged run on top; grey is within chance"
    return PageTable("inputs", caption, columns, tuple(rows))


def _row(document: Mapping[str, Any], title: str, end: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Coloured by effect, except for what grows with the traffic anyway."""
    changes = (
        percent(end["changes"][key])
        if key in FOLLOWS
        else effect(document, key, end["changes"][key])
        for key in HEADS
    )
    word = text(verdict_word(end["slo_state"], end["holds"]))
    return (text(title), within(end["attainment"]), word, *changes)


def _reasons(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [(e["title"], e["missing"]) for e in document["inputs"] if e["missing"] is not None]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is not None:
                found.append((f"{entry['title']} {end['text']}", end["error"]))
    return found
