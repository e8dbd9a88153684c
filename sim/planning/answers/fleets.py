"""Provides the parts that answers about fleets share: how they are asked for, how they hold the
load, what starts them, and why others are not recommended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Findings, Heading, Headline, Lines, Table
from sim.planning.answers.cells import (
    Document,
    answered,
    latency_columns,
    model_text,
    named,
    share_columns,
    slo_latencies,
    text,
    within,
)
from sim.planning.points.wording import nearest_promise
from sim.units import number, show_cost, show_load


def fleets_found(
    document: Document,
    kind: str,
    headline: Headline,
    sections: Sequence[Heading],
    tried: tuple[str, int],
) -> Findings:
    """The findings about fleets of that ``kind``; ``tried`` says of what how many were."""
    asked = f"{load_text(document['rate'])} and {document['headroom']:.0%} headroom"
    name, count = tried
    return answered(
        document,
        kind,
        headline,
        sections,
        (
            ("Setup", f"{model_text(document)}, {document['engine']}"),
            ("Asked", f"{asked} ({show_load(document['target'])})"),
            ("Router", document["router"].replace("-", " ")),
            (name, f"{count:,}"),
        ),
    )


def scaling(document: Document) -> list[str]:
    """The meaning of another load of a trace, if the answer is about one."""
    return [] if document["scaling"] is None else [document["scaling"]["text"]]


def load_text(load: float) -> str:
    """A load with its unit."""
    return f"{show_load(load)} requests/s"


def under(document: Document) -> str:
    """The load under which fleets were compared."""
    return f"under {load_text(document['target'])} (the rate with its headroom)"


def counts(value: int | None) -> Cell:
    """A cell of a whole number."""
    return Cell("-" if value is None else f"{value:,}", value)


def dollars(usd: float | None) -> Cell:
    """A cell of an amount of US dollars."""
    return Cell("-" if usd is None else show_cost(usd), usd)


def numbers(value: float | None) -> Cell:
    """A cell of a number of three digits."""
    return Cell(number(value), value)


def place(fleet: Mapping[str, Any]) -> Cell:
    """A cell of the rank of ``fleet``."""
    return Cell(str(fleet["rank"]), fleet["rank"])


PLACE = Column("#")
"""The column of ranks."""


def held_columns(document: Document) -> Iterator[Column]:
    """The columns of ``held``."""
    yield from share_columns(document)
    yield from latency_columns(document)


def held(seen: Mapping[str, Any]) -> tuple[Cell, ...]:
    """How a load was held: the share within the SLO, the nearest of several limits, and latencies;
    ``seen`` is the document of a probe. A share that chance may have decided is marked."""
    kept = nearest_promise(seen)
    share = within(None if kept is None else kept["attainment"])
    return (
        *([] if kept is None or len(seen["promises"]) < 2 else [named(kept)]),
        share if seen["sure"] else share._replace(tone="warn"),
        *slo_latencies(seen),
    )


def simulation(document: Document, fleet: Mapping[str, Any]) -> str:
    """The command that simulates ``fleet``."""
    return f"infersim run {shlex.quote(document['file'])} {fleet['run']}"


AT_A_COST = ("more expensive", "costs the same", "constraint")
"""Reasons against layouts that may hold the load, for what they cost."""

NO_ROOM = "does not fit"
"""The reason against layouts whose memory does not hold the model."""


def least_cost(each: Mapping[str, Any]) -> float | None:
    """The least that a fleet of a rejected layout costs an hour (USD); None where none holds."""
    return each["usd_per_hour"] if each["reason"] in AT_A_COST else None


def rejected(document: Document, layout: str = "Layout", cost: str = "cost") -> Heading:
    """The section of what is not among the cheapest, and why. ``layout`` heads the layouts,
    ``cost`` is the definition of their costs."""
    rows = tuple(
        (text(each["layout"]), text(each["reason"]), dollars(least_cost(each)), text(each["text"]))
        for each in document["rejected"]
    )
    columns = (
        Column(layout, False, fold=1),
        Column("Reason", False, fold=1),
        Column("USD/h at least", definition=cost, on_terminal=False),
        Column("In figures", False, prose=True, fold=3),
    )
    title = "Not recommended"
    table = Table("rejected", title, columns, rows)
    return Heading("rejected", title, (table if rows else Lines(("Nothing was rejected.",)),))
