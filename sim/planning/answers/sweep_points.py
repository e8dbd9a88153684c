"""Reads the points of a sweep, and chooses those that matter most and what is drawn of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple

from sim.findings import Drawing
from sim.metrics.states import SloState, State
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import WITHIN, Document
from sim.planning.answers.drawings import (
    ChartAxis,
    ChartPoint,
    Grid,
    Mark,
    PointChart,
    Series,
    drawable,
)
from sim.planning.points.figures import is_open, meets
from sim.planning.points.points import show
from sim.planning.points.wording import (
    LATENCIES,
    MEASURED,
    at_slo,
    axis_name,
    percentiles,
    slo_keys,
    spoken,
    state_word,
)
from sim.units import PER_TOKENS, show_load, time_scale

MOST_RUNS = 4
"""Points of which a run is kept, with its page."""


class SweptPoint(NamedTuple):
    """A point with figures: its place among all, what it was set to, and what tables and figures
    have of it. ``latency`` has those at the percentiles that the SLO judges, in milliseconds."""

    place: int
    label: str
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    latency: Mapping[str, float | None]
    meets: bool
    is_open: bool

    @property
    def own(self) -> Mapping[str, Any]:
        """The ``infersim`` entry of its summary."""
        found: Mapping[str, Any] = self.summary["infersim"]
        return found

    @property
    def verdict(self) -> Mapping[str, Any]:
        """How the fleet holds the traffic, and what the SLO says."""
        found: Mapping[str, Any] = self.own["verdict"]
        return found

    @property
    def state(self) -> str:
        """The state of the fleet in a word."""
        return state_word(self.verdict)

    @property
    def cost(self) -> Mapping[str, float]:
        """Dollars per million tokens; empty without a price."""
        return self.own["cost"] or {}

    @property
    def joules(self) -> float | None:
        """Energy of an output token; None where it is not known."""
        found: float | None = (self.own.get("energy") or {}).get("joules_per_output_token")
        return found

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Metrics of the user's own."""
        return self.own.get("metrics") or {}

    @property
    def output(self) -> float:
        """Output tokens per second; 0 where nothing was served."""
        return self.summary["output_throughput"] or 0.0


def served(document: Document) -> list[SweptPoint]:
    """The points with figures, in their order."""
    rows = [(place, row) for place, row in enumerate(document["results"]) if row["summary"]]
    keys = _keys([row["summary"] for _, row in rows])
    return [
        SweptPoint(
            place,
            spoken(row["label"]),
            row["settings"],
            row["summary"],
            {name: at_slo(row["summary"], keys)[key] for name, key in keys.items()},
            meets(row["summary"]),
            is_open(row["summary"]),
        )
        for place, row in rows
    ]


def _keys(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """``slo_keys`` without the median TTFT, which tables have anyway, as a further one."""
    return {n: key for n, key in slo_keys(summaries).items() if n != "ttft_p50"}


def ranks(points: Sequence[SweptPoint]) -> dict[str, str]:
    """The title of each latency at the percentiles that the SLO judges."""
    split = {name: key.split("_") for name, key in _keys([p.summary for p in points]).items()}
    return {name: f"{metric.upper()} {rank}" for name, (rank, metric, _) in split.items()}


def best(points: Sequence[SweptPoint]) -> SweptPoint:
    """The one that serves most within the SLO, or most if none meets it."""
    return max([p for p in points if p.meets] or points, key=lambda point: point.output)


def courses(points: Sequence[SweptPoint], load: str) -> list[list[SweptPoint]]:
    """The points that share all values but the ``load``, by their load."""
    found: dict[str, list[SweptPoint]] = {}
    for point in points:
        others = {key: value for key, value in point.settings.items() if key != load}
        found.setdefault(str(others), []).append(point)
    return [sorted(each, key=lambda point: point.settings[load]) for each in found.values()]


def chosen(document: Document) -> list[int]:
    """The points whose runs are kept: where the SLO is met last and missed first along the load, of
    as many combinations of the other values as there is room for, or the last of all where neither
    is known; without a load that of the headline."""
    points, load = served(document), document["load"]
    if load is None:
        return [best(points).place] if points else []
    found: list[int] = []
    for course in courses(points, load):
        met = [point for point in course if point.meets]
        missed = [point for point in course if point.verdict["slo_met"] is False]
        found += [point.place for point in [*met[-1:], *missed[:1]] or course[-1:]]
    return sorted(found[:MOST_RUNS])


MOST_LINES = 8
"""Lines that can be distinguished in one figure."""

HEATS = ("ttft", "output_throughput", "attainment")
"""Metrics over two values: TTFT at the percentile of the SLO, throughput, the share within it."""

TRADES: Mapping[str, str] = {"speed": "Tokens per user and per GPU", "cost": "Cost and latency"}
"""Titles of drawings with a front."""


def drawings(document: Document, points: Sequence[SweptPoint]) -> Iterator[Drawing]:
    """The figures that suit what was swept; none if every point failed."""
    if not points:
        return
    if document["load"] is not None:
        yield from (_knee(document, points, name) for name in LATENCIES)
    if len(document["axes"]) == 2 and all(numeric(axis["values"]) for axis in document["axes"]):
        limited = any(point.verdict["limits"] for point in points)
        chosen = [name for name in HEATS if limited or name != "attainment"]
        yield from (_heat(document, points, name, limited=limited) for name in chosen)
    for kind in TRADES:
        drawn = trade(document, points, kind)
        if drawn.series:
            yield _trade(drawn, points, kind)


def numeric(values: Sequence[Any]) -> bool:
    """Whether these values of a setting are numbers."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _knee(document: Document, points: Sequence[SweptPoint], latency: str) -> Drawing:
    drawn, count = knee(document, points, latency), len(courses(points, document["load"]))
    caption = "Hollow: overloaded, and slower still with more requests. Cross: SLO missed."
    caption += " Diamond: too close to call."
    if drawn.marks:
        several = len(drawn.marks) > 1
        caption += " Dashed: the limits." if several else " Shaded: within the limit of the SLO."
    if count > MOST_LINES:
        caption += f" The first {MOST_LINES} of {count:,} lines."
    title = f"{drawn.y.title} over load"
    return Drawing(f"knee-{latency}", title, latency, caption, drawn, kind="tall")


def knee(document: Document, points: Sequence[SweptPoint], latency: str) -> PointChart:
    """``latency`` (ttft, tpot) over the load of a sweep that has one, with its limits."""
    load, names = document["load"], {axis["key"]: axis["name"] for axis in document["axes"]}
    lines = courses(points, load)[:MOST_LINES]
    at = percentiles([point.summary for point in points])[latency]
    found = {limit for line in lines for point in line for limit in _limit(point, latency, at)}
    limits = sorted(found)
    series = []
    for line in lines:
        others = {key: value for key, value in line[0].settings.items() if key != load}
        name = ", ".join(f"{names[key]}={show(value)}" for key, value in others.items())
        drawn = tuple(_knee_point(p, load, latency) for p in line if drawable(p.latency[latency]))
        series.append(Series(name, drawn, settings=line[0].settings, look="both"))
    return PointChart(
        ChartAxis(f"load ({MEASURED[load.rpartition('.')[2]]})"),
        ChartAxis(ranks(points)[latency], "ms", logarithmic=True),
        tuple(series),
        tuple(map(Mark, limits)),
        (None, limits[0]) if len(limits) == 1 else None,
    )


def _knee_point(point: SweptPoint, load: str, latency: str) -> ChartPoint:
    slo, state = point.verdict["slo_state"], point.verdict["state"]
    said = point.state if slo is None else f"{point.state}, SLO {slo}"
    shape = state if state == State.OVERLOADED else slo
    return ChartPoint(point.settings[load], point.latency[latency] or 0.0, said, state=shape)


def _limit(point: SweptPoint, latency: str, at: float) -> Iterator[float]:
    """The limit (ms) of a latency, if there is one: together with others, else of its percentile
    ``at``."""
    limits = point.verdict["limits"]
    found = limits.get(latency) or limits.get(f"{latency}_p{at:g}")
    if found is not None:
        yield found["limit_ms"]


def _heat(
    document: Document, points: Sequence[SweptPoint], metric: str, *, limited: bool
) -> Drawing:
    drawn = grid(document, points, metric)
    scale = ", by the logarithm" if drawn.logarithmic else ""
    gone = any(value is None for row in drawn.values for value in row)
    note = f"Darker is more{scale}.{' Empty: the point failed or has no value.' if gone else ''}"
    if limited:
        note += " Green line: the border of the SLO."
    return Drawing(f"heat-{metric}", drawn.title, metric, note, drawn, kind="tall")


def grid(document: Document, points: Sequence[SweptPoint], metric: str) -> Grid:
    """``metric`` (of ``HEATS``) over the two axes of a sweep."""
    across, up = document["axes"]
    columns, rows = sorted(across["values"]), sorted(up["values"])
    title, factor = METRIC["output_throughput"].head, 1.0
    found = [point.summary["output_throughput"] for point in points]
    if metric == "ttft":
        found = [point.latency["ttft"] for point in points]
        known = [value for value in found if value is not None and isfinite(value)]
        unit, scale = time_scale(max(known, default=0.0) / 1e3)
        title, factor = f"{ranks(points)['ttft']} ({unit})", scale / 1e3
    elif metric == "attainment":
        title, factor = WITHIN.title, 100.0
        found = [point.verdict["attainment"] for point in points]
    at = {
        (point.settings[across["key"]], point.settings[up["key"]]): (
            factor * value if value is not None and isfinite(value) else None,
            point.meets,
        )
        for point, value in zip(points, found, strict=True)
    }
    fields = [[at.get((x, y), (None, False)) for x in columns] for y in rows]
    return Grid(
        title,
        axis_name(across["name"]),
        axis_name(up["name"]),
        _ticks(columns),
        _ticks(rows),
        tuple(tuple(value for value, _ in row) for row in fields),
        tuple(tuple(met for _, met in row) for row in fields),
        metric == "ttft",
    )


def _ticks(values: Sequence[float]) -> tuple[str, ...]:
    """The values of an axis in four digits, or more where these do not tell them apart."""
    short = tuple(show_load(value) for value in values)
    return short if len(set(short)) == len(short) else tuple(map(show, values))


SPEEDS = ChartAxis("output tokens/s of a user"), ChartAxis("output tokens/s of a GPU")
"""What a user sees and what a GPU serves: more of both is better."""


def _trade(drawn: PointChart, points: Sequence[SweptPoint], kind: str) -> Drawing:
    found = [point for each in drawn.series if each.tone is None for point in each.points]
    best = front(found, kind)
    note = f"{len(found):,} points; on the front: {len(best):,}. Hover for a name."
    if len(found) == 1:
        note = f"One point: {found[0].text}."
    if left := len(points) - len(found):
        note += f" Left out: {left:,} overloaded or beyond the SLO."
    return Drawing(f"pareto-{kind}", TRADES[kind], kind, note, drawn, kind="tall")


def trade(document: Document, points: Sequence[SweptPoint], kind: str) -> PointChart:
    """The points by two metrics (of ``TRADES``), coloured by the axis that is not the load, if few
    differ. What is overloaded or misses the SLO is left out while others remain: no operator runs
    there."""
    axes = document["axes"]
    axis = next((axis for axis in axes if axis["key"] != document["load"]), axes[0])
    groups: dict[str, list[ChartPoint]] = {}
    settings = {show(point.settings[axis["key"]]): point.settings[axis["key"]] for point in points}
    for point in [point for point in points if _serves(point)] or points:
        x, y = _pair(point, kind)
        if x is not None and y is not None and drawable(x) and drawable(y):
            at = ChartPoint(x, y, point.label)
            groups.setdefault(show(point.settings[axis["key"]]), []).append(at)
    drawn = [at for mine in groups.values() for at in mine]
    named = len(settings) <= MOST_LINES
    kept = {each: groups.get(each, []) for each in settings} if named else {"": drawn}
    series = (
        Series(
            f"{axis['name']}={value}" if named else "points",
            tuple(mine),
            settings={axis["key"]: settings.get(value)},
        )
        for value, mine in kept.items()
    )
    both = SPEEDS
    if kind == "cost":
        both = ChartAxis(PER_TOKENS), ChartAxis(ranks(points)["ttft"], "ms", logarithmic=True)
    return PointChart(*both, (*front_line(front(drawn, kind), kind), *series) if drawn else ())


def front_line(best: Sequence[ChartPoint], kind: str) -> Iterator[Series]:
    """The line that joins the points that none beats, if there are several, with their words."""
    if len(best) > 1:
        line = tuple(point._replace(text="") for point in best)
        steps: Literal["hv", "vh"] = "hv" if kind == "cost" else "vh"
        yield Series("Pareto front", line, "front", look="line", dash="dot", steps=steps)


def _serves(point: SweptPoint) -> bool:
    """Whether it is neither overloaded nor missing its SLO."""
    over = point.verdict["state"] == State.OVERLOADED
    return not over and bool(point.verdict["slo_state"] != SloState.MISSED)


def _pair(point: SweptPoint, kind: str) -> tuple[float | None, float | None]:
    if kind == "cost":
        return point.cost.get("usd_per_million_tokens"), point.latency["ttft"]
    step, gpus = point.summary["median_tpot_ms"], point.own["gpus"]
    return (1e3 / step if step else None), (point.output / gpus if gpus else None)


def front(points: Sequence[ChartPoint], kind: str) -> list[ChartPoint]:
    """The points that no other one beats in both metrics, from left to right."""
    sign = 1 if kind == "cost" else -1
    found: list[ChartPoint] = []
    for at in sorted(points, key=lambda at: (sign * at.x, sign * at.y)):
        if not found or sign * at.y < sign * found[-1].y:
            found.append(at)
    return found if kind == "cost" else found[::-1]
