"""Lays out the answer of ``infersim sensitivity``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.findings import Cell, Column, Drawing, Drawings, Findings, Heading, Headline, Lines, Table
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import (
    CHANGES,
    HEADS,
    MOST_ROWS,
    NOTHING,
    STATES,
    WITHIN,
    Document,
    answered,
    effect,
    failures,
    percent,
    text,
    values,
    within,
)
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar, Mark
from sim.planning.points.wording import verdict_word
from sim.units import show_share

NOTE = "Each input at its low and its high end, everything else unchanged."

CAPTION = (
    f"{NOTE} Solid line: the run; dashed: the share that the SLO asks for. "
    "Coloured: the verdict is another one."
)

SEEN = 0.02
"""Bars that are a smaller part of the way to the target are not seen."""

FOLLOWS = ("output_throughput", "request_goodput")
"""Figures that grow with the traffic itself."""

LOADS = ("assume.prompt_tokens", "assume.output_tokens")
"""Assumptions that are about the traffic."""


def findings(document: Document) -> Findings:
    """The decision and what flips it, then what leaves it open."""
    attained, scaling = attained_at_ends(document), document["scaling"]
    decided = attained is not None
    moves = attained is not None and any(bar.words for bar in attained.bars)
    drawn = [_attained(document, attained)] if attained is not None and moves else []
    lines = (
        *([_still(document)] if decided and not moves else []),
        *([scaling["text"]] if scaling else []),
        *document["footnotes"],
        *document["sure"],
    )
    return answered(
        document,
        "sensitivity",
        _headline(document),
        (
            Heading("summary", "Summary"),
            Heading("figures", "Figures", (Drawings((*drawn, *_tornados(document, decided))),)),
            Heading(
                "numbers",
                "Numbers",
                (_inputs(document), Lines(lines), Lines((*document["notes"],), "warn")),
            ),
            *failures("Not varied", _reasons(document)),
        ),
        (("Setup", document["setup"]), ("Iteration times", f"within ± {document['band']:.0%}")),
    )


def _headline(document: Document) -> Headline:
    tone = "warn" if document["flips"] else {True: "good", False: "bad"}.get(document["holds"])
    decision, verdict = document["short"], document["verdict"]["text"]
    more = document["answer"].removeprefix(decision).strip()
    return Headline(tone or "neutral", decision, " ".join(filter(None, (more, verdict))))


def attained_at_ends(document: Document) -> BarChart | None:
    """Bars from the share within the SLO of the run to that at each end of the inputs where it is
    known, the widest swing first; None without an SLO that a share of requests decides."""
    now, target = document["verdict"]["attainment"], document["verdict"]["target"]
    rows = [
        [(entry["title"], end) for end in (entry["low"], entry["high"]) if _attains(end)]
        for entry in document["inputs"]
    ]
    shares = [end["attainment"] for row in rows for _, end in row]
    if now is None or not shares:
        return None
    rows.sort(key=lambda row: -max((abs(end["attainment"] - now) for _, end in row), default=0.0))
    seen = SEEN * (max(now, target, *shares) - min(now, target, *shares))
    bars = tuple(_bar(document, title, end, seen) for row in rows for title, end in row)
    wanted = Mark(target, f"wanted: {show_share(target)}")
    return BarChart(
        ChartAxis("Requests within the SLO", "share"), bars, (Mark(now, dash="solid"), wanted)
    )


def _attains(end: Mapping[str, Any] | None) -> bool:
    return end is not None and end["error"] is None and end["attainment"] is not None


def _bar(document: Document, row: str, end: Mapping[str, Any], seen: float) -> ChartBar:
    """The bar of one end, with a word if it is longer than what is ``seen``: which end, and the
    state of the SLO where that is another one than that of the run."""
    verdict, share, state = document["verdict"], end["attainment"], end["slo_state"]
    flips = "" if state == verdict["slo_state"] else str(state)
    name, shown = f"{row} {end['text']}".strip(), show_share(share, verdict["target"])
    words = ": ".join(filter(None, (end["text"], flips)))
    return ChartBar(
        row,
        share,
        f"{name}: {shown} within the SLO",
        words if abs(share - verdict["attainment"]) > seen else "",
        STATES.get(flips, ""),
        start=verdict["attainment"],
    )


def _attained(document: Document, found: BarChart) -> Drawing:
    caption = " ".join([CAPTION, *_together(document)])
    return Drawing("attained", "Requests within the SLO", "attainment", caption, found, wide=True)


def _still(document: Document) -> str:
    """The text in place of a figure without bars."""
    verdict = document["verdict"]
    now = show_share(verdict["attainment"], verdict["target"])
    still = f"No input alone moves the share within the SLO: {now} at either end of each."
    return " ".join([still, *_together(document)])


def _together(document: Document) -> list[str]:
    """The share with all worse ends together, where it is known."""
    together = document["together"]
    if together is None or together["attainment"] is None:
        return []
    share = show_share(together["attainment"], document["verdict"]["target"])
    return [f"With all worse ends together {share} are within the SLO."]


def _tornados(document: Document, decided: bool) -> Iterator[Drawing]:
    """The figures that strain the fleet; throughput and goodput, which follow the traffic where it
    is held, only where no share of requests decides."""
    for key in HEADS:
        found = changes(document, key)
        if not found.bars or (decided and key in FOLLOWS):
            continue
        count = len({bar.row for bar in found.bars})
        rows = list(dict.fromkeys(bar.row for bar in found.bars))[:MOST_ROWS]
        found = found._replace(bars=tuple(bar for bar in found.bars if bar.row in rows))
        cut = f" The {MOST_ROWS} widest of {count:,}." if count > MOST_ROWS else ""
        metric = METRIC[key]
        yield Drawing(f"tornado-{key}", metric.head, metric.definition, f"{NOTE}{cut}", found)


def changes(document: Document, key: str) -> BarChart:
    """How far each end of each input moves the metric ``key``, the widest swing first."""
    more = next(figure["more"] for figure in document["figures"] if figure["key"] == key)
    rows = []
    for entry in document["inputs"]:
        row = []
        for end in (entry["low"], entry["high"]):
            change = None if end is None else end["changes"].get(key)
            if change is not None:
                judged = not (key in FOLLOWS and _is_load(end))
                tone = ("good" if (change > 0) == more else "bad") if judged else ""
                text = f"{entry['title']} {end['text']}: {percent(change).text}"
                words = end["text"] if abs(change) >= NOTHING else ""
                row.append(ChartBar(entry["title"], change, text, words, tone))
        rows.append(row)
    rows.sort(key=lambda row: -max((abs(bar.end) for bar in row), default=0.0))
    axis = ChartAxis(f"{METRIC[key].short_head}, change", "share")
    return BarChart(axis, tuple(bar for row in rows for bar in row), (Mark(0.0, dash="solid"),))


def _is_load(end: Mapping[str, Any]) -> bool:
    """Whether an end is other traffic: more requests or longer answers are not better work."""
    return any(key.startswith("workload.") or key in LOADS for key in end["settings"])


def _inputs(document: Document) -> Table:
    now = {figure["key"]: figure["value"] for figure in document["figures"]}
    verdict = document["verdict"]
    holds = text(verdict_word(verdict["slo_state"], document["holds"]))
    rows = [(text("unchanged"), within(verdict["attainment"]), holds, *values(now))]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is None:
                rows.append(_row(document, f"{entry['title']} {end['text']}", end))
    together = document["together"]
    if together is not None and together["error"] is None:
        rows.append(_row(document, together["text"], together))
    columns = (
        Column("Input", False),
        WITHIN,
        Column("SLO" if verdict["limits"] else "Traffic", False),
        *(column._replace(on_terminal=key != FOLLOWS[1]) for key, column in CHANGES.items()),
    )
    caption = "Every input: changes against the unchanged run on top; grey is within chance"
    return Table("inputs", caption, columns, tuple(rows))


def _row(document: Document, title: str, end: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Coloured by effect, except for what grows with the traffic anyway."""
    moved = (
        percent(end["changes"][key])
        if key in FOLLOWS
        else effect(document, key, end["changes"][key])
        for key in HEADS
    )
    word = text(verdict_word(end["slo_state"], end["holds"]))
    other = end["holds"] != document["holds"]
    return (text(title), within(end["attainment"]), word._replace(tone="warn" * other), *moved)


def _reasons(document: Document) -> list[tuple[str, str]]:
    found = [(e["title"], e["missing"]) for e in document["inputs"] if e["missing"] is not None]
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None and end["error"] is not None:
                found.append((f"{entry['title']} {end['text']}", end["error"]))
    return found
