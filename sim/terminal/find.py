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
    FAILS,
    OPEN,
    nearest_promise,
    outcome_text,
    promise_name,
    rank,
    share,
)
from sim.units import milliseconds

MOST_ROWS = 9
"""Loads that a terminal is shown; all of them are in the result and on the page."""

STYLES = {"holds": "green", FAILS: "red", OPEN: "yellow"}


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
    limits = {promise_name(kept) for kept in parts if kept is not None}
    kept_by, mixed = _kept_title(document, limits), len(limits) > 1
    lengths = ["requests"] if len(names) < 3 and len(document["promises"]) < 2 else []
    titles = [document["unit"], "", *kept_by, *latencies, *lengths]
    for title in titles:
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for probe, kept in zip(probes, parts, strict=True):
        style = STYLES[probe["outcome"]]
        style += " bold" if probe["load"] == document["load"] else ""
        table.add_row(
            f"{probe['load']:.4g}",
            Text(outcome_text(probe), style=style),
            *_kept(kept, mixed),
            *(milliseconds(probe[f"slo_{name}_ms"]) for name in names),
            *(played(probe) for _ in lengths),
        )
    return table


def _kept_title(document: Mapping[str, Any], limits: set[str]) -> list[str]:
    """The heading of the share of requests and of its interval: which part of the SLO they are of,
    if there are several; none without an SLO."""
    if not limits:
        return []
    if len(document["promises"]) < 2:
        return ["in SLO", "95 % interval"]
    return [f"in {next(iter(limits))}" if len(limits) == 1 else "nearest limit", "95 % interval"]


def _kept(kept: Mapping[str, Any] | None, mixed: bool) -> list[str]:
    """The share of requests within a part of the SLO, named where rows differ in it."""
    if kept is None:
        return []
    between = f"{share(kept['low'])[:-1]}..{share(kept['high'])[:-1]}"
    limit = f"{promise_name(kept)}: " if mixed else ""
    return [limit + share(kept["attainment"]), between]


def played(probe: Mapping[str, Any]) -> str:
    """How many runs a load was given, of how many requests each.

    >>> played({"runs": 1, "requests_per_run": 5000}), played({"runs": 12, "requests_per_run": 668})
    ('5,000', '12 x 668')
    """
    each = f"{probe['requests_per_run']:,}"
    return each if probe["runs"] == 1 else f"{probe['runs']} x {each}"
