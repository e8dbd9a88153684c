"""Renders a plan in a terminal of 88 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.load.sentences import traffic_text
from sim.planning.points.wording import (
    as_cheap_text,
    counted,
    fleet_text,
    limit_name,
    nearest_promises,
    rank,
)
from sim.terminal.console import WIDTH
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, milliseconds, show_load

BREAKS = "breaks first"
"""The heading over the limit that breaks first when more load comes."""


def plan_view(document: Mapping[str, Any]) -> Group:
    """The content of ``sim.planning.fleet.plan_document.document``."""
    return Group(*_parts(document))


def asked_of(document: Mapping[str, Any], routed: str = "") -> Iterator[Text]:
    """The scenario, the load that fleets must hold and how the traffic gets it."""
    yield Text.assemble(
        (document["scenario"], "bold"), f"  {document['model']}, {document['engine']}"
    )
    yield Text(
        f"Asked: {show_load(document['rate'])} requests/s and {document['headroom']:.0%} headroom "
        f"({show_load(document['target'])}){routed}"
    )
    for line in traffic_text(document):
        yield Text(line)


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    fleets = document["fleets"]
    yield from asked_of(document, f", {document['router']} over the replicas")
    yield Text(f"SLO: {wanted_slo(document)}")
    best = fleets[0]
    yield Text(
        f"Cheapest: {counted(best['replicas'], 'replica')} of {best['layout']} "
        f"({counted(best['gpus'], 'GPU')}), "
        f"${best['usd_per_hour']:,.2f}/h{as_cheap_text(document['ranking'])}",
        style="bold",
    )
    yield Text(
        f"That is ${best['usd_per_month']:,.0f} a month ({document['hours']['month']:,} hours), "
        f"${best['usd_per_year']:,.0f} a year ({document['hours']['year']:,} hours)."
    )
    yield Text(f"Under {show_load(document['target'])} requests/s, the rate with its headroom:")
    yield fleets_table(document)
    for line in (*document["survive"]["text"], *document["run_lengths"]["text"]):
        yield Text(line)
    for fleet in fleets:
        for note in fleet["notes"]:
            yield Text(f"#{fleet['rank']}: {note}", style="yellow")
    yield Text(f"At {show_load(document['rate'])} requests/s, and if predicted times are off:")
    yield _costs(fleets)
    yield from _energy(fleets)
    yield Text(
        document["ranking"]["text"], style="" if document["ranking"]["survives"] else "yellow"
    )
    if document["worth"] is not None:
        yield Text(document["worth"]["text"])
    of_prices = document["ranking"]["prices"]
    yield Text(of_prices["text"], style="yellow" if of_prices["survives"] is False else "")
    yield _prices(document)
    yield Text(document["whole_runs"], style="dim")
    if document["rejected"]:
        yield Text("Not recommended", style="bold")
        yield _rejected(document["rejected"])
    for note in further_notes(document):
        yield Text(f"Note: {note}", style="yellow")
    several = best["replicas"] > 1
    what = f"one of the {best['replicas']} replicas of the cheapest" if several else "the cheapest"
    yield Text(f"Start {what}:", style="bold")
    for engine, command in best["launch"].items():
        if engine != "notes":
            yield Text(_continued(command))
    for note in best["launch"]["notes"]:
        yield Text(note, style="dim")
    yield Text("Simulate the whole fleet:", style="bold")
    target = shlex.quote(document["file"])
    yield Text(_continued(f"infersim run {target} {best['run']}"))


def further_notes(document: Mapping[str, Any]) -> list[str]:
    """On formats that GPUs lack: those that its commands do not say of the cheapest fleet."""
    fleets = document["fleets"]
    said = " ".join(fleets[0]["launch"]["notes"]) if fleets else ""
    return [note for note in document.get("format_notes", ()) if note not in said]


def wanted_slo(document: Mapping[str, Any]) -> str:
    """What had to hold, in one line."""
    limits = document["constraints"]
    told = list(document["promises"]) or ["none, so a fleet holds what the verdict calls stable"]
    if limits["usd_per_hour"] is not None:
        told.append(f"at most ${limits['usd_per_hour']:,.2f}/h")
    told += [f"at most {limits[key]:,} {key}" for key in ("gpus", "replicas") if limits[key]]
    return "; ".join(told)


def _table(*titles: str) -> Table:
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(title, justify="left" if title in ("fleet", BREAKS) else "right")
    return table


def fleets_table(document: Mapping[str, Any]) -> Table:
    """The cheapest fleets, and how they hold their load."""
    names = ("ttft", "tpot")
    latencies = [f"{name.upper()} {rank(document['shares'][name])}" for name in names]
    held = "short runs hold" if document["run_lengths"]["lasts"] else "holds up to"
    title, shares = nearest_promises(document, [fleet["at_target"] for fleet in document["fleets"]])
    table = _table("#", "fleet", "GPUs", "$/h", title, *latencies, held, BREAKS)
    for fleet, within in zip(document["fleets"], shares, strict=True):
        seen = fleet["at_target"]
        style = "" if seen["sure"] else "yellow"
        table.add_row(
            str(fleet["rank"]),
            Text(fleet_text(fleet["replicas"], fleet["layout"])),
            str(fleet["gpus"]),
            f"{fleet['usd_per_hour']:,.2f}",
            Text(within, style=style),
            *(milliseconds(seen[f"slo_{name}_ms"]) for name in names),
            f"{show_load(fleet['rate_at_slo'])}/s",
            limit_name(fleet["binds"]),
        )
    return table


def _costs(fleets: list[dict[str, Any]]) -> Table:
    table = _table(
        *("#", PER_OUTPUT_TOKENS, PER_TOKENS, "J/token"),
        *("holds", "times off by", "replicas", "$/h", "could be cheaper"),
    )
    for fleet in fleets:
        band = fleet["error_band"]
        table.add_row(
            str(fleet["rank"]),
            _number(fleet["usd_per_million_output_tokens"]),
            _number(fleet["usd_per_million_tokens"]),
            _number(fleet["joules_per_output_token"]),
            band["trust"],
            f"± {band['error']:.0%}",
            _span(*("?" if count is None else f"{count}" for count in band["replicas"])),
            _span(*("?" if cost is None else _dollars(cost) for cost in band["usd_per_hour"])),
            counted(len(band["rivals"]), "other") if band["rivals"] else "none",
        )
    return table


def _energy(fleets: list[dict[str, Any]]) -> Iterator[Text]:
    """The electricity of a month, fleet by fleet."""
    told = [
        f"#{fleet['rank']} {fleet['kwh_per_month']:,.0f} kWh"
        + ("" if (co2e := fleet.get("co2e_kg_per_month")) is None else f" ({co2e:,.0f} kg CO2e)")
        for fleet in fleets
        if fleet.get("kwh_per_month") is not None
    ]
    if told:
        yield Text(f"Energy of a month, the GPUs alone: {', '.join(told)}.")


def _prices(document: Mapping[str, Any]) -> Table:
    """Whose price of each GPU was used, and below which it would win."""
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("GPU", no_wrap=True)
    table.add_column("$/GPU-h", justify="right")
    table.add_column("whose price", ratio=1)
    table.add_column("wins below", justify="right")
    for each in document["prices"]:
        below, first = each["wins_below"], each["gpu"] == document["break_even"]["gpu"]
        sure = "" if each["gpus_proven"] else "at most "
        wins = "cheapest" if first else "-" if below is None else f"{sure}${below:,.2f}"
        usd = f"{each['usd_per_gpu_hour']:,.2f}"
        table.add_row(Text(each["gpu"]), usd, Text(each["text"]), wins)
    return table


def _rejected(rejected: list[dict[str, Any]]) -> Table:
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for each in rejected:
        table.add_row(Text(each["layout"]), Text(f"{each['reason']}: {each['text']}"))
    return table


def _continued(command: str) -> str:
    """A long command as lines that a shell reads as one."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1].strip() and len(lines[-1]) + len(word) > WIDTH - 3:
            lines.append("  ")
        lines[-1] += f"{' ' if lines[-1].strip() else ''}{word}"
    return " \\\n".join(lines)


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _dollars(cost: float) -> str:
    return f"{cost:,.2f}" if cost < 100 else f"{cost:,.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}"
