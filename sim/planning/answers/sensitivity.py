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
    WITHIN,
    Document,
    effect,
    failures,
    percent,
    text,
    values,
    within,
)
from sim.planning.answers.drawings import AttainedAtEnds, ChangeBar, Changes, EndsBar
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
    moves = attained is not None and _moves(attained)
    drawn = [_attained(document, attained)] if attained is not None and moves else []
    lines = (
        *([_still(document)] if decided and not moves else []),
        *([scaling["text"]] if scaling else []),
        *document["footnotes"],
        *document["sure"],
    )
    return Findings(
        document["scenario"],
        "sensitivity",
        document["infersim"],
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
        document.get("asked"),
        document["description"],
    )


def _headline(document: Document) -> Headline:
    tone = "warn" if document["flips"] else {True: "good", False: "bad"}.get(document["holds"])
    answer, short, verdict = document["answer"], document["short"], document["verdict"]["text"]
    return Headline(tone or "neutral", short, verdict if short == answer else f"{answer} {verdict}")


def attained_at_ends(document: Document) -> AttainedAtEnds | None:
    """The share within the SLO at the ends of all inputs where it is known, the widest swing first;
    None without an SLO that a share of requests decides."""
    now, made = document["verdict"]["attainment"], []
    for entry in document["inputs"]:
        own = [
            _bar(document, entry["title"], end)
            for end in (entry["low"], entry["high"])
            if end is not None and end["error"] is None and end["attainment"] is not None
        ]
        made.append(own)
    if now is None or not any(made):
        return None
    made.sort(key=lambda own: -max((abs(bar.share - now) for bar in own), default=0.0))
    bars = tuple(bar for own in made for bar in own)
    return AttainedAtEnds(now, document["verdict"]["target"], bars)


def _bar(document: Document, row: str, end: Mapping[str, Any]) -> EndsBar:
    state = end["slo_state"]
    flips = "" if state == document["verdict"]["slo_state"] else str(state)
    return EndsBar(row, end["text"], end["attainment"], flips)


def _moves(found: AttainedAtEnds) -> bool:
    """Whether any end moves the share far enough to be seen next to the share that is wanted."""
    furthest = max(abs(bar.share - found.now) for bar in found.bars)
    return furthest > SEEN * abs(found.target - found.now)


def _attained(document: Document, found: AttainedAtEnds) -> Drawing:
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
        cut = f" The {MOST_ROWS} widest of {count:,}." if count > MOST_ROWS else ""
        metric = METRIC[key]
        yield Drawing(f"tornado-{key}", metric.head, metric.definition, f"{NOTE}{cut}", found)


def changes(document: Document, key: str) -> Changes:
    """How far each end of each input moves the metric ``key``."""
    more = next(figure["more"] for figure in document["figures"] if figure["key"] == key)
    bars = tuple(
        ChangeBar(
            entry["title"],
            end["changes"][key],
            f"{entry['title']} {end['text']}",
            end["text"],
            judged=not (key in FOLLOWS and _is_load(end)),
        )
        for entry in document["inputs"]
        for end in (entry["low"], entry["high"])
        if end is not None and end["changes"].get(key) is not None
    )
    return Changes(METRIC[key].short_head, more, bars)


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
