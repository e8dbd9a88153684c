"""Renders the ``result.json`` of ``infersim sweep`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures import heat, knee, pareto
from reports.figures.naming import axis_name, spoken
from reports.figures.pareto import Kind
from reports.figures.series import MOST_LINES, lines, written
from reports.frame.asked import on_gpus, provenance, question
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, phrase, show
from reports.frame.page import fill
from reports.frame.run_directory import known
from sim.findings import Cell, Column, Headline, Table
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.definitions import METRIC
from sim.metrics.terms.metric import Definition
from sim.planning.answers.cells import within
from sim.planning.points.slo_state import is_open, meets
from sim.planning.points.wording import latency_ms, rank, slo_percentile, state_word
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "points": "Points",
    "failures": "Failures",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

DEFINITIONS: Mapping[str, Definition] = {
    **{
        name: OF_RUNS[name]
        for name in ("request_throughput", "output_throughput", "ttft", "tpot", "attainment")
    },
    "speed": Definition(
        "Tokens per user and per GPU",
        "What one user sees (1 over the median TPOT) and what one GPU yields (output throughput "
        "over the number of GPUs). A point is on the front if no other one has more of both.",
    ),
    "cost": OF_RUNS["cost"],
    "energy": OF_RUNS["energy"],
    "state": Definition(
        "State",
        "Whether the fleet holds the traffic: stable, near saturation, overloaded, or too short a "
        "run to tell. overload?: more than 100 % of the capacity arrives, so that the fleet is "
        "probably overloaded; a longer run would tell.",
    ),
}

MOST_ROWS = 2000
"""Points in the table of the page; a browser is slow with more."""

COLUMNS = (
    Column(METRIC["request_throughput"].head, definition="request_throughput"),
    Column(METRIC["output_throughput"].head, definition="output_throughput"),
    Column("TTFT p50", definition="ttft", unit="ms"),
    Column("TTFT", definition="ttft", unit="ms"),
    Column("TPOT", definition="tpot", unit="ms"),
    Column("Within SLO (%)", definition="attainment"),
    Column("SLO", False),
    Column(PER_OUTPUT_TOKENS, definition="cost"),
    Column(PER_TOKENS, definition="cost"),
    Column("J/token", definition="energy"),
    Column("State", False, "state"),
)


MOST_RUNS = 4
"""Points of which a run is kept, with its page."""


def chosen(document: Mapping[str, Any]) -> list[int]:
    """The points whose runs are kept: where the SLO is met last and missed first along the load, of
    as many combinations of the other values as there is room for, or the last of all where neither
    is known; without a load that of the headline."""
    results = document["results"]
    served = [row for row in results if row["summary"] is not None]
    load = document["load"]
    if load is None:
        return [results.index(_best(served))] if served else []
    found: list[int] = []
    courses: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(served, key=lambda row: float(row["settings"][load])):
        others = {key: value for key, value in row["settings"].items() if key != load}
        courses.setdefault(str(others), []).append(row)
    for course in courses.values():
        met = [row for row in course if _holds(row)]
        missed = [row for row in course if _verdict(row)["slo_met"] is False]
        ends = [*met[-1:], *missed[:1]] or course[-1:]
        found += [results.index(row) for row in ends]
    return sorted(found[:MOST_RUNS])


def render(document: Mapping[str, Any], pages: Mapping[int, str] | None = None) -> str:
    """The page as HTML; a function of its arguments alone. ``pages`` leads from the places of some
    points to the pages of their runs."""
    kept = pages or {}
    failed, gpus = document["failed"], on_gpus(document)
    sections = {key: title for key, title in SECTIONS.items() if failed or key != "failures"}
    return fill(
        "sweep.html.j2",
        sections,
        DEFINITIONS,
        header={
            "name": document["name"],
            "kind": "sweep",
            **question(document["name"], "sweep", document.get("asked"), "", on=gpus),
            "setup": [
                *([("Model", document["model"])] if "model" in document else []),
                *([("GPUs", gpus)] if gpus else []),
                ("Points", f"{document['points']:,}"),
                *([("Did not run", f"{failed:,}")] if failed else []),
                *((axis["name"], _values(axis["values"])) for axis in document["axes"]),
            ],
        },
        headline=headline(document),
        answers=[
            f"{spoken(answer['text'])}."
            for answer in document["answers"]
            if len(document["answers"]) > 1
        ],
        notes=[*map(spoken, _notes(document)), *_one_point(document)],
        plots=plots(document),
        links=[(spoken(document["results"][at]["label"]), page) for at, page in kept.items()],
        points=_points(document),
        failures=_failures(document) if failed else None,
        provenance=provenance(document),
    )


def _notes(document: Mapping[str, Any]) -> list[str]:
    """What is to be known of the points; results of older versions lack the notes of their runs."""
    return [*document.get("run_notes", ()), *document["notes"]]


def _one_point(document: Mapping[str, Any]) -> list[str]:
    """How to see one point in full, where the scenario's file is known."""
    command = document.get("made", {}).get("command", "")
    words = command.split(" --sweep ")[0].split()
    first = next((row for row in document["results"] if row["summary"] is not None), None)
    if words[:2] != ["infersim", "sweep"] or first is None or "'" in command or '"' in command:
        return []
    words[1] = "run"
    words += [f"--set {key}={written(value)}" for key, value in first["settings"].items()]
    return [f"One point in full, with its own page: `{' '.join(words)}`"]


def headline(document: Mapping[str, Any]) -> Headline:
    """The one answer of the sweep; else which point serves most within the SLO, if there is one."""
    answers = document["answers"]
    if len(answers) == 1:
        return Headline("neutral", spoken(answers[0]["text"]))
    rows = [row for row in document["results"] if row["summary"] is not None]
    if not rows:
        return Headline("bad", f"None of the {document['points']:,} points has figures")
    limited = any(_verdict(row)["limits"] for row in rows)
    good = [row for row in rows if _holds(row)]
    if limited and not good:
        return _none_meets(rows)
    best = _best(rows)
    what = "Most output within the SLO" if limited else "Most output"
    rate = phrase(best["summary"]["output_throughput"], "number", "tokens/s")
    verb = "meets" if len(good) == 1 else "meet"
    share = f"{len(good):,} of {phrase(len(rows), 'count', 'points')} {verb} the SLO."
    return Headline(
        "neutral", f"{what}: {rate}, with {spoken(best['label'])}", share if limited else ""
    )


def _best(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The one of ``rows`` that serves most within the SLO, or most if none meets it."""
    good = [row for row in rows if _holds(row)]
    return max(good or rows, key=lambda row: row["summary"]["output_throughput"] or 0.0)


def _verdict(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row["summary"]["infersim"]["verdict"]
    return found


def _holds(row: Mapping[str, Any]) -> bool:
    return meets(row["summary"])


def _none_meets(rows: Sequence[Mapping[str, Any]]) -> Headline:
    """The note that no point meets the SLO for sure, and how many leave it open."""
    count = phrase(len(rows), "count", "points")
    open_ones = sum(is_open(row["summary"]) for row in rows)
    if not open_ones:
        return Headline("bad", f"None of {count} meets the SLO")
    are = "is" if open_ones == 1 else "are"
    told = f"{open_ones:,} of them {are} too close to call."
    return Headline("warn", f"None of {count} meets the SLO for sure", told)


def plots(document: Mapping[str, Any]) -> list[Plot]:
    """The figures that suit what was swept; none if every point failed."""
    rows = [row for row in document["results"] if row["summary"] is not None]
    if not rows:
        return []
    made: list[Plot] = []
    if document["load"] is not None:
        made += [_knee(document, name) for name in ("ttft", "tpot")]
    if len(document["axes"]) == 2 and all(map(_numeric, document["axes"])):
        limited = any(_verdict(row)["limits"] for row in rows)
        chosen = [name for name in heat.METRICS if limited or name != "attainment"]
        made += [_heat(document, metric) for metric in chosen]
    made += [_pareto(document, kind) for kind in pareto.TITLES if pareto.places(document, kind)]
    return made


def _knee(document: Mapping[str, Any], latency: str) -> Plot:
    count = len(lines(document, document["load"]))
    caption = "Hollow: overloaded, and slower still with more requests. Cross: SLO missed."
    caption += " Diamond: too close to call."
    drawn = knee.figure(document, latency)
    if drawn.layout.shapes:
        shaded = any(shape.type == "rect" for shape in drawn.layout.shapes)
        caption += " Shaded: within the limit of the SLO." if shaded else " Dashed: the limits."
    if count > MOST_LINES:
        caption += f" The first {MOST_LINES} of {count:,} lines."
    title = f"{latency.upper()} {rank(_percentiles(document)[latency] / 100)} over load"
    return Plot(f"knee-{latency}", title, latency, caption, to_json(drawn), kind="tall")


def _heat(document: Mapping[str, Any], metric: str) -> Plot:
    wanted = heat.shown(document, metric)
    scale = ", by the logarithm" if wanted.logarithmic else ""
    failed = " Empty: the point failed or has no value."
    note = f"Darker is more{scale}.{failed if None in wanted.values else ''}"
    if any(_verdict(row)["limits"] for row in document["results"] if row["summary"] is not None):
        note += " Green line: the border of the SLO."
    drawn = to_json(heat.figure(document, metric))
    return Plot(f"heat-{metric}", wanted.title, metric, note, drawn, kind="tall")


def _pareto(document: Mapping[str, Any], kind: Kind) -> Plot:
    points = pareto.places(document, kind)
    best = len(pareto.front(points, kind))
    note = f"{phrase(len(points), 'count', 'points')}; on the front: {best:,}. Hover for a name."
    if len(points) == 1:
        note = f"One point: {spoken(points[0].row['label'])}."
    left = sum(row["summary"] is not None for row in document["results"]) - len(points)
    if left:
        note += f" Left out: {left:,} overloaded or beyond the SLO."
    drawn = to_json(pareto.figure(document, kind))
    return Plot(f"pareto-{kind}", pareto.TITLES[kind], kind, note, drawn, kind="tall")


def _numeric(axis: Mapping[str, Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis["values"])


def _values(values: list[Any]) -> str:
    """The values of an axis, or how many there are and the ends."""
    few = [written(value) for value in values]
    return ", ".join(few) if len(few) <= 6 else f"{len(few)} values, {few[0]} to {few[-1]}"


def _points(document: Mapping[str, Any]) -> Table:
    axes = tuple(Column(axis_name(axis["name"]), _numeric(axis)) for axis in document["axes"])
    own, ranks = _own_names(document), _percentiles(document)
    shown = document["results"][:MOST_ROWS]
    rows = tuple(
        (*map(_setting, row["settings"].values()), *_cells(row, ranks), *_own(row, own))
        for row in shown
    )
    caption = "Every point"
    if document["points"] > MOST_ROWS:
        caption = f"The first {MOST_ROWS:,} of {document['points']:,} points"
    return Table("points", caption, (*axes, *_columns(document), *map(Column, own)), rows)


def _columns(document: Mapping[str, Any]) -> list[Column]:
    """``COLUMNS``, those of latencies with the percentile that the SLO judges."""
    titles = {name.upper(): f"{name.upper()} {rank(value / 100)}"
              for name, value in _percentiles(document).items()}  # fmt: skip
    return [column._replace(title=titles.get(column.title, column.title)) for column in COLUMNS]


def _percentiles(document: Mapping[str, Any]) -> dict[str, float]:
    rows = [row["summary"] for row in document["results"] if row["summary"] is not None]
    return {name: slo_percentile(rows, name) for name in ("ttft", "tpot")}


def _own_names(document: Mapping[str, Any]) -> list[str]:
    """The user's own metrics that any of the points has."""
    found = [_metrics(row) for row in document["results"]]
    return list(dict.fromkeys(name for metrics in found for name in metrics))


def _own(row: Mapping[str, Any], names: Sequence[str]) -> list[Cell]:
    metrics = _metrics(row)
    return [Cell(*show(metrics.get(name), "number")) for name in names]


def _metrics(row: Mapping[str, Any]) -> Mapping[str, float | None]:
    return {} if row["summary"] is None else row["summary"]["infersim"].get("metrics") or {}


def _setting(value: Any) -> Cell:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(written(value), value if numeric else written(value))


def _cells(row: Mapping[str, Any], ranks: Mapping[str, float]) -> list[Cell]:
    summary = row["summary"]
    if summary is None:
        word = "infeasible" if row["exit_code"] == 3 else "failed"
        return [*([Cell(MISSING, None)] * (len(COLUMNS) - 1)), Cell(word, word)]
    verdict, cost = _verdict(row), summary["infersim"]["cost"]
    keys = ("request_throughput", "output_throughput")
    latencies = (latency_ms(summary, name, value) for name, value in ranks.items())
    state, word = verdict["slo_state"] or MISSING, state_word(verdict)
    return [
        *(Cell(*show(summary[key], "number")) for key in keys),
        Cell(*show(summary["p50_ttft_ms"], "ms")),
        *(Cell(*show(latency, "ms")) for latency in latencies),
        within(verdict["attainment"]),
        Cell(state, state),
        Cell(*show(cost and cost["usd_per_million_output_tokens"], "usd")),
        Cell(*show(cost and cost["usd_per_million_tokens"], "usd")),
        Cell(*show(known(summary, "infersim.energy.joules_per_output_token"), "number")),
        Cell(word, word),
    ]


def _failures(document: Mapping[str, Any]) -> Table:
    rows = [
        (Cell(spoken(row["label"]), row["label"]), Cell(row["error"], row["error"]))
        for row in document["results"]
        if row["error"] is not None
    ]
    columns = (Column("Point", False), Column("Reason", False, prose=True))
    return Table("failures", "Points without figures", columns, tuple(rows[:MOST_ROWS]))
