"""Renders a sweep in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.metrics.own import failures
from sim.metrics.states import SloState, State
from sim.planning.points.footnote_words import doubt_mark, footnotes
from sim.planning.points.points import show
from sim.planning.points.wording import (
    PROBABLY_TOO_MUCH,
    latency_ms,
    rank,
    share,
    slo_percentile,
    state_word,
)
from sim.terminal.console import STATE_STYLES, WIDTH, axis_columns
from sim.units import milliseconds, number

MOST_ROWS = 60
"""Points that a terminal is shown; all of them are in the result."""

POWER = "power_limit"
"""The setting whose points show their energy."""

MOST_OWN = 4
"""A user's own metrics side by side; more go into a table below."""

UNCLEAR = "unclear"
"""Too short to tell whether the fleet is overloaded."""

STATES: Mapping[str, str] = {
    State.NEAR_SATURATION: "near full",
    State.TOO_SHORT: UNCLEAR,
    State.NOTHING_SERVED: "none",
}
"""Verdicts that are too long for a column."""

SLO_STYLES = {SloState.MET: "green", SloState.MISSED: "red", SloState.OPEN: "yellow", None: ""}


def sweep_view(document: Mapping[str, Any]) -> Group:
    """The answers and the points of ``sim.planning.sweep.sweep.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    points, failed = document["points"], document["failed"]
    told = f", {failed:,} of them failed" if failed else ""
    yield Text.assemble((document["name"], "bold"), f"  sweep of {points:,} points{told}")
    for answer in document["answers"][:MOST_ROWS]:
        yield Text(answer["text"])
    rows = document["results"]
    power = any(axis.get("key", "").endswith(POWER) for axis in document["axes"])
    yield _table([axis["name"] for axis in document["axes"]], rows[:MOST_ROWS], power=power)
    for line in legend(rows[:MOST_ROWS]):
        yield Text(line, style="dim")
    for line in document["notes"]:
        yield Text(line, style="dim")
    for note in document["run_notes"]:
        yield Text(f"Note: {note}", style="yellow")
    names = own_names(rows)
    for at in range(0, len(names), MOST_OWN):
        yield Text("Metrics of your own", style="bold")
        yield _own_table(document, names[at : at + MOST_OWN])
    if len(rows) > MOST_ROWS:
        yield Text(f"{len(rows) - MOST_ROWS:,} more points in result.json", style="dim")
    yield from _failures(rows)
    for note in failures(row["summary"] for row in rows if row["summary"] is not None):
        yield Text(f"Note: {note}", style="yellow")


def own_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics of one's own that any of the points has."""
    summaries = [row["summary"] for row in rows if row["summary"] is not None]
    return list(
        dict.fromkeys(name for one in summaries for name in one["infersim"].get("metrics") or {})
    )


def _own_table(document: Mapping[str, Any], names: Sequence[str]) -> Table:
    """Some metrics of one's own, point by point."""
    rows = document["results"][:MOST_ROWS]
    heads = [axis["name"] for axis in document["axes"]]
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        own = {} if row["summary"] is None else row["summary"]["infersim"].get("metrics") or {}
        settings = [Text(show(value)) for value in row["settings"].values()]
        table.add_row(*settings, *(number(own.get(name)) for name in names))
    return table


def legend(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the short words in a table mean, of those that it has."""
    found = [row["summary"]["infersim"]["verdict"] for row in rows if row["summary"] is not None]
    lines = footnotes(found)
    if any(_state(verdict) == PROBABLY_TOO_MUCH for verdict in found):
        lines.append(
            f"{PROBABLY_TOO_MUCH}: more than 100 % of the capacity arrives, so the fleet is "
            "probably overloaded; a longer run would tell."
        )
    if any(_state(verdict) == UNCLEAR for verdict in found):
        lines.append(
            f"{UNCLEAR}: the run is too short to tell whether the fleet keeps up; more requests "
            "(run.requests) would tell."
        )
    return lines


def _table(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], *, power: bool = False
) -> Table:
    summaries = [row["summary"] for row in rows if row["summary"] is not None]
    ranks = {metric: slo_percentile(summaries, metric) for metric in ("ttft", "tpot")}
    latencies = [f"{metric.upper()} {rank(value / 100)}" for metric, value in ranks.items()]
    energy = ("J/token",) if power else ()
    titles = ("req/s", "tokens/s", *energy, "TTFT p50", *latencies, "in SLO", "state")
    cells = [_cells(row, ranks, power) for row in rows]
    figures = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    values = [[show(value) for value in row["settings"].values()] for row in rows]
    of_each = list(zip(*values, strict=True)) or [()] * len(names)
    blank, columns = axis_columns(names, of_each, figures, WIDTH)
    table = Table(expand=True, box=box.SIMPLE, padding=(0, blank, 0, 0))
    for width, head in columns:
        table.add_column(head, overflow="fold", width=width)
    for title in titles:
        table.add_column(title, justify="right" if title != "state" else "left", no_wrap=True)
    for row, shown in zip(values, cells, strict=True):
        table.add_row(*map(Text, row), *shown)
    return table


def _cells(row: Mapping[str, Any], ranks: Mapping[str, float], power: bool) -> list[Text]:
    summary = row["summary"]
    if summary is None:
        word = "infeasible" if row["exit_code"] == 3 else "failed"
        return [*([Text("-")] * (7 if power else 6)), Text(word, style="red")]
    verdict = summary["infersim"]["verdict"]
    figures = (
        number(summary["request_throughput"]),
        number(summary["output_throughput"]),
        *((number(_joules(summary)),) if power else ()),
        milliseconds(summary["p50_ttft_ms"]),
        *(milliseconds(latency_ms(summary, metric, value)) for metric, value in ranks.items()),
    )
    slo = verdict["slo_state"]
    kept = Text(f"{share(verdict['attainment'])}{doubt_mark(slo)}", style=SLO_STYLES[slo])
    return [*map(Text, figures), kept, Text(_state(verdict), style=_style(verdict))]


def _joules(summary: Mapping[str, Any]) -> float | None:
    """Energy of an output token."""
    found: float | None = (summary["infersim"]["energy"] or {}).get("joules_per_output_token")
    return found


def _state(verdict: Mapping[str, Any]) -> str:
    """The state in a word that fits a column."""
    state = state_word(verdict)
    return STATES.get(state, state)


def _style(verdict: Mapping[str, Any]) -> str:
    return STATE_STYLES.get(verdict["state"], "")


def _failures(rows: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """What went wrong, each reason once with the first point that met it."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["error"] is not None:
            reasons.setdefault(row["error"].splitlines()[0], []).append(row["label"])
    for reason, labels in list(reasons.items())[:MOST_ROWS]:
        more = f" and {len(labels) - 1:,} more" if len(labels) > 1 else ""
        yield Text(f"failed: {labels[0]}{more}: {reason}", style="red")
