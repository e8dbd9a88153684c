"""Renders a plan of pools that prefill and decode apart in a terminal of 88 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.points.wording import limit_name, nearest_promises, rank, share
from sim.terminal.plan import asked_of
from sim.units import milliseconds, show_load


def split_view(document: Mapping[str, Any]) -> Group:
    """The content of ``sim.planning.fleet.split_document.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield from asked_of(document)
    yield Text(f"SLO: {'; '.join(document['promises']) or 'none, so that stable fleets hold'}")
    best = document["fleets"][0]
    yield Text(
        f"Cheapest apart: {best['prefill']['text']} prefill, {best['decode']['text']} decode, "
        f"${best['usd_per_hour']:,.2f}/h",
        style="bold",
    )
    yield Text(document["text"])
    yield _fleets(document)
    for line in document.get("run_lengths", {}).get("text", []):  # which older versions lack
        yield Text(line)
    yield Text(f"Replicas that were tried of #1, under {show_load(document['target'])} requests/s:")
    yield _tried(document)
    if document["rejected"]:
        yield Text("Not recommended", style="bold")
        for each in document["rejected"]:
            yield Text(f"{each['layout']}: {each['reason']}: {each['text']}", style="dim")
    yield Text("Simulate the whole fleet:")
    yield Text(f"infersim run {shlex.quote(document['file'])} {best['run']}")


def _fleets(document: Mapping[str, Any]) -> Table:
    """The cheapest fleets apart, and the one that does both."""
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    names = [f"{name.upper()}\n{rank(document['shares'][name])}" for name in ("ttft", "tpot")]
    table.add_column("#")
    table.add_column("prefill", overflow="fold")
    table.add_column("decode", overflow="fold")
    unified = document["unified"]
    both = [] if unified["reason"] is not None else [unified]
    heading, shares = nearest_promises(
        document, [each["at_target"] for each in (*document["fleets"], *both)]
    )
    for title in ("GPUs", "$/h", *names, heading):
        table.add_column(title, justify="right")
    table.add_column("how sure")
    table.add_column("one less\nbreaks")
    for fleet, within in zip(document["fleets"], shares, strict=False):
        phases = fleet["prefill"], fleet["decode"]
        broken = [each["one_less_breaks"] for each in phases]
        less = "\n".join(
            f"{phase}: {limit_name(broke) if broke else '-'}"
            for phase, broke in zip(("prefill", "decode"), broken, strict=True)
        )
        table.add_row(
            str(fleet["rank"]), *(each["text"] for each in phases), *_figures(fleet, within), less
        )
    if both:
        figures = _figures(unified, shares[-1])
        table.add_row("", unified["text"], "(both)", *figures, "", style="dim")
    return table


def _figures(fleet: Mapping[str, Any], within: str) -> list[str]:
    seen = fleet["at_target"]
    return [
        str(fleet["gpus"]),
        f"{fleet['usd_per_hour']:,.2f}",
        *(milliseconds(seen[f"slo_{name}_ms"]) for name in ("ttft", "tpot")),
        within,
        fleet["trust"],
    ]


def _tried(document: Mapping[str, Any]) -> Table:
    """The numbers of replicas of the cheapest pair; of several parts of an SLO each row names the
    one that its share is of."""
    fleet, parts = document["fleets"][0], len(document["promises"]) > 1
    table = Table(expand=False, box=box.SIMPLE, padding=(0, 2, 0, 0))
    for title in ("prefill", "decode", "$/h", "nearest limit" if parts else "in SLO"):
        table.add_column(title, justify="right")
    table.add_column("")
    for one in fleet["tried"]:
        kept = one["attainment"]
        told = one["outcome"] if one["holds"] else f"{one['outcome']}: {limit_name(one['breaks'])}"
        table.add_row(
            str(one["prefill"]),
            str(one["decode"]),
            f"{one['usd_per_hour']:,.2f}",
            "-" if kept is None else f"{one['part']}: {share(kept)}" if parts else share(kept),
            told,
        )
    return table
