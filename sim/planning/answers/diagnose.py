"""Lays out the answer of ``infersim diagnose``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.findings import (
    Action,
    Actions,
    Cell,
    Column,
    Drawing,
    Drawings,
    Findings,
    Heading,
    Headline,
    Lines,
    Table,
)
from sim.metrics.states import SloState
from sim.planning.answers.cells import (
    CHANGES,
    HEADS,
    STATES,
    WITHIN,
    Document,
    answered,
    effect,
    failures,
    text,
    value,
    values,
    within,
)
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar
from sim.planning.points.wording import share as share_text
from sim.units import milliseconds

PARTS: Mapping[str, str] = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "others' prefill, before the first token",
    "prefill_preempted": "preempted before the first token",
    "decode": "decode",
    "decode_delay": "others' prefill, after the first token",
    "decode_preempted": "preempted after the first token",
    "transfer": "transfer",
}
"""The parts of a latency, in their order in time."""

BARS: Mapping[str, str] = {
    "ttft": "TTFT",
    "slowest_ttft": "TTFT, slowest 1 %",
    "e2el": "E2EL",
    "slowest_e2el": "E2EL, slowest 1 %",
}
"""The latencies of which the parts are known."""


def findings(document: Document) -> Findings:
    """The limits of the run, possible changes, and the effect of each."""
    tone = STATES.get(document["verdict"]["slo_state"], "neutral")
    tone = "warn" if tone == "good" and not document["at_ease"] else tone
    least = document["least"]
    limits, texts = limiting(document), [document["verdict"]["text"]]
    if limits is None:  # nothing limits it
        texts.insert(0, document["bound"]["text"])
    else:
        texts += filter(None, (document["bound"]["padding"], document["bound"]["busy"]))
    lines = (*document["footnotes"], *document["sure"])
    latency = _latency(document)
    drawings = (Drawings(latency),) if latency else ()
    notes = Lines(lines), Lines(tuple(document["notes"]), "warn")
    errors = [(t["title"], t["error"]) for t in document["trials"] if t["error"] is not None]
    return answered(
        document,
        "diagnosis",
        Headline(
            tone,
            document["state"],
            " ".join(filter(None, (least, *texts))),
            least if limits else None,
        ),
        (
            Heading("summary", "Summary", (*_rejected(document), *([limits] if limits else []))),
            Heading("advice", "What could be changed", (_advice(document),)),
            Heading("figures", "Figures", (trials(document), *drawings, *notes)),
            Heading("numbers", "Numbers", (_latency_table(document),)),
            *failures("Not possible", errors),
        ),
        (("Setup", document["setup"]),),
    )


def _rejected(document: Document) -> list[Lines]:
    """The requests that are rejected, and what admits them."""
    found = document["rejection"]
    if found is None:
        return []
    cure = "" if found["remedy"] is None else f" First of all, {found['remedy']}."
    return [Lines((f"Rejected: {found['text']}{cure}",), "warn")]


def _advice(document: Document) -> Actions:
    trials = {trial["name"]: trial for trial in document["trials"]}
    efforts = {effort["name"]: effort["title"] for effort in document["efforts"]}
    advised = (
        Action(
            "No SLO" if trial["slo_state"] is None else f"SLO {trial['slo_state']}",
            efforts[trial["effort"]],
            *(trial["title"], trial["told"], trial["command"], bool(trial["slo_met"])),
        )
        for trial in (trials[name] for name in document["advice"])
    )
    cheapest = Action(
        "Cheapest fleet",
        "",
        "Which GPUs, and how many of them, meet the SLO at the lowest cost",
        "Add other GPUs to choose from.",
        document["plan"],
    )
    return Actions(document["order"], (*advised, cheapest))


def _latency(document: Document) -> tuple[Drawing, ...]:
    if not document["latency"]:
        return ()
    note = "Parts add up to the latency of each request exactly; drawn are their means."
    named = (("ttft", "ttft"), ("e2el", None))
    return tuple(
        Drawing(
            f"parts-{name}",
            f"Where the {BARS[name]} goes",
            definition,
            note,
            mean_parts(document, name),
            wide=True,
        )
        for name, definition in named
    )


def mean_parts(document: Document, name: str) -> BarChart:
    """The mean parts of the latency ``name``, of all requests and of the slowest, where known."""
    latency, bars, ends = document["latency"], [], {name: 0.0, f"slowest_{name}": 0.0}
    for part, title in PARTS.items():
        for row, start in ends.items():
            if value := latency.get(row, {}).get(part):
                ends[row] = start + value
                text = f"{title}: {milliseconds(value)}"
                bars.append(
                    ChartBar(BARS[row], ends[row], text, tone=part, start=start, part=title)
                )
    return BarChart(ChartAxis(f"{name.upper()}, mean", "ms"), tuple(bars))


def limiting(document: Document) -> Table | None:
    """Table of each figure's limit, and the gain from doubling it, of which a terminal is shown the
    latencies of the SLO at first; None if there is none."""
    trials = {trial["title"]: trial for trial in document["trials"]}
    rows: list[tuple[Cell, ...]] = []
    of_slo: list[int] = []
    for figure in document["figures"]:
        key, bound = figure["key"], document["bound"]["figures"].get(figure["key"])
        if bound is None:
            continue
        change = trials[bound["shown_by"]]["changes"][key]
        then = value(key, None if change is None else figure["value"] * (1 + change))
        name, by, shown_by = map(text, (HEADS[key].title, bound["by"], bound["shown_by"]))
        now = value(key, figure["value"])
        if any(f"_{limit.partition('_')[0]}_" in key for limit in document["verdict"]["limits"]):
            of_slo.append(len(rows))
        rows.append((name, by, now, shown_by, then, effect(document, key, change)))
    columns = (
        Column("Figure", False),
        Column("Limited by", False),
        Column("As it is"),
        Column("With", False),
        Column("Then"),
        Column("Change", unit="%"),
    )
    caption = "What limits each figure"
    return Table("bounds", caption, columns, tuple(rows), shown=tuple(of_slo)) if rows else None


def trials(document: Document) -> Table:
    """Every change that was tried: the share within the SLO, and what happens to each metric."""
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    share = _share(document["verdict"])
    tried = [trial for trial in document["trials"] if trial["error"] is None]
    rows = [(text("as it is"), share, *values(now), text(""))]
    for trial in tried:
        changes = (effect(document, key, trial["changes"][key]) for key in HEADS)
        name = trial["title"]
        name += f", rejects {share_text(trial['rejects'])}" if trial["rejects"] else ""
        rows.append((text(name), _share(trial), *changes, text(trial["effort"])))
    columns = (
        Column("Change tried", False),
        WITHIN._replace(definition=None),
        *CHANGES.values(),
        Column("Effort", False, on_terminal=False),
    )
    caption = (
        "All changes tried, against the run as it is, and the share within the SLO; "
        "green is better, red is worse, grey is within chance"
    )
    # what cannot be bought alone comes first
    ruled = [place for place, trial in enumerate(tried, 1) if trial["effort"] == "what-if"]
    return Table("trials", caption, columns, tuple(rows), ruled=tuple(ruled[-1:]))


def _share(outcome: Mapping[str, Any]) -> Cell:
    """The share within the SLO, coloured by whether that meets it; uncoloured where it is too close
    to call."""
    cell = within(outcome["attainment"], outcome["slo_state"])
    tone = {SloState.MET: "good", SloState.MISSED: "bad"}.get(outcome["slo_state"], "")
    return cell if cell.value is None else cell._replace(tone=tone, strength=0.6)


def _latency_table(document: Document) -> Table:
    latency = document["latency"]
    found = ((title, [latency[name].get(part) for name in BARS]) for part, title in PARTS.items())
    rows = [(title, values) for title, values in found if any(values)] if latency else []
    if rows:
        rows.append(("in all", [sum(latency[name].values()) for name in BARS]))
    columns = (Column("Part", False), *(Column(title, unit="ms") for title in BARS.values()))
    return Table(
        "latency",
        "Where the latency goes: means; slowest: beyond the p99",
        columns,
        tuple((text(title), *map(_part, values)) for title, values in rows),
        ruled=(len(rows) - 2,),
    )


def _part(value: float | None) -> Cell:
    return Cell("", None) if value is None else Cell(milliseconds(value), round(value, 6))
