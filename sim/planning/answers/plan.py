"""Lays out the answer of ``infersim plan``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sim.findings import Cell, Column, Commands, Findings, Heading, Lines, Table
from sim.planning.answers import plan_interrupted, split
from sim.planning.answers.cells import Document, latency_columns, slo_latencies, text
from sim.planning.answers.fleets import (
    NO_ROOM,
    PLACE,
    counts,
    dollars,
    fleets_found,
    held,
    held_columns,
    least_cost,
    load_text,
    numbers,
    place,
    rejected,
    simulation,
    under,
)
from sim.planning.answers.plan_drawings import (
    card,
    cheapest_of_cards,
    costs,
    fronts,
    growths,
    replicas_at,
    speeds,
)
from sim.planning.answers.plan_headline import headline, wanted
from sim.planning.fleet.launch import TITLES
from sim.planning.points.wording import counted, fleet_text, limit_name, listed
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, show_cost, show_load

FILES = (
    "As files: `infersim export PLAN --to kubernetes`, or compose; PLAN is this plan's directory."
)


def findings(document: Document) -> Findings:
    """The cheapest fleet and whether it stays so, then how all of them hold the load, what they
    cost, and how to start them; of fleets that prefill and decode apart those of ``split``, of
    an interrupted plan those of ``plan_interrupted``."""
    if document.get("kind") == "apart":
        return split.findings(document)
    if document.get("kind") == "interrupted":
        return plan_interrupted.findings(document)
    worth, notes = document["worth"], document["fleets"][0]["launch"]["notes"]
    said = (
        f"A month has {document['hours']['month']:,} hours.",
        document["ranking"]["prices"]["text"],
        *document["traffic_notes"],
        *document["notes"],
        f"SLO: {wanted_slo(document)}.",
        *document["survive"]["text"],
        *document["run_lengths"]["text"],
        *([] if worth is None else [worth["text"]]),
        *filter(None, [document["whole_runs"]]),
    )
    tables = (
        by_card(document),
        fleets(document),
        running_costs(document),
        prices(document),
        bands(document),
    )
    return fleets_found(
        document,
        "fleets",
        headline(document),
        (
            Heading("summary", "Summary", (costs(document), Lines(said, ""))),
            Heading("fleets", "Fleets", (*tables, Lines(tuple(_notes(document)), "warn"))),
            Heading("front", "Cost and latency", (fronts(document), speeds(document))),
            Heading("growth", "If the load grows", (growths(document),)),
            rejected(document),
            Heading("launch", "How to start them", (Lines((*notes, FILES)), *_launches(document))),
        ),
        ("Layouts tried", document["layouts"]),
    )


def wanted_slo(document: Document) -> str:
    """The wanted SLO, in one line."""
    limits = document["constraints"]
    asked = list(document["promises"]) or ["none, so a fleet holds what the verdict calls stable"]
    if limits["usd_per_hour"] is not None:
        asked.append(f"at most ${limits['usd_per_hour']:,.2f}/h")
    asked += [f"at most {limits[key]:,} {key}" for key in ("gpus", "replicas") if limits[key]]
    return "; ".join(asked)


def _notes(document: Document) -> Iterator[str]:
    """Notes on fleets, and on formats that GPUs lack, where no command says it."""
    for fleet in document["fleets"]:
        yield from (f"#{fleet['rank']}: {note.rstrip('.')}." for note in fleet["notes"])
    said = " ".join(document["fleets"][0]["launch"]["notes"])
    yield from (note for note in document["format_notes"] if note not in said)


CARDS = 10
"""Cards and formats that first lines have in the table by card, each card before its formats."""


def by_card(document: Document) -> Table:
    """The cheapest fleet of each GPU in each format, or in a line why there is none."""
    columns = (
        Column("GPU", False),
        Column("Best fleet", False, fold=2),
        Column("USD/month", definition="plan_cost"),
        *latency_columns(document),
        Column("How sure", False, "error_band"),
        Column(
            f"{counted(max(1, document['survive']['replicas']), 'replica').capitalize()} down",
            False,
            "one_down",
        ),
        Column("At 2x", False, "twice_the_load"),
    )
    rows = [*_cards_that_hold(document), *_cards_that_do_not(document)]
    caption = (
        f"By card and format: latencies under {load_text(document['target'])}, the load with its "
        f"headroom; how sure it is to hold {wanted(document)}"
    )
    return Table("cards", caption, columns, tuple(rows), most=CARDS)


def _cards_that_hold(document: Document) -> Iterator[tuple[Cell, ...]]:
    for each in cheapest_of_cards(document):
        month = each["usd_per_month"]
        yield (
            text(each["gpu"]),
            text(_of_gpus(each)),
            Cell(f"{month:,.0f}", month, priced=each["gpu"]),
            *slo_latencies(each),
            text(each["trust"]),
            text(each["one_down"] or "none left"),
            text(_twice(document, each)),
        )


def _twice(document: Document, fleet: Mapping[str, Any]) -> str:
    """The replicas, by the GPUs of each, that twice the load is estimated to take."""
    replicas = replicas_at(document, fleet, 2)
    return f"~{replicas:,} x {fleet['gpus'] // fleet['replicas']}"


def _of_gpus(fleet: Mapping[str, Any]) -> str:
    """The replicas of a fleet by their GPUs, and its format where one was asked for."""
    each = counted(fleet["gpus"] // fleet["replicas"], "GPU")
    form = "" if fleet["precision"] is None else f", {fleet['precision']}"
    return f"{fleet['replicas']:,} x {each}{form}"


def _cards_that_do_not(document: Document) -> Iterator[tuple[Cell, ...]]:
    """Cards and formats that no fleet above is of, each with the rejected layout that comes
    nearest: the cheapest that may hold the load, else one that at least fits in memory."""
    holding = {card(each) for each in document["sized"]}

    def distance(each: Mapping[str, Any]) -> tuple[float, bool]:
        cost = least_cost(each)
        return math.inf if cost is None else cost, each["reason"] == NO_ROOM

    best: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for each in document["rejected"]:
        known = best.get(card(each))
        if card(each) not in holding and (known is None or distance(each) < distance(known)):
            best[card(each)] = each
    for each in best.values():
        cost = least_cost(each)
        month = None if cost is None else cost * document["hours"]["month"]
        least = Cell("-" if month is None else f"from {month:,.0f}", month, priced=each["gpu"])
        form = "" if each["precision"] is None else f" in {each['precision']}"
        reason = f"none{form}: {each['reason']}"
        yield (text(each["gpu"]), text(reason), least, *(text("-"),) * 5)


def _named(fleet: Mapping[str, Any]) -> tuple[Cell, Cell]:
    return place(fleet), text(fleet_text(fleet["replicas"], fleet["layout"]))


def _priced(what: Mapping[str, Any], key: str, show: Callable[[float], str] = show_cost) -> Cell:
    """Dollars that are in proportion to the price of the GPU of ``what``."""
    usd = what[key]
    return Cell("-" if usd is None else show(usd), usd, priced=what["gpu"])


def fleets(document: Document) -> Table:
    """The cheapest fleets, and how they hold the load."""
    short = " in short runs" if document["run_lengths"]["lasts"] else ""
    columns = (
        PLACE,
        Column("Fleet", False, fold=1),
        Column("GPUs"),
        Column("USD/h", definition="plan_cost"),
        Column(f"Requests/s at SLO{short}", definition="rate_at_slo"),
        Column("Headroom (%)", definition="headroom", on_terminal=False),
        *held_columns(document),
        Column("Outcome", False, on_terminal=False),
        Column("Breaks first", False, "binds"),
        Column(
            f"With one replica less, at {load_text(document['target'])}",
            False,
            "binds",
            on_terminal=False,
        ),
    )
    rows = (
        (
            *_named(fleet),
            counts(fleet["gpus"]),
            _priced(fleet, "usd_per_hour"),
            Cell(show_load(fleet["rate_at_slo"]), fleet["rate_at_slo"]),
            Cell(f"{100 * fleet['headroom']:.0f}", round(100 * fleet["headroom"], 9)),
            *held(fleet["at_target"]),
            text(fleet["at_target"]["outcome"]),
            text(limit_name(fleet["binds"])),
            text(f"{limit_name(less)} breaks" if (less := fleet["smaller_breaks"]) else ""),
        )
        for fleet in document["fleets"]
    )
    return Table("fleets", f"The cheapest fleets, {under(document)}", columns, tuple(rows))


def running_costs(document: Document) -> Table:
    """The costs of a token and of a month of the cheapest fleets, in money and in energy."""
    columns = (
        PLACE,
        Column("Fleet", False, fold=1),
        Column("USD a month", definition="plan_cost"),
        Column("USD a year", definition="plan_cost", on_terminal=False),
        Column(PER_OUTPUT_TOKENS, definition="cost"),
        Column(PER_TOKENS, definition="cost"),
        Column("J/token", definition="energy"),
        Column("kWh a month", definition="energy"),
        Column("kg CO2e a month", definition="co2e"),
    )
    rows = (
        (
            *_named(fleet),
            *(_priced(fleet, f"usd_per_{time}", "{:,.0f}".format) for time in ("month", "year")),
            *(_priced(fleet, f"usd_per_million_{what}") for what in ("output_tokens", "tokens")),
            numbers(fleet["joules_per_output_token"]),
            numbers(fleet["kwh_per_month"]),
            numbers(fleet["co2e_kg_per_month"]),
        )
        for fleet in document["fleets"]
    )
    caption = f"Cost, and energy of the GPUs alone, at {load_text(document['rate'])}"
    return Table("running-costs", caption, columns, tuple(rows))


def prices(document: Document) -> Table:
    """Whose price of each GPU was used, and below which another fleet would be the cheapest."""
    columns = (
        Column("GPU", False),
        Column("USD/GPU-h", definition="price"),
        Column("Whose price", False, "price", prose=True, fold=1),
        Column("Others from", definition="price", on_terminal=False),
        Column("to", definition="price", on_terminal=False),
        Column("Wins below (USD/GPU-h)", definition="break_even"),
    )
    rows = (
        (
            text(each["gpu"]),
            _priced(each, "usd_per_gpu_hour"),
            text(each["text"]),
            *(dollars(each[end]) for end in ("low", "high")),
            _wins(each, document["break_even"]["gpu"]),
        )
        for each in document["prices"]
    )
    return Table("prices", "Prices of GPUs", columns, tuple(rows))


def _wins(price: Mapping[str, Any], first: str) -> Cell:
    """Below which price a GPU wins that is not the ``first``."""
    below = dollars(price["wins_below"])
    if price["gpu"] == first:
        return below._replace(text="the cheapest")
    bound = below.value is not None and not price["gpus_proven"]
    return below._replace(text=f"at most {below.text}") if bound else below


def bands(document: Document) -> Table:
    """The effect of the cost model's error on each fleet."""
    columns = (
        PLACE,
        Column("Times off by (± %)", definition="error_band"),
        Column("Replicas from"),
        Column("to"),
        Column("USD/h from", definition="cost"),
        Column("to"),
        Column("Holds the rate if slower", False, "error_band"),
        Column("How sure", False, "error_band"),
        Column("Could be overtaken by", False, "survives", prose=True, fold=1),
    )
    rows = []
    for fleet in document["fleets"]:
        band = fleet["error_band"]
        row = (
            place(fleet),
            Cell(f"{100 * band['error']:.0f}", round(100 * band["error"], 9)),
            *map(counts, band["replicas"]),
            *map(dollars, band["usd_per_hour"]),
            text("yes" if band["holds_if_slower"] else "no"),
            text(band["trust"]),
            text(listed(band["rivals"], 5, "; ") or "none"),
        )
        rows.append(row)
    caption = "If iterations are faster or slower than predicted"
    return Table("bands", caption, columns, tuple(rows))


def _launches(document: Document) -> Iterator[Commands]:
    """The commands that start each fleet, with the engine that was simulated first."""
    for fleet in document["fleets"]:
        launch = (
            (TITLES[name], fleet["launch"][name]) for name in fleet["launch"] if name in TITLES
        )
        name = f"{fleet['rank']}. {fleet_text(fleet['replicas'], fleet['layout'])}"
        each = " (each replica)" if fleet["replicas"] > 1 else ""
        yield Commands(
            f"{name}: start it{each}, or simulate it",
            (*launch, ("Simulate the fleet", simulation(document, fleet))),
            on_terminal=fleet["rank"] == 1,
        )
