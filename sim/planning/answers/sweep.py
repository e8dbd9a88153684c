"""Lays out the answer of ``infersim sweep``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Drawings, Findings, Heading, Headline, Lines, Links, Table
from sim.metrics.own import failures as failed_metrics
from sim.metrics.states import State
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import (
    STATES,
    WITHIN,
    Document,
    answered,
    figure,
    reasons,
    setup,
    text,
    within,
)
from sim.planning.answers.sweep_points import SweptPoint, best, drawings, numeric, ranks, served
from sim.planning.points.footnote_words import footnotes
from sim.planning.points.points import show
from sim.planning.points.wording import PROBABLY_TOO_MUCH, axis_name, counted, spoken
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, milliseconds, number, show_cost

MOST_ROWS = 2000
"""Points in the table of the page; a browser is slow with more."""

MOST_SHOWN = 60
"""Points that a terminal is shown."""

POWER = "power_limit"
"""The setting whose points show their energy on a terminal too."""

FEW = 6
"""Values of an axis that are listed."""

AT_PREDICTED = (
    "Points are judged at the predicted times: `infersim run` says what their error band leaves "
    "open."
)
"""The sentence behind the highest load at which points meet their SLO."""


def findings(document: Document) -> Findings:
    """How far the load goes or the best point, the figures, and every point."""
    points, failed = served(document), document["failed"]
    answers = [f"{spoken(answer['text'])}." for answer in document["answers"]]
    notes = [*document["run_notes"], *failed_metrics(point.summary for point in points)]
    others = [*map(spoken, document["notes"]), *_one_point(document, points)]
    others += [AT_PREDICTED] if len(answers) > 1 else []
    nothing = "Every point failed: there is nothing to draw."
    drawn = Drawings(tuple(drawings(document, points)), nothing)
    lines = Lines(tuple(map(spoken, notes)), "warn"), Lines(tuple(others))
    rows = _points(document, points)
    return answered(
        document,
        "sweep",
        headline(document, points),
        (
            Heading("summary", "Summary", (Lines(tuple(answers if len(answers) > 1 else ()), ""),)),
            Heading("figures", "Figures", (drawn, *lines)),
            Heading("points", "Points", (rows, Lines(tuple(legend(points))))),
            *_failures(document),
        ),
        (
            *setup(document),
            ("Points", f"{document['points']:,}"),
            *([("Did not run", f"{failed:,}")] if failed else []),
            *((axis["name"], _values(axis["values"])) for axis in document["axes"]),
        ),
    )


def in_full(document: Document, pages: Mapping[int, str]) -> Heading:
    """The section that leads from some points, by their places, to the pages of their runs."""
    named = [(spoken(document["results"][at]["label"]), page) for at, page in pages.items()]
    links = Links("Some points have pages of their own:", tuple(named))
    return Heading("runs", "Points in full", (links,) if named else ())


def _one_point(document: Document, points: Sequence[SweptPoint]) -> Iterator[str]:
    """How to see one point in full, where the scenario's file is known."""
    command = document.get("made", {}).get("command", "")
    words = command.split(" --sweep ")[0].split()
    if words[:2] == ["infersim", "sweep"] and points and "'" not in command and '"' not in command:
        settings = (f"--set {key}={show(value)}" for key, value in points[0].settings.items())
        again = " ".join(["infersim", "run", *words[2:], *settings])
        yield f"One point in full, with its own page: `{again}`"


def headline(document: Document, points: Sequence[SweptPoint]) -> Headline:
    """The one answer of the sweep; else which point serves most within the SLO, if there is one."""
    if len(document["answers"]) == 1:
        return Headline("neutral", spoken(document["answers"][0]["text"]), AT_PREDICTED)
    if not points:
        return Headline("bad", f"None of the {document['points']:,} points has figures")
    limited = any(point.verdict["limits"] for point in points)
    good, count = sum(point.meets for point in points), counted(len(points), "point")
    if limited and not good:
        return _none_meets(count, sum(point.is_open for point in points))
    first, what = best(points), "Most output within the SLO" if limited else "Most output"
    rate = f"{number(first.output)} tokens/s"
    meet = f"{good:,} of {count} {'meets' if good == 1 else 'meet'} the SLO." if limited else ""
    return Headline("neutral", f"{what}: {rate}, with {first.label}", meet)


def _none_meets(count: str, open_ones: int) -> Headline:
    """The note that no point meets the SLO for sure, and how many leave it open."""
    if not open_ones:
        return Headline("bad", f"None of {count} meets the SLO")
    are = "is" if open_ones == 1 else "are"
    told = f"{open_ones:,} of them {are} too close to call."
    return Headline("warn", f"None of {count} meets the SLO for sure", told)


def legend(points: Sequence[SweptPoint]) -> Iterator[str]:
    """The meaning of the marks and words that the table has."""
    yield from footnotes([point.verdict for point in points])
    states = {point.state for point in points}
    if PROBABLY_TOO_MUCH in states:
        yield (
            f"{PROBABLY_TOO_MUCH}: more than 100 % of the capacity arrives, so the fleet is "
            "probably overloaded; a longer run would tell."
        )
    if State.TOO_SHORT in states:
        yield (
            f"{State.TOO_SHORT}: the run is too short to tell whether the fleet keeps up; more "
            "requests (run.requests) would tell."
        )


def _values(values: Sequence[Any]) -> str:
    """The values of an axis, or how many there are and the ends."""
    few = [show(value) for value in values]
    return ", ".join(few) if len(few) <= FEW else f"{len(few)} values, {few[0]} to {few[-1]}"


def _points(document: Document, points: Sequence[SweptPoint]) -> Table:
    by_place = {point.place: point for point in points}
    own = list(dict.fromkeys(name for point in points for name in point.metrics))
    columns = [*_columns(document, points), *map(Column, own)]
    axes = tuple(Column(axis_name(a["name"]), numeric(a["values"])) for a in document["axes"])
    rows = []
    for place, row in enumerate(document["results"][:MOST_ROWS]):
        point = by_place.get(place)
        word = "infeasible" if row["exit_code"] == 3 else "failed"
        cells = [Cell("-", None)] * len(columns)
        cells[-1 - len(own)] = text(word)._replace(tone="bad")
        if point is not None:
            cells = [*_cells(point), *(figure(point.metrics.get(name), number) for name in own)]
        rows.append((*map(_setting, row["settings"].values()), *cells))
    caption = "Every point"
    if document["points"] > MOST_ROWS:
        caption = f"The first {MOST_ROWS:,} of {document['points']:,} points"
    shown = tuple(range(MOST_SHOWN)) if len(rows) > MOST_SHOWN else ()
    made = (*axes, *columns)
    return Table("points", caption, made, tuple(rows), shown=shown, keys=len(axes))


def _columns(document: Document, points: Sequence[SweptPoint]) -> list[Column]:
    """The columns of figures, those of latencies with the percentile that the SLO judges."""
    power = any(axis["key"].endswith(POWER) for axis in document["axes"])
    return [
        *(
            Column(METRIC[key].head, definition=key)
            for key in ("request_throughput", "output_throughput")
        ),
        Column("TTFT p50", definition="ttft", unit="ms"),
        *(Column(at, definition=name[:4], unit="ms") for name, at in ranks(points).items()),
        WITHIN,
        Column("SLO", False, on_terminal=False),
        Column(PER_OUTPUT_TOKENS, definition="cost", on_terminal=False),
        Column(PER_TOKENS, definition="cost", on_terminal=False),
        Column("J/token", definition="energy", on_terminal=power),
        Column("State", False, "state"),
    ]


def _setting(value: Any) -> Cell:
    return Cell(show(value), value if numeric([value]) else show(value))


def _cells(point: SweptPoint) -> list[Cell]:
    summary, verdict, cost = point.summary, point.verdict, point.cost
    slo = verdict["slo_state"]
    latencies = (summary["p50_ttft_ms"], *point.latency.values())
    dollars = (cost.get(f"usd_per_million_{what}") for what in ("output_tokens", "tokens"))
    return [
        *(figure(summary[key], number) for key in ("request_throughput", "output_throughput")),
        *(figure(each, milliseconds) for each in latencies),
        within(verdict["attainment"], slo)._replace(tone=STATES.get(slo, "")),
        text(slo or "-"),
        *(figure(usd, show_cost) for usd in dollars),
        figure(point.joules, number),
        text(point.state)._replace(tone=STATES.get(verdict["state"], "")),
    ]


def _failures(document: Document) -> Iterator[Heading]:
    """The points without figures, and why; a terminal is shown the first of each reason."""
    failed = [row for row in document["results"] if row["error"] is not None][:MOST_ROWS]
    first: dict[str, int] = {}
    for place, row in enumerate(failed):
        first.setdefault(row["error"].partition("\n")[0], place)
    found = reasons([(spoken(row["label"]), row["error"]) for row in failed])
    if found is not None:
        shown = tuple(first.values())[:MOST_SHOWN] if len(first) < len(failed) else ()
        yield Heading("failures", "Failures", (found._replace(shown=shown),))
