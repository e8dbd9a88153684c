"""Renders the ``result.json`` of ``infersim plan`` as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from reports.figures import plan_cost, plan_pareto
from reports.frame.asked import provenance, question
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase, show
from reports.frame.page import fill
from sim.findings import Cell, Column, Headline, Table
from sim.planning.answers.cells import named, share_columns, within
from sim.planning.answers.definitions import PLAN, chosen
from sim.planning.points.wording import (
    as_cheap_text,
    held_text,
    limit_name,
    nearest_promise,
    rank,
)
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "fleets": "Fleets",
    "front": "Cost and latency",
    "launch": "How to start them",
    "rejected": "Not recommended",
    "definitions": "Definitions",
}


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    fleets_found = document["fleets"]
    return fill(
        "plan.html.j2",
        SECTIONS,
        chosen(PLAN),
        header=header(document, "fleets", ("Layouts tried", document["layouts"])),
        headline=headline(document),
        objectives=objectives(document),
        fleets=fleets(document),
        running_costs=running_costs(document),
        bands=bands(document),
        prices=prices(document),
        plots=plots(document),
        costs=costs(document),
        launches=fleets_found,
        file=shlex.quote(document.get("file", "scenario.yaml")),
        notes=_notes(document),
        rejected=rejected(document),
        provenance=provenance(document),
    )


def _notes(document: Mapping[str, Any]) -> list[str]:
    """What is to be known of the formats of some GPUs, and of the commands."""
    fleets_found = document["fleets"]
    launched = fleets_found[0]["launch"]["notes"] if fleets_found else []
    said = " ".join(launched)
    ranked = [
        f"#{each['rank']}: {note.rstrip('.')}." for each in fleets_found for note in each["notes"]
    ]
    return [
        *ranked,
        *launched,
        *(note for note in document.get("format_notes", ()) if note not in said),
    ]


def objectives(document: Mapping[str, Any]) -> list[str]:
    """How a trace gets its load, what of it is not replayed, what had to hold, and in how long
    runs it did."""
    scaling = document.get("scaling")
    stable = ["The scenario has no SLO: a fleet holds what the verdict calls stable."]
    promised = [f"SLO: {text}" for text in document["promises"]] or stable
    notes = [*document.get("traffic_notes", ()), *document.get("notes", ())]
    told = [*([] if scaling is None else [scaling["text"]]), *notes]
    lengths = document.get("run_lengths")  # which results of older versions lack
    worth = document.get("worth")
    more = [*([] if worth is None else [worth["text"]]), document.get("whole_runs") or ""]
    survive = (document.get("survive") or {}).get("text", [])
    return [
        *told,
        *promised,
        *survive,
        *([] if lengths is None else lengths["text"]),
        *filter(None, more),
    ]


def header(document: Mapping[str, Any], kind: str, tried: tuple[str, int]) -> dict[str, Any]:
    """The head of a page about fleets of that ``kind``; ``tried`` says of what how many were."""
    name, number = tried
    return {
        "name": document["scenario"],
        "kind": kind,
        **question(document["scenario"], kind, document.get("asked"), document["description"]),
        "setup": [
            ("Model", document["model"]),
            ("Rate", phrase(document["rate"], "number", "requests/s")),
            ("Headroom", phrase(document["headroom"], "share")),
            ("Router", document["router"].replace("-", " ")),
            (name, f"{number:,}"),
        ],
    }


def headline(document: Mapping[str, Any]) -> Headline:
    """The cheapest fleet, and whether it stays so within the error of predicted times, and at
    listed prices."""
    if not document["fleets"]:
        return Headline("bad", "No fleet holds it", "What speaks against each is listed below.")
    best, ranking = document["fleets"][0], document["ranking"]
    cost = phrase(best["usd_per_hour"], "usd")
    replicas = phrase(best["replicas"], "count", "replica" + "s" * (best["replicas"] != 1))
    paid = ranking["prices"]
    sure, held = held_text(best["error_band"]["trust"])
    settled = ranking["survives"] and paid["survives"] is not False
    tone = "good" if settled and sure else "warn"
    text = f"{held} {ranking['text']} {paid['text']}"
    tied = as_cheap_text(ranking)
    month = f"${best['usd_per_month']:,.0f}"
    title = f"{replicas} of {best['layout']}: {cost} per hour, {month} a month{tied}"
    return Headline(tone, title, text)


def plots(document: Mapping[str, Any]) -> list[Plot]:
    """Cost against both latencies; none without a fleet that holds."""
    if not document["sized"]:
        return []
    one = len(document["sized"]) == 1
    count = phrase(
        len(document["sized"]), "count", "fleet that holds" if one else "fleets that hold"
    )
    load = phrase(document["target"], "number", "requests/s")
    note = f"{count} {load} (the rate with its headroom). Numbers: replicas."
    return [
        Plot(
            *(f"pareto-{name}", f"Cost and {name.upper()}", name, note),
            to_json(plan_pareto.figure(document, name)),
            kind="tall",
        )
        for name in ("ttft", "tpot")
    ]


def costs(document: Mapping[str, Any]) -> list[Plot]:
    """What the cheapest fleets cost, with the error band; none without a fleet that holds."""
    if not document["fleets"]:
        return []
    load = phrase(document["target"], "number", "requests/s")
    note = (
        f"Every fleet holds {load}. Whiskers: the cost if iterations are faster or slower than "
        "predicted, which takes other numbers of replicas."
    )
    drawn = to_json(plan_cost.figure(document))
    return [Plot("plan-cost", "Cost of the fleets", "plan_cost", note, drawn, kind="own")]


def fleets(document: Mapping[str, Any]) -> Table:
    """The cheapest fleets."""
    short = (document.get("run_lengths") or {}).get("lasts")  # which older versions lack
    at_slo = f"Requests/s at SLO{' in short runs' if short else ''}"
    columns = (
        Column("Rank"),
        Column("Fleet", False),
        Column("GPUs"),
        Column("USD/h", definition="plan_cost"),
        Column(at_slo, definition="rate_at_slo"),
        Column("Headroom (%)", definition="headroom"),
        *share_columns(document),
        Column("Outcome", False),
        *(
            Column(f"{name.upper()} {rank(document['shares'][name])}", definition=name, unit="ms")
            for name in ("ttft", "tpot")
        ),
        Column("Breaks first", False, "binds"),
        Column("With one replica less", False, "binds"),
    )
    load = phrase(document["target"], "number", "requests/s")
    caption = f"The cheapest fleets, under {load} (the rate with its headroom)"
    return Table("fleets", caption, columns, tuple(map(_fleet, document["fleets"])))


def running_costs(document: Mapping[str, Any]) -> Table:
    """What a token, and a month, of the cheapest fleets cost in money and in energy."""
    columns = (
        Column("Rank"),
        Column("Fleet", False),
        Column("USD a month", definition="plan_cost"),
        Column("USD a year", definition="plan_cost"),
        Column(PER_OUTPUT_TOKENS, definition="cost"),
        Column(PER_TOKENS, definition="cost"),
        Column("J/token", definition="energy"),
        Column("kWh a month", definition="energy"),
        Column("kg CO2e a month", definition="co2e"),
    )
    rows = [
        (
            *_named(fleet),
            *(Cell(*show(fleet[f"usd_per_{span}"], "count")) for span in ("month", "year")),
            Cell(*show(fleet["usd_per_million_output_tokens"], "usd")),
            Cell(*show(fleet["usd_per_million_tokens"], "usd")),
            Cell(*show(fleet["joules_per_output_token"], "number")),
            Cell(*show(fleet.get("kwh_per_month"), "number")),
            Cell(*show(fleet.get("co2e_kg_per_month"), "number")),
        )
        for fleet in document["fleets"]
    ]
    load = phrase(document["rate"], "number", "requests/s")
    return Table("running-costs", f"Cost and energy, at {load}", columns, tuple(rows))


def _named(fleet: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """The place of the fleet, and its name."""
    name = f"{fleet['replicas']} x ({fleet['layout']})"
    return Cell(str(fleet["rank"]), fleet["rank"]), Cell(name, name)


def _fleet(fleet: Mapping[str, Any]) -> tuple[Cell, ...]:
    seen, first = fleet["at_target"], limit_name(fleet["binds"])
    fewer = fleet.get("smaller_breaks")  # which results of older versions lack
    breaks = f"{limit_name(fewer)} breaks" if fewer else ""
    kept = nearest_promise(seen)
    return (
        *_named(fleet),
        Cell(*show(fleet["gpus"], "count")),
        Cell(*show(fleet["usd_per_hour"], "usd")),
        Cell(*show(fleet["rate_at_slo"], "number")),
        Cell(*show(fleet["headroom"], "share")),
        *([] if kept is None or len(seen["promises"]) < 2 else [named(kept)]),
        within(None if kept is None else kept["attainment"]),
        Cell(seen["outcome"], seen["outcome"]),
        *(Cell(*show(seen[f"slo_{name}_ms"], "ms")) for name in ("ttft", "tpot")),
        Cell(first, first),
        Cell(breaks, breaks),
    )


def prices(document: Mapping[str, Any]) -> Table:
    """Whose price of each GPU was used, and below which another fleet would be the cheapest."""
    first = document["break_even"]["gpu"]
    rows = []
    for each in document["prices"]:
        below = show(each["wins_below"], "usd")
        bound = below.text if each["gpus_proven"] else f"at most {below.text}"
        wins = "the cheapest" if each["gpu"] == first else bound if below.value else below.text
        rows.append(
            (
                Cell(each["gpu"], each["gpu"]),
                Cell(*show(each["usd_per_gpu_hour"], "usd")),
                Cell(each["text"], each["text"]),
                *(Cell(*show(each[end], "usd")) for end in ("low", "high")),
                Cell(wins, below.value),
            )
        )
    columns = (
        Column("GPU", False),
        Column("USD/GPU-h", definition="price"),
        Column("Whose price", False, "price", prose=True),
        Column("Others from", definition="price"),
        Column("to", definition="price"),
        Column("Wins below (USD/GPU-h)", definition="break_even"),
    )
    return Table("prices", "Prices of GPUs", columns, tuple(rows))


def bands(document: Mapping[str, Any]) -> Table:
    """What the error of the cost model does to each fleet."""
    rows = []
    for fleet in document["fleets"]:
        band = fleet["error_band"]
        told = ", ".join(band["rivals"]) or "none"
        slower = "yes" if band["holds_if_slower"] else "no"
        rows.append(
            (
                Cell(str(fleet["rank"]), fleet["rank"]),
                Cell(*show(band["error"], "share")),
                *(Cell(*show(count, "count")) for count in band["replicas"]),
                *(Cell(*show(cost, "usd")) for cost in band["usd_per_hour"]),
                Cell(slower, slower),
                Cell(band["trust"], band["trust"]),
                Cell(told, told),
            )
        )
    columns = (
        Column("Rank"),
        Column("Error (± %)", definition="error_band"),
        Column("Replicas from"),
        Column("to"),
        Column("USD/h from", definition="cost"),
        Column("to"),
        Column("Holds the rate if slower", False, "error_band"),
        Column("How sure", False, "error_band"),
        Column("Could be overtaken by", False, "survives", prose=True),
    )
    return Table("bands", "If iterations are faster or slower than predicted", columns, tuple(rows))


def rejected(
    document: Mapping[str, Any], named: str = "Layout", cost: str = "cost"
) -> Table | None:
    """Everything that is not among the cheapest, and why; None if there is nothing. ``named`` is
    what heads the layouts, ``cost`` the definition of their costs."""
    if not document["rejected"]:
        return None
    rows = tuple(
        (
            Cell(each["layout"], each["layout"]),
            Cell(each["reason"], each["reason"]),
            Cell(*show(each["usd_per_hour"], "usd")),
            Cell(each["text"], each["text"]),
        )
        for each in document["rejected"]
    )
    columns = (
        Column(named, False),
        Column("Reason", False),
        Column("USD/h at least", definition=cost),
        Column("In figures", False, prose=True),
    )
    return Table("rejected", "Not recommended", columns, rows)
