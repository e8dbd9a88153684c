"""Renders the ``result.json`` of ``infersim diagnose`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import mean_parts as parts
from reports.frame.content import Headline, Plot, to_json
from reports.frame.tables import Cell, PageColumn, PageTable
from reports.pages.planning.study import (
    CHANGES,
    HEADS,
    StudyHead,
    effect,
    page,
    reasons,
    text,
    value,
    values,
    within,
)
from sim.metrics.states import SloState
from sim.units import milliseconds

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "advice": "What could be changed",
    "figures": "Figures",
    "numbers": "Numbers",
    "failures": "Not possible",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def render(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    tones = {SloState.MET: "good", SloState.MISSED: "bad", SloState.OPEN: "warn"}
    tone = tones.get(document["verdict"]["slo_state"], "neutral")
    tone = "warn" if tone == "good" and not document["at_ease"] else tone
    limited, texts = limiting(document), [document["verdict"]["text"]]
    if limited is None:  # nothing limits it, or the result is of an older version
        texts.insert(0, document["bound"]["text"])
    else:
        texts.append(document["bound"]["busy"])
    # which results of older versions lack
    told = [*document.get("footnotes", ()), *document.get("sure", ())]
    return page(
        {**document, "notes": [*_rejected(document), *told, *document["notes"]]},
        StudyHead(
            "diagnosis",
            SECTIONS,
            Headline(tone, document["headline"], " ".join(texts)),
            [("Setup", document["setup"])],
        ),
        wide=_latency(document),
        plots=[],
        changes=trials(document),
        tables=[_latency_table(document)],
        bounds=limited,
        failures=reasons(
            [(t["title"], t["error"]) for t in document["trials"] if t["error"] is not None]
        ),
        order=document.get("order", ""),
        advice=_advice(document),
    )


def _rejected(document: Mapping[str, Any]) -> list[str]:
    """The requests that are rejected, and what admits them."""
    found = document["rejection"]
    if found is None:
        return []
    cure = "" if found["remedy"] is None else f" First of all, {found['remedy']}."
    return [f"Rejected: {found['text']}{cure}"]


def _advice(document: Mapping[str, Any]) -> list[dict[str, str]]:
    trials = {trial["name"]: trial for trial in document["trials"]}
    efforts = {effort["name"]: effort["title"] for effort in document["efforts"]}
    advised = [
        {
            "effect": _effect(trials[name]["slo_state"]),
            "effort": efforts[trials[name]["effort"]],
            "title": trials[name]["title"],
            "text": trials[name]["told"],
            "command": trials[name]["command"],
        }
        for name in document["advice"]
    ]
    cheapest = {
        "effect": "Cheapest fleet",
        "effort": "",
        "title": "Which GPUs, and how many of them, meet the SLO at the lowest cost",
        "text": "Add other GPUs to choose from.",
        "command": document["plan"],
    }
    return [*advised, cheapest]


def _effect(slo: str | None) -> str:
    """What becomes of the SLO with a change."""
    return "No SLO" if slo is None else f"SLO {slo}"


def _latency(document: Mapping[str, Any]) -> list[Plot]:
    if not document["latency"]:
        return []
    note = "Parts add up to the latency of each request exactly; drawn are their means."
    return [
        Plot(f"parts-{name}", f"Where the {title} goes", definition, note,
             to_json(parts.figure(document, name)), kind="own")
        for name, title, definition in (("ttft", "TTFT", "ttft"), ("e2el", "E2EL", None))
    ]  # fmt: skip


def limiting(document: Mapping[str, Any]) -> PageTable | None:
    """What limits each figure, and what twice as much of that would make of it; None where nothing
    does."""
    trials = {trial["title"]: trial for trial in document["trials"]}
    rows = []
    for figure in document["figures"]:
        key, bound = figure["key"], document["bound"].get("figures", {}).get(figure["key"])
        if bound is None:
            continue
        change = trials[bound["shown_by"]]["changes"][key]
        then = None if change is None else figure["value"] * (1 + change)
        row = (HEADS[key].title, bound["by"], value(key, figure["value"]), bound["shown_by"])
        name, by, now, shown_by = (text(each) if isinstance(each, str) else each for each in row)
        rows.append((name, by, now, shown_by, value(key, then), effect(document, key, change)))
    columns = (
        PageColumn("Figure", False),
        PageColumn("Limited by", False),
        PageColumn("As it is"),
        PageColumn("With", False),
        PageColumn("Then"),
        PageColumn("Change", unit="%"),
    )
    return PageTable("bounds", "What limits each figure", columns, tuple(rows)) if rows else None


def trials(document: Mapping[str, Any]) -> PageTable:
    """Every change that was tried: the share within the SLO, and what happens to each metric."""
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    share = _share(document["verdict"])
    rows = [(text("as it is"), share, *values(now), text(""))]
    for trial in document["trials"]:
        if trial["error"] is None:
            changes = (effect(document, key, trial["changes"][key]) for key in HEADS)
            rows.append((text(trial["title"]), _share(trial), *changes, text(trial["effort"])))
    columns = (
        PageColumn("Change tried", False),
        PageColumn("Within SLO (%)"),
        *CHANGES.values(),
        PageColumn("Effort", False),
    )
    caption = (
        "All changes tried, against the run as it is, and the share within the SLO; "
        "green is better, red is worse, grey is within chance"
    )
    return PageTable("trials", caption, columns, tuple(rows))


def _share(outcome: Mapping[str, Any]) -> Cell:
    """The share within the SLO, coloured by whether that meets it; uncoloured where it is too close
    to call."""
    cell = within(outcome["attainment"], outcome["slo_state"])
    tone = {SloState.MET: "good", SloState.MISSED: "bad"}.get(outcome["slo_state"], "")
    return cell if cell.value is None else cell._replace(tone=tone, strength=0.6)


def _latency_table(document: Mapping[str, Any]) -> PageTable:
    latency = document["latency"]
    rows = tuple(
        (text(title), *(_part(latency[name].get(part)) for name in parts.BARS))
        for part, title in parts.TITLES.items()
        if latency
    )
    columns = (
        PageColumn("Part", False),
        *(PageColumn(title, unit="ms") for title in parts.BARS.values()),
    )
    return PageTable("latency", "Where the latency goes: means", columns, rows)


def _part(value: float | None) -> Cell:
    return Cell("", None) if value is None else Cell(milliseconds(value), round(value, 6))
