"""Lays out the answer of ``infersim find``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.findings import (
    Card,
    Cards,
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
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import (
    OUTCOMES,
    Document,
    answered,
    by_outcome,
    latency_columns,
    named,
    setup,
    share_columns,
    slo_latencies,
    text,
    within,
)
from sim.planning.answers.drawings import ChartAxis, ChartPoint, Mark, PointChart, Series, far_apart
from sim.planning.load.sentences import by_chance
from sim.planning.points.wording import (
    LATENCIES,
    LoadOutcome,
    limit_name,
    nearest_promise,
    outcome_text,
    promise_name,
    rank,
)
from sim.units import milliseconds, number, show_load

MOST_ROWS = 9
"""Loads that a terminal is shown; all of them are in the result and on the page."""

DEPTH = 8.0
"""Where the axis of shares ends, in shares that may miss the target."""


def findings(document: Document) -> Findings:
    """The highest load that holds, how sure it is, and every load that was simulated."""
    best, *others = document["sentences"]
    first, breaks = document["with_answer"], document["breaks"]
    curves, attained = _curves(document), _attained(document)
    ends = Lines((breaks,), "", brief=True)
    told = document.get("basis")  # which results of before lack
    basis = Lines((f"How sure: {told}",) if told else (), "", brief=True)
    lines = Lines(tuple(each for each in others if each not in (breaks, *first)), "")
    return answered(
        document,
        "highest load",
        Headline(_tone(document), best, " ".join(first)),
        (
            Heading("summary", "Summary", (Cards(tuple(cards(document))),)),
            Heading(
                "curve", "Throughput and latency", (Drawings(curves), ends, basis, lines, *attained)
            ),
            Heading("probes", "Loads", (probes(document),)),
        ),
        (
            *setup(document),
            ("Looked for", f"highest {document['max']}"),
        ),
    )


def _tone(document: Document) -> str:
    """The tone of the own load: whether what is asked for holds."""
    own = document["own"]
    return "neutral" if own is None else OUTCOMES[own["outcome"]]


def cards(document: Document) -> Iterator[Card]:
    """The load, what it is of the own one, what breaks first, the capacity and the knee."""
    unit, own, knee, fails = (document[key] for key in ("unit", "own", "knee", "fails_at"))
    words = {probe["load"]: outcome_text(probe) for probe in document["probes"]}
    details = []
    sure, breaks = document["trust"]["sure_up_to"], document["first_to_break"]
    if sure is not None:
        details.append(f"sure to hold: {number(sure)} {unit}")
    if fails is not None:
        details.append(f"{number(fails)} {unit}: {words.get(fails, LoadOutcome.FAILS)}")
    yield Card("highest", "Highest load", number(document["load"]), unit, tuple(details))
    if own is not None:
        grown, held = document["headroom"], f"{number(own['load'])} {unit} {own['outcome']}"
        room = "-" if grown is None else f"{number(1 + grown)}x"
        yield Card("highest", "Headroom", room, "of the own load", (held,), _tone(document))
    if breaks is not None:
        name = limit_name(breaks)
        yield Card("highest", "Breaks first", name[:1].upper() + name[1:], "", ())
    full = number(document["saturated"])
    if document["max"] == "rate":
        yield Card("highest", "Full batches serve", full, unit, ("without any limit",))
    else:
        yield Card("highest", "Full batches hold", full, "requests", ("at a time",))
    if knee is not None:
        low, high = map(number, knee["between"])
        around = f"between {low} and {high}"
        around = "or above; no higher load holds" if knee["at_end"] else around
        yield Card("knee", "Knee", number(knee["load"]), unit, (around,))


def _curves(document: Document) -> tuple[Drawing, ...]:
    note = "Hover to see how often each load was simulated."
    return tuple(
        Drawing(
            f"curve-{name}", f"{name.upper()} over load", name, note, curve(document, name), kind=""
        )
        for name in LATENCIES
    )


def curve(document: Document, name: str) -> PointChart:
    """The latency ``name``, at the percentile of the SLO, for every load that has one, with its
    limit, the highest load that holds, the scenario's own and the knee."""
    key, limit, probes = f"slo_{name}_ms", document["limits_ms"].get(name), document["probes"]
    points = [
        (probe["outcome"], ChartPoint(probe["load"], probe[key], _runs(probe)))
        for probe in probes
        if probe[key]
    ]
    line = Series("", tuple(point._replace(text="") for _, point in points), name, look="line")
    marks = [] if limit is None else [Mark(limit, f"limit {milliseconds(limit)}")]
    for what, dash in (("own", "dot"), ("knee", "dash")):
        if document[what] is not None:
            load, word = document[what]["load"], "own load" if what == "own" else what
            marks.append(Mark(load, f"{word} {show_load(load, 3)}", dash, upright=True))
    latencies = [point.y for _, point in points]
    title = f"{name.upper()} {rank(document['shares'][name])}"
    return PointChart(
        _load_axis(document),
        ChartAxis(title, "ms", logarithmic=far_apart(latencies)),
        (line, *by_outcome(points)),
        tuple(marks),
        None if limit is None else (document["load"], limit),
    )


def _load_axis(document: Document) -> ChartAxis:
    most = max(probe["load"] for probe in document["probes"])
    return ChartAxis(f"load ({document['unit']})", ends=(0.0, 1.04 * most))


def _runs(probe: Mapping[str, Any]) -> str:
    """How often a load was simulated, how many requests would decide it, and what breaks."""
    count = probe["requests_to_decide"]
    decide = "" if count is None else f", about {count:,} requests would decide"
    breaks = "" if probe["holds"] else f", {limit_name(probe['breaks'])} breaks"
    return f"{probe['runs']} runs{decide}{breaks}"


def _attained(document: Document) -> list[Drawings]:
    """The share within the SLO, if there is one."""
    if not document["promises"]:
        return []
    note, title = "Bars: 95 % interval. Triangles: below the axis.", "Requests within the SLO"
    shares = attained_by_load(document)
    return [Drawings((Drawing("attainment", title, "interval", note, shares, kind=""),))]


def attained_by_load(document: Document) -> PointChart:
    """The share of requests within the part of the SLO that is nearest to breaking, by load, with
    its 95 % interval, and the shares wanted; shares far below these are drawn at the bottom."""
    kept = [(probe, nearest_promise(probe)) for probe in document["probes"]]
    wanted = dict.fromkeys(near["target"] for p in document["probes"] for near in p["promises"])
    several = any(len(probe["promises"]) > 1 for probe in document["probes"])
    room = min(1.0, DEPTH * (1 - min(wanted)))
    points = [
        (
            probe["outcome"],
            ChartPoint(
                *(probe["load"], near["attainment"]),
                f"within {promise_name(near)}" if several else "",
                interval=(near["low"], near["high"]),
            ),
        )
        for probe, near in kept
        if near is not None
    ]
    shares = ChartAxis("share of requests", "share", ends=(1 - 1.04 * room, 1 + 0.04 * room))
    marks = tuple(Mark(each, f"SLO: {100 * each:.6g} %") for each in wanted)
    return PointChart(_load_axis(document), shares, by_outcome(points), marks)


def probes(document: Document) -> Table:
    """Every load that was simulated; of several limits each says which is nearest."""
    runs = len(document["promises"]) < 2  # for which the column of the limits leaves no room
    columns = (
        Column(f"Load ({document['unit']})", definition="highest"),
        Column("Outcome", False),
        *share_columns(document),
        *(Column(f"{end} (%)", definition="interval", in_brief=False) for end in ("from", "to")),
        *latency_columns(document),
        Column(METRIC["output_throughput"].head, definition="output_throughput", on_terminal=False),
        Column("Runs", on_terminal=runs, in_brief=False),
        Column("Requests in each", on_terminal=runs, in_brief=False),
    )
    rows = tuple(_row(probe) for probe in document["probes"])
    return Table("probes", _caption(document), columns, rows, shown=nearest(document))


def _caption(document: Document) -> str:
    """How many requests the runs of a load had, and which of them do not count: both why its share
    is not that of one `infersim run`."""
    sizes = [probe["requests"] for probe in document["probes"]]
    least, most = f"{min(sizes):,}", f"{max(sizes):,}"
    told = f"Loads that were simulated, with {least if least == most else f'{least} to {most}'} "
    left_out = ", without each user's first two" if document["opening_left_out"] else ""
    return f"{told}requests{left_out}"


def nearest(document: Document) -> tuple[int, ...]:
    """The places of the loads that matter, the first one first: both ends of the bracket, the
    scenario's own, the ends of what is sure, and those closest to the answer."""
    best, own, loads = document["load"], document["own"], document["probes"]
    first = {best, document["fails_at"], *by_chance(document)}
    first |= {None if own is None else own["load"]}

    def order(place: int) -> tuple[bool, float]:
        load = loads[place]["load"]
        return load not in first, abs(load / best - 1)

    return tuple(sorted(range(len(loads)), key=order)[:MOST_ROWS])


def _row(probe: Mapping[str, Any]) -> tuple[Cell, ...]:
    kept = nearest_promise(probe)
    shares = [within(None if kept is None else kept[key]) for key in ("attainment", "low", "high")]
    tokens = probe["output_throughput"]
    return (
        Cell(show_load(probe["load"]), probe["load"]),
        text(outcome_text(probe))._replace(tone=OUTCOMES[probe["outcome"]]),
        *([] if kept is None or len(probe["promises"]) < 2 else [named(kept)]),
        *shares,
        *slo_latencies(probe),
        Cell(number(tokens), tokens),
        *(Cell(f"{probe[key]:,}", probe[key]) for key in ("runs", "requests_per_run")),
    )
