"""Renders the ``result.json`` of ``infersim find`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import find_attainment, find_curve
from reports.frame.asked import on_gpus, provenance, question
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, phrase, show
from reports.frame.page import fill
from reports.pages.planning.plan_words import FIND, chosen
from sim.findings import Card, Cell, Column, Headline, Table
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import named, share_columns, within
from sim.planning.points.wording import LoadOutcome, limit_name, nearest_promise, outcome_text, rank
from sim.units import show_load

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "curve": "Throughput and latency",
    "probes": "Loads",
    "definitions": "Definitions",
}


TONES: Mapping[str, str] = {
    LoadOutcome.HOLDS: "good",
    LoadOutcome.FAILS: "bad",
    LoadOutcome.OPEN: "warn",
}

FIRST = ("The scenario's own load", "If iterations are ")
"""How the sentences begin that stand with the answer."""


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    first = [told for told in document["sentences"] if told.startswith(FIRST)]
    return fill(
        "find.html.j2",
        SECTIONS,
        chosen(FIND),
        header={
            "name": document["scenario"],
            "kind": "highest load",
            **question(
                document["scenario"],
                "highest load",
                document.get("asked"),
                document["description"],
                on=on_gpus(document),
            ),
            "setup": [
                ("Model", document["model"]),
                ("GPUs", on_gpus(document)),
                ("Looked for", f"highest {document['max']}"),
            ],
        },
        headline=Headline(_tone(document), document["sentences"][0]),
        first=first,
        sentences=[told for told in document["sentences"][1:] if told not in first],
        cards=cards(document),
        plots=plots(document),
        probes=probes(document),
        provenance=provenance(document),
    )


def _tone(document: Mapping[str, Any]) -> str:
    """The tone of the own load: whether what is asked for holds."""
    own = document["own"]
    return "neutral" if own is None else TONES[own["outcome"]]


def cards(document: Mapping[str, Any]) -> list[Card]:
    """The load, what it is of the own one, what breaks first, the capacity and the knee."""
    unit, own, knee = document["unit"], document["own"], document["knee"]
    fails = document["fails_at"]
    words = {probe["load"]: outcome_text(probe) for probe in document["probes"]}
    details = (
        ()
        if fails is None
        else (f"{phrase(fails, 'number', unit)}: {words.get(fails, LoadOutcome.FAILS)}",)
    )
    sure = (document.get("trust") or {}).get("sure_up_to")  # which results of older versions lack
    if sure is not None:
        details = (f"sure to hold: {phrase(sure, 'number', unit)}", *details)
    made = [Card("highest", "Highest load", show(document["load"], "number").text, unit, details)]
    if own is not None:
        grown = document["headroom"]
        room = MISSING if grown is None else f"{show(1 + grown, 'number').text}x"
        told = f"{phrase(own['load'], 'number', unit)} {own['outcome']}"
        made.append(Card("highest", "Headroom", room, "of the own load", (told,), _tone(document)))
    if document.get("first_to_break") is not None:
        breaks = limit_name(document["first_to_break"])
        made.append(Card("highest", "Breaks first", breaks[:1].upper() + breaks[1:], "", ()))
    if document.get("saturated") is not None:
        full = show(document["saturated"], "number").text
        made.append(Card("highest", "Full batches serve", full, unit, ("without any limit",)))
    if knee is not None:
        low, high = (show(load, "number").text for load in knee["between"])
        around = (
            "or above; no higher load holds" if knee["at_end"] else f"between {low} and {high}",
        )
        made.append(Card("knee", "Knee", show(knee["load"], "number").text, unit, around))
    return made


def plots(document: Mapping[str, Any]) -> list[Plot]:
    """Latencies over load, and the share within the SLO if there is one."""
    note = "Hover to see how often each load was simulated."
    names = ("ttft", "tpot")
    made = [
        Plot(
            *(f"curve-{name}", f"{name.upper()} over load", name, note),
            to_json(find_curve.figure(document, name)),
        )
        for name in names
    ]
    if document["promises"]:
        drawn = to_json(find_attainment.figure(document))
        title, note = "Requests within the SLO", "Bars: 95 % interval. Triangles: below the axis."
        made.append(Plot("attainment", title, "interval", note, drawn, kind=""))
    return made


def probes(document: Mapping[str, Any]) -> Table:
    """Every load that was simulated; of several limits each says which is nearest."""
    columns = (
        Column(f"Load ({document['unit']})", definition="highest"),
        Column("Outcome", False),
        *share_columns(document),
        Column("from (%)", definition="interval"),
        Column("to (%)", definition="interval"),
        *(
            Column(f"{name.upper()} {rank(document['shares'][name])}", definition=name, unit="ms")
            for name in ("ttft", "tpot")
        ),
        Column(METRIC["output_throughput"].head, definition="output_throughput"),
        Column("Runs"),
        Column("Requests in each"),
    )
    return Table(
        "probes",
        "Every load that was simulated",
        columns,
        tuple(_row(probe) for probe in document["probes"]),
    )


def _row(probe: Mapping[str, Any]) -> tuple[Cell, ...]:
    word = outcome_text(probe)
    kept = nearest_promise(probe)
    shares = [within(None if kept is None else kept[key]) for key in ("attainment", "low", "high")]
    return (
        Cell(show_load(probe["load"]), probe["load"]),
        Cell(word, word),
        *([] if kept is None or len(probe["promises"]) < 2 else [named(kept)]),
        *shares,
        *(Cell(*show(probe[f"slo_{name}_ms"], "ms")) for name in ("ttft", "tpot")),
        Cell(*show(probe["output_throughput"], "number")),
        Cell(*show(probe["runs"], "count")),
        Cell(*show(probe["requests_per_run"], "count")),
    )
