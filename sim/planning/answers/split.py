"""Lays out the answer of ``infersim plan --disaggregate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.findings import (
    Cell,
    Column,
    Commands,
    Drawing,
    Drawings,
    Findings,
    Heading,
    Headline,
    Lines,
    Table,
)
from sim.planning.answers.cells import Document, by_outcome, share_columns, text, within
from sim.planning.answers.drawings import ChartAxis, ChartPoint, PointChart
from sim.planning.answers.fleets import (
    PLACE,
    counts,
    dollars,
    fleets_found,
    held,
    held_columns,
    load_text,
    place,
    rejected,
    scaling,
    simulation,
    under,
)
from sim.planning.points.wording import held_text, limit_name, share

PHASES = ("prefill", "decode")


def findings(document: Document) -> Findings:
    """The cheapest fleet apart and whether it pays, then all fleets, and the ratios tried."""
    said = (
        *document["traffic_notes"],
        *document["notes"],
        f"SLO: {'; '.join(document['promises']) or 'none, so that stable fleets hold'}.",
        *document["run_lengths"]["text"],
    )
    best = document["fleets"][0]
    start = Commands(f"1. {_name(best)}", (("Simulate the fleet", simulation(document, best)),))
    return fleets_found(
        document,
        "fleets apart",
        headline(document),
        (
            Heading("summary", "Summary", (Lines(said, ""),)),
            Heading("fleets", "Fleets", (fleets(document),)),
            Heading("ratio", "Ratios that were tried", (_ratios(document), tried(document))),
            rejected(document, "Prefill | decode", "plan_cost"),
            Heading("launch", "How to try it", (start,)),
        ),
        ("Pairs of layouts", document["layout_pairs"]),
    )


def headline(document: Document) -> Headline:
    """The cheapest fleet apart, how sure it is, and whether it pays."""
    best = document["fleets"][0]
    sure, holds = held_text(best["trust"])
    title = f"Cheapest apart: {_name(best)}, ${best['usd_per_hour']:,.2f}/h"
    return Headline(
        "good" if sure else "warn", title, " ".join((*scaling(document), holds, document["text"]))
    )


def _name(fleet: Mapping[str, Any]) -> str:
    return ", ".join(f"{fleet[phase]['text']} {phase}" for phase in PHASES)


def fleets(document: Document) -> Table:
    """The cheapest fleets apart, and the one whose replicas do both."""
    room = len(document["promises"]) < 2  # which the column of the limits takes
    columns = (
        PLACE,
        Column("Prefill", False, fold=1),
        Column("Decode", False, fold=1),
        Column("GPUs", on_terminal=room),
        Column("USD/h", definition="plan_cost"),
        *held_columns(document),
        Column("How sure", False, "error_band", on_terminal=room),
        *(Column(f"One less to {phase} breaks", False, "binds") for phase in PHASES),
    )
    rows = [
        (
            place(fleet),
            *(text(fleet[phase]["text"]) for phase in PHASES),
            *_figures(fleet),
            *(text(limit_name(fleet[phase]["one_less_breaks"] or "-")) for phase in PHASES),
        )
        for fleet in document["fleets"]
    ]
    both = document["unified"]
    if both["reason"] is None:
        name = text(both["text"])
        rows.append((Cell("-", None), name, text("both"), *_figures(both), text(""), text("")))
    return Table("fleets", f"The cheapest fleets, {under(document)}", columns, tuple(rows))


def _figures(fleet: Mapping[str, Any]) -> tuple[Cell, ...]:
    cost = dollars(fleet["usd_per_hour"])
    return counts(fleet["gpus"]), cost, *held(fleet["at_target"]), text(fleet["trust"])


def _ratios(document: Document) -> Drawings:
    prefill, decode = (document["fleets"][0][phase]["layout"] for phase in PHASES)
    note = (
        f"Fleets of {prefill} that prefill and {decode} that decode, simulated under "
        f"{load_text(document['target'])}, the cheapest first until one holds. What is not drawn "
        "was ruled out: by one that is, or since a phase needs more whatever the other has."
    )
    drawn = replica_ratios(document)
    return Drawings(
        (Drawing("split-ratios", "Replicas of each phase", "attainment", note, drawn, kind=""),)
    )


def replica_ratios(document: Document) -> PointChart:
    """Which numbers of replicas of the cheapest pair hold the load."""
    tried = document["fleets"][0]["tried"]
    points = []
    for one in tried:
        kept = "" if one["attainment"] is None else share(one["attainment"])
        text = f"${one['usd_per_hour']:,.2f}/h" + (kept and f", {kept} within the SLO")
        points.append((one["outcome"], ChartPoint(one["prefill"], one["decode"], text, kept)))
    return PointChart(_replicas(tried, "prefill"), _replicas(tried, "decode"), by_outcome(points))


def _replicas(tried: Sequence[Mapping[str, Any]], phase: str) -> ChartAxis:
    counts = [one[phase] for one in tried]
    return ChartAxis(f"replicas that {phase}", "count", ends=(min(counts) - 0.6, max(counts) + 0.7))


def tried(document: Document) -> Table:
    """The figures of every fleet that was tried with the cheapest pairs; a terminal has those of
    the first."""
    columns = (
        PLACE,
        *(Column(f"{phase.capitalize()} replicas") for phase in PHASES),
        Column("USD/h", definition="plan_cost"),
        *share_columns(document),
        Column("Outcome", False),
        Column("Breaks first", False, "binds"),
    )
    several = len(document["promises"]) > 1
    rows = tuple(
        (
            place(fleet),
            *(counts(one[phase]) for phase in PHASES),
            dollars(one["usd_per_hour"]),
            *([text(one["part"])] if several else []),
            within(one["attainment"]),
            text(one["outcome"]),
            text(limit_name(one["breaks"])),
        )
        for fleet in document["fleets"]
        for one in fleet["tried"]
    )
    first = tuple(range(len(document["fleets"][0]["tried"])))
    return Table("tried", "Fleets that were simulated", columns, rows, shown=first)
