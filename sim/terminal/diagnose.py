"""Renders a diagnosis in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.planning.causes.ablate_words import value_text
from sim.planning.points.footnote_words import doubt_mark
from sim.planning.points.wording import share
from sim.terminal.ablate import HEADS
from sim.terminal.console import SLO_STYLES, STATE_STYLES, WIDTH
from sim.units import number, show_time

LARGE = 2.0
"""Relative changes beyond this are shown as factors."""

PARTS = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "others' prefill, before",
    "prefill_preempted": "preempted, before",
    "decode": "decode",
    "decode_delay": "others' prefill, after",
    "decode_preempted": "preempted, after",
    "transfer": "transfer",
}
"""The parts of a latency; before and after are meant of the first token."""


def diagnose_view(document: Mapping[str, Any]) -> Group:
    """The answer and the trials of ``sim.planning.causes.diagnose_document.document``."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    verdict = document["verdict"]
    yield Text.assemble((document["scenario"], "bold"), f"  {document['setup']}")
    refused = document["rejection"]
    if refused is not None:
        cure = "" if refused["remedy"] is None else f" First of all, {refused['remedy']}."
        yield Text(f"Rejected: {refused['text']}{cure}", style="yellow")
    yield Text(document["headline"], style="bold")
    yield Text(verdict["text"], style=STATE_STYLES.get(verdict["state"], ""))
    yield Text(document["bound"]["text"])
    yield _trials(document)
    for line in document["footnotes"]:
        yield Text(line, style="dim")
    if document["latency"]:
        yield _latency(document["latency"])
    for line in document["sure"]:
        yield Text(line, style="dim")
    for trial in document["trials"]:
        if trial["error"] is not None:
            yield Text(f"Not possible: {trial['title']}: {trial['error']}", style="dim")


def _trials(document: Mapping[str, Any]) -> Table:
    title = "Changes tried, one at a time; above the line what cannot be bought alone"
    table = Table(title=title, title_justify="left", expand=True,
                  box=box.SIMPLE, padding=(0, 1, 0, 0))  # fmt: skip
    table.add_column("", ratio=1, overflow="fold")
    for head in (*HEADS.values(), "in SLO"):
        table.add_column(head, justify="right", no_wrap=True)
    figures = document["figures"]
    now = (value_text(f["key"], f["value"]) for f in figures)
    table.add_row("unchanged", *now, _kept(document["verdict"]))
    wished = False
    for trial in document["trials"]:
        if trial["error"] is None:
            cells = [_change(trial["changes"][f["key"]], f["more"]) for f in figures]
            if trial["bound"] is None and wished:
                table.add_section()
            wished = trial["bound"] is not None
            table.add_row(trial["title"], *cells, _kept(trial))
    return table


def _kept(trial: Mapping[str, Any]) -> Text:
    """The share within the SLO, green where that meets it."""
    state = trial["slo_state"]
    kept = f"{share(trial['attainment'])}{doubt_mark(state)}"
    return Text(kept, style=SLO_STYLES.get(state, ""))


def _change(change: float | None, more: bool) -> Text:
    if change is None:
        return Text("-")
    style = "" if abs(change) < 0.02 else "green" if (change > 0) == more else "red"
    if change > LARGE:
        return Text(f"x {number(1 + change)}", style=style)
    return Text(f"{change:+.0%}" if round(change, 2) else "0%", style=style)


def _latency(latency: Mapping[str, Mapping[str, float]]) -> Table:
    """Where the time went: mean of all, and of the slowest hundredth."""
    table = Table(title="Where the latency goes (mean; slowest: beyond its p99)",
                  title_justify="left", expand=True, box=box.SIMPLE, padding=(0, 1))  # fmt: skip
    table.add_column("", ratio=1)
    columns = ("ttft", "slowest_ttft", "e2el", "slowest_e2el")
    for name in columns:
        table.add_column(name.replace("_", " ").upper().replace("SLOWEST", "slowest"),
                         justify="right")  # fmt: skip
    for part, title in PARTS.items():
        values = [latency[name].get(part) for name in columns]
        if any(values):
            table.add_row(title, *("" if v is None else show_time(v / 1e3) for v in values))
    totals = (sum(latency[name].values()) for name in columns)
    table.add_row("in all", *(show_time(total / 1e3) for total in totals), style="bold")
    return table


def advice_view(document: Mapping[str, Any]) -> Text:
    """The advice, to be printed unchanged: commands are whole, however wide, to be copied."""
    return Text("\n").join(_advice(document))


def _advice(document: Mapping[str, Any]) -> Iterator[Text]:
    trials = {trial["name"]: trial for trial in document["trials"]}
    efforts = {effort["name"]: effort for effort in document["efforts"]}
    yield Text(document["order"], style="bold" if document["advice"] else "")
    for place, name in enumerate(document["advice"], 1):
        trial = trials[name]
        yield Text(f"{place}. {trial['title']}")
        lines = wrap(trial["told"], WIDTH, initial_indent="   ", subsequent_indent="   ")
        yield Text("\n".join(lines))
        yield Text(f"   {efforts[trial['effort']]['title']}")
        yield Text(f"   {trial['command']}", style="dim")
    yield Text("For the cheapest fleet that meets the SLO (add other GPUs to choose from):")
    yield Text(f"   {document['plan']}", style="dim")
