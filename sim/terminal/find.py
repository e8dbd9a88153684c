"""Renders the answer of ``find`` in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.load.sentences import (
    by_chance,
    ends_text,
    first_to_break,
    highest,
    knee_text,
    opening,
    own_load,
    rejections,
    slo_text,
    sureness,
    traffic_text,
    trust_text,
)
from sim.planning.points.wording import (
    LoadOutcome,
    nearest_promise,
    nearest_promises,
    outcome_text,
    rank,
    share,
)
from sim.units import milliseconds, show_load

MOST_ROWS = 9
"""Loads that a terminal is shown; all of them are in the result and on the page."""

STYLES = {"holds": "green", LoadOutcome.FAILS: "red", LoadOutcome.OPEN: "yellow"}


def find_view(document: Mapping[str, Any]) -> Group:
    """The content of ``sim.planning.load.find_document.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    gpus = document["hardware"]
    yield Text.assemble((document["scenario"], "bold"), f"  {document['model']} on {gpus}")
    for line in traffic_text(document):
        yield Text(line)
    yield Text(slo_text(document))
    yield Text(highest(document), style="bold")
    for line in [*ends_text(document), *trust_text(document)]:
        yield Text(line)
    for line in rejections(document):
        yield Text(line, style="yellow")
    yield Text(first_to_break(document))
    own = document["own"]
    if own is not None:
        yield Text(own_load(document), style=STYLES[own["outcome"]])
    yield Text(knee_text(document))
    shown = nearest(document)
    yield _table(document, shown)
    left = len(document["probes"]) - len(shown)
    if left:
        yield Text(f"{left} more loads in result.json (--json) and on the page", style="dim")
    for line in [*opening(document), *sureness(document)]:
        yield Text(line, style="dim")


def nearest(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The loads that matter: both ends of the bracket, the scenario's own, the ends of what is
    sure, and those closest to the answer; in ascending order."""
    best, own = document["load"], document["own"]
    first = {best, document["fails_at"], *by_chance(document)}
    first |= {None if own is None else own["load"]}
    ordered = sorted(
        document["probes"],
        key=lambda probe: (probe["load"] not in first, abs(probe["load"] / best - 1)),
    )
    return sorted(ordered[:MOST_ROWS], key=lambda probe: probe["load"])


def _table(document: Mapping[str, Any], probes: list[Mapping[str, Any]]) -> Table:
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    names = [name for name in document["shares"] if name in document["limits_ms"]]
    names = names or ["ttft", "tpot"]
    latencies = [f"{name.upper()} {rank(document['shares'][name])}" for name in names]
    parts = [nearest_promise(probe) for probe in probes]
    title, shares = nearest_promises(document, probes)
    kept_by = [title, "95 % interval"] if any(parts) else []
    lengths = ["requests"] if len(names) < 3 and len(document["promises"]) < 2 else []
    titles = [document["unit"], "", *kept_by, *latencies, *lengths]
    for title in titles:
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for probe, kept, within in zip(probes, parts, shares, strict=True):
        style = STYLES[probe["outcome"]]
        style += " bold" if probe["load"] == document["load"] else ""
        table.add_row(
            show_load(probe["load"]),
            Text(outcome_text(probe), style=style),
            *([] if kept is None else [within, _between(kept)]),
            *(milliseconds(probe[f"slo_{name}_ms"]) for name in names),
            *(played(probe) for _ in lengths),
        )
    return table


def _between(kept: Mapping[str, Any]) -> str:
    """The interval of the share of requests within a part of the SLO."""
    return f"{share(kept['low'])[:-1]}..{share(kept['high'])[:-1]}"


def played(probe: Mapping[str, Any]) -> str:
    """How many runs a load was given, of how many requests each.

    >>> played({"runs": 1, "requests_per_run": 5000}), played({"runs": 12, "requests_per_run": 668})
    ('5,000', '12 x 668')
    """
    each = f"{probe['requests_per_run']:,}"
    return each if probe["runs"] == 1 else f"{probe['runs']} x {each}"
