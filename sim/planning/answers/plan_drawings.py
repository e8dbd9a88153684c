"""Makes the figures of ``infersim plan``: what fleets cost, at which latency, at which load."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sim.findings import Drawing, Drawings
from sim.planning.answers.cells import Document
from sim.planning.answers.drawings import (
    BarChart,
    ChartAxis,
    ChartBar,
    ChartPoint,
    Mark,
    PointChart,
    Series,
)
from sim.planning.answers.fleets import load_text
from sim.planning.answers.sweep_points import SPEEDS, TRADES, front, front_line
from sim.planning.points.wording import LATENCIES, counted, fleet_text, rank
from sim.units import milliseconds

CARD = ("gpu", "precision")

COST = ChartAxis("cost (USD per hour)")


def card(each: Mapping[str, Any]) -> tuple[str, str | None]:
    """The GPU and the format of a layout."""
    return each["gpu"], each["precision"]


def cheapest_of_cards(document: Document) -> list[Mapping[str, Any]]:
    """The cheapest fleet of each card that holds, the cheapest first."""
    best: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for each in sorted(document["sized"], key=lambda fleet: fleet["usd_per_hour"]):
        best.setdefault(card(each), each)
    return list(best.values())


def costs(document: Document) -> Drawings:
    """The costs of the cheapest fleets, with both ends of the error band."""
    note = (
        f"Every fleet holds {load_text(document['target'])}. Whiskers: the cost if iterations are "
        "faster or slower than predicted, which takes other numbers of replicas."
    )
    if any(fleet["error_band"]["usd_per_hour"][1] is None for fleet in document["fleets"]):
        note += (
            " Arrows: the most that it may cost is not known, as no number that was tried holds."
        )
    drawn = fleet_costs(document)
    return Drawings((Drawing("plan-cost", "Cost of the fleets", "plan_cost", note, drawn),))


def fleet_costs(document: Document) -> BarChart:
    """The costs of the cheapest fleets by rank, with intervals from where a fleet needs fewer
    replicas because iterations are faster than predicted to where it needs more, without an upper
    end where no number of replicas that was tried holds."""
    bars: list[ChartBar] = []
    for fleet in document["fleets"]:
        name = f"{fleet['rank']}. {fleet_text(fleet['replicas'], fleet['layout'])}"
        usd, ends = fleet["usd_per_hour"], fleet["error_band"]["usd_per_hour"]
        low = usd if ends[0] is None else min(ends[0], usd)
        high = None if ends[1] is None else max(ends[1], usd)
        most = "not known" if high is None else f"${high:,.2f}"
        text = f"{name}: ${usd:,.2f}/h (from ${low:,.2f} to {most})"
        tone = "others" if bars else "first"
        bars.append(ChartBar(name, usd, text, f"${usd:,.2f}", tone, interval=(low, high)))
    return BarChart(COST, tuple(bars))


GROWTH = 4
"""The figure of growth ends at this multiple of the load that was asked for."""


def growths(document: Document) -> Drawings:
    """The costs of cards and formats over the load, with a replica to spare and without."""
    note = (
        "Cost of the cheapest fleet of each GPU and format that holds the load with "
        f"{document['headroom']:.0%} headroom; dashed with one replica more, so that one may fail. "
        "Each replica counts with its share of what a ranked fleet held in runs of the usual "
        "length, in other fleets with what one holds alone. `infersim plan --rate 2x` and "
        "`--survive 1` simulate such fleets, in longer runs where short ones leave it open."
    )
    drawn = growth(document)
    drawing = Drawing("growth", "Cost and load", "plan_cost", note, drawn, kind="tall")
    return Drawings((drawing,))


def growth(document: Document) -> PointChart:
    """The dollars per hour of each card's cheapest fleet up to 1 to ``GROWTH`` times the load, and
    dashed with one replica to spare."""
    lines = []
    for place, each in enumerate(cheapest_of_cards(document)[:MOST_LINES]):
        loads, replicas = _steps(document, each)
        name, price = fleet_text(1, each["layout"]), each["usd_per_replica"]
        for spare, words in ((0, ""), (1, " and one to spare")):
            pairs = zip(loads, replicas, strict=True)
            points = tuple(ChartPoint(x, (n + spare) * price, f"{name}{words}") for x, n in pairs)
            line = Series(name if not spare else "", points, f"gpu {place}", look="line")
            lines.append(line._replace(steps="vh", dash="dash" if spare else "solid"))
    ends = document["rate"], GROWTH * document["rate"]
    return PointChart(ChartAxis("load (requests/s)", ends=ends), COST, tuple(lines))


def _steps(
    document: Document, fleet: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The load that was asked for, then the highest that ``fleet`` holds with its headroom, with
    one replica more, and so on; and the replicas of each."""
    rate, spare = document["rate"], document["survive"]["replicas"]
    each = fleet["rate_of_a_replica"]
    loads, replicas = [rate], [fleet["replicas"]]
    while loads[-1] < GROWTH * rate * (1 - 1e-9):
        n = fleet["replicas"] + len(loads) - 1
        held = min(n * each * rate / document["target"], (n - spare) * each)
        loads.append(min(max(held, rate), GROWTH * rate))
        replicas.append(n)
    return tuple(loads), tuple(replicas)


def replicas_at(document: Document, fleet: Mapping[str, Any], times: float) -> int:
    """The estimated replicas like those of ``fleet`` that hold so many ``times`` the load with its
    headroom and, without as many as the plan is to survive, the load itself."""
    each, spare = fleet["rate_of_a_replica"], document["survive"]["replicas"]
    whole, left = (math.ceil(round(times * document[of] / each, 9)) for of in ("target", "rate"))
    return int(max(whole, left + spare))


MOST_LINES = 5
"""Cards and formats that the figure of growth shows."""


def fronts(document: Document) -> Drawings:
    """The costs of the fleets that hold against each latency."""
    holding = counted(len(document["sized"]), "fleet")
    verb = "holds" if len(document["sized"]) == 1 else "hold"
    note = (
        f"{holding} {verb} {load_text(document['target'])}. Numbers on the front: replicas x the "
        "GPUs of each."
    )
    return Drawings(
        tuple(
            Drawing(
                *(f"pareto-{name}", f"Cost and {name.upper()}", name, note),
                cost_and_latency(document, name),
                kind="tall",
            )
            for name in LATENCIES
        )
    )


def speeds(document: Document) -> Drawings:
    """The fleets that hold by what a user sees and what a GPU serves."""
    note = (
        "The same fleets by what a user sees (1 over the mean TPOT) and by what a GPU serves of "
        "this load. More of both is better."
    )
    drawn = user_and_gpu(document)
    drawing = Drawing("pareto-speed", TRADES["speed"], "speed", note, drawn, wide=True, kind="tall")
    return Drawings((drawing,) if drawn.series else (), "")


Pair = tuple[float | None, float | None]
"""A fleet by two of its metrics, as far as they are known."""


def _by_card(document: Document, pair: Callable[[Mapping[str, Any]], Pair]) -> list[Series]:
    """The fleets that hold and have both metrics, a series for each card."""
    cards: dict[tuple[str, str | None], list[ChartPoint]] = {}
    for each in document["sized"]:
        x, y = pair(each)
        if x is not None and y is not None:
            name = fleet_text(each["replicas"], each["layout"])
            short = f"{each['replicas']:,} x {each['gpus'] // each['replicas']}"
            cards.setdefault(card(each), []).append(ChartPoint(x, y, name, short))
    return [
        Series(
            " ".join(filter(None, kind)), tuple(points), settings=dict(zip(CARD, kind, strict=True))
        )
        for kind, points in cards.items()
    ]


def _hovered(group: Series) -> Series:
    """The points without words next to them, which those of the front have."""
    return group._replace(points=tuple(point._replace(words="") for point in group.points))


def user_and_gpu(document: Document) -> PointChart:
    """The fleets that hold, by the output tokens per second of a user and of a GPU."""
    keys = [f"tokens_per_s_of_a_{whose}" for whose in ("user", "gpu")]
    groups = _by_card(document, lambda each: (each.get(keys[0]), each.get(keys[1])))
    best = front([point for group in groups for point in group.points], "speed")
    return PointChart(*SPEEDS, (*front_line(best, "speed"), *map(_hovered, groups)))


def cost_and_latency(document: Document, name: str) -> PointChart:
    """The cost of every fleet that holds, and its latency ``name`` at the percentile of the SLO,
    under the rate with its headroom."""
    key, limit = f"slo_{name}_ms", document["limits_ms"].get(name)
    groups = _by_card(document, lambda each: (each["usd_per_hour"], each[key]))
    best = {"sized": [each for each in document["sized"] if each[f"front_{key}"]]}
    least = _by_card(best, lambda each: (each["usd_per_hour"], each[key]))
    line = front_line(sorted(point for group in least for point in group.points), "cost")
    return PointChart(
        COST,
        ChartAxis(f"{name.upper()} {rank(document['shares'][name])}", "ms"),
        (*line, *map(_hovered, groups)),
        () if limit is None else (Mark(limit, f"limit {milliseconds(limit)}"),),
    )
