"""Renders the ``result.json`` of ``infersim plan --disaggregate`` as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from reports.figures import split_ratios
from reports.frame.asked import provenance
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase, show
from reports.frame.page import fill
from reports.pages.planning.plan import header, rejected
from sim.findings import Cell, Column, Headline, Table
from sim.planning.answers.cells import named, share_columns, within
from sim.planning.answers.definitions import SPLIT, chosen
from sim.planning.points.wording import held_text, limit_name, nearest_promise, rank

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "fleets": "Fleets",
    "ratio": "Ratios that were tried",
    "rejected": "Not recommended",
    "definitions": "Definitions",
}


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    best = document["fleets"][0]
    return fill(
        "split.html.j2",
        SECTIONS,
        chosen(SPLIT),
        header=header(document, "fleets apart", ("Pairs of layouts", document["layout_pairs"])),
        headline=headline(document),
        notes=[*(f"SLO: {each}" for each in document["promises"]), *_told(document)],
        fleets=fleets(document),
        simulate=f"infersim run {shlex.quote(document['file'])} {best['run']}",
        plots=[ratios(document)],
        tried=tried(document),
        rejected=rejected(document, "Prefill | decode", "plan_cost"),
        provenance=provenance(document),
    )


def _told(document: Mapping[str, Any]) -> list[str]:
    """How a trace gets its load, what of it is not replayed, what else is to be known."""
    scaling = document["scaling"]
    first = [] if scaling is None else [scaling["text"]]
    lengths = document.get("run_lengths", {}).get("text", [])  # which older versions lack
    return [*first, *document["traffic_notes"], *document.get("notes", ()), *lengths]


def headline(document: Mapping[str, Any]) -> Headline:
    """The cheapest fleet apart, how sure it is, and whether it pays."""
    best = document["fleets"][0]
    sure, held = held_text(best["trust"])
    cost = phrase(best["usd_per_hour"], "usd")
    title = f"{best['prefill']['text']} prefill, {best['decode']['text']} decode: {cost} per hour"
    return Headline("good" if sure else "warn", title, f"{held} {document['text']}")


def fleets(document: Mapping[str, Any]) -> Table:
    """The cheapest fleets apart, and the one whose replicas do both."""
    columns = (
        Column("Rank"),
        Column("Prefill", False),
        Column("Decode", False),
        Column("GPUs"),
        Column("USD/h", definition="plan_cost"),
        *share_columns(document),
        *(
            Column(f"{name.upper()} {rank(document['shares'][name])}", definition=name, unit="ms")
            for name in ("ttft", "tpot")
        ),
        Column("How sure", False, "error_band"),
        Column("One less to prefill", False, "binds"),
        Column("One less to decode", False, "binds"),
    )
    rows = [
        (
            Cell(str(fleet["rank"]), fleet["rank"]),
            *(Cell(fleet[phase]["text"], fleet[phase]["text"]) for phase in ("prefill", "decode")),
            *_figures(fleet),
            *(_breaks(fleet[phase]["one_less_breaks"]) for phase in ("prefill", "decode")),
        )
        for fleet in document["fleets"]
    ]
    unified = document["unified"]
    if unified["reason"] is None:
        both = Cell(unified["text"], unified["text"])
        unknown = Cell(*show(None, "number"))
        blank = Cell("", "")
        rows.append((unknown, both, Cell("both", "both"), *_figures(unified), blank, blank))
    load = phrase(document["target"], "number", "requests/s")
    caption = f"The cheapest fleets, under {load} (the rate with its headroom)"
    return Table("fleets", caption, columns, tuple(rows))


def _figures(fleet: Mapping[str, Any]) -> tuple[Cell, ...]:
    seen = fleet["at_target"]
    kept = nearest_promise(seen)
    return (
        Cell(*show(fleet["gpus"], "count")),
        Cell(*show(fleet["usd_per_hour"], "usd")),
        *([] if kept is None or len(seen["promises"]) < 2 else [named(kept)]),
        within(None if kept is None else kept["attainment"]),
        *(Cell(*show(seen[f"slo_{name}_ms"], "ms")) for name in ("ttft", "tpot")),
        Cell(fleet["trust"], fleet["trust"]),
    )


def _breaks(limit: str | None) -> Cell:
    text = f"{limit_name(limit)} breaks" if limit else ""
    return Cell(text, text)


def ratios(document: Mapping[str, Any]) -> Plot:
    """Which numbers of replicas of the cheapest pair hold the load."""
    best = document["fleets"][0]
    load = phrase(document["target"], "number", "requests/s")
    note = (
        f"Fleets of {best['prefill']['layout']} that prefill and {best['decode']['layout']} that "
        f"decode, simulated under {load}, the cheapest first until one holds. What is not drawn "
        "was ruled out: by one that is, or since a phase needs more whatever the other has."
    )
    drawn = to_json(split_ratios.figure(best["tried"]))
    return Plot("split-ratios", "Replicas of each phase", "attainment", note, drawn)


def tried(document: Mapping[str, Any]) -> Table:
    """The figures of every fleet that was tried with the cheapest pair."""
    columns = (
        Column("Rank"),
        Column("Prefill replicas"),
        Column("Decode replicas"),
        Column("USD/h", definition="plan_cost"),
        *share_columns(document),
        Column("Outcome", False),
        Column("Breaks first", False, "binds"),
    )
    rows = tuple(
        (
            Cell(str(fleet["rank"]), fleet["rank"]),
            Cell(*show(one["prefill"], "count")),
            Cell(*show(one["decode"], "count")),
            Cell(*show(one["usd_per_hour"], "usd")),
            *([Cell(one["part"], one["part"])] if len(document["promises"]) > 1 else []),
            within(one["attainment"]),
            Cell(one["outcome"], one["outcome"]),
            Cell(limit_name(one["breaks"]), one["breaks"]),
        )
        for fleet in document["fleets"]
        for one in fleet["tried"]
    )
    return Table("tried", "Fleets that were simulated", columns, rows)
