"""Draws the points of a sweep by two metrics, with the Pareto front of those that none beats.

Points that are overloaded or miss the SLO are left out while others remain: no operator runs there.

``speed``: output tokens per second of a GPU against those that a user sees (1 over the median
TPOT); more of both is better. ``cost``: USD per 1M tokens (prompt + output) against TTFT at the
percentile of the SLO; less of both is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.layout import known, times
from reports.figures.naming import plain
from reports.figures.series import MOST_LINES, Row, styles, written
from reports.frame import theme
from sim.metrics.states import SloState, State
from sim.planning.points.wording import latency_ms, rank, slo_percentile
from sim.units import PER_TOKENS

Kind = Literal["speed", "cost"]

TITLES: Mapping[Kind, str] = {
    "speed": "Tokens per user and per GPU",
    "cost": "Cost and latency",
}


class At(NamedTuple):
    """A point of the sweep and where it stands."""

    row: Row
    x: float
    y: float


def places(document: Mapping[str, Any], kind: Kind) -> list[At]:
    """Every point that has both figures, in the units of the axes."""
    found, at = [], _percentile(document)
    rows = [row for row in document["results"] if row["summary"] is not None]
    serving = [row for row in rows if _serves(row["summary"])]
    for row in serving or rows:
        x, y = _pair(row["summary"], kind, at)
        if known(x) and known(y):
            found.append(At(row, float(x or 0.0), float(y or 0.0)))
    return found


def _serves(summary: Mapping[str, Any]) -> bool:
    """Whether it is neither overloaded nor missing its SLO."""
    verdict = summary["infersim"]["verdict"]
    return bool(verdict["state"] != State.OVERLOADED and verdict["slo_state"] != SloState.MISSED)


def _percentile(document: Mapping[str, Any]) -> float:
    """The percentile of TTFT that the SLO judges."""
    rows = document["results"]
    return slo_percentile([row["summary"] for row in rows if row["summary"] is not None], "ttft")


def _pair(summary: Mapping[str, Any], kind: Kind, at: float) -> tuple[float | None, float | None]:
    own = summary["infersim"]
    if kind == "speed":
        step, rate, gpus = summary["median_tpot_ms"], summary["output_throughput"], own["gpus"]
        return (1e3 / step if known(step) else None), (rate / gpus if rate and gpus else None)
    cost = own["cost"]
    first = latency_ms(summary, "ttft", at)
    return (cost and cost["usd_per_million_tokens"]), (first / 1e3 if first else None)


def front(points: Sequence[At], kind: Kind) -> list[At]:
    """The points that no other one beats in both figures, from left to right."""
    sign = 1 if kind == "cost" else -1
    best: list[At] = []
    for at in sorted(points, key=lambda at: (sign * at.x, sign * at.y)):
        if not best or sign * at.y < sign * best[-1].y:
            best.append(at)
    return best if kind == "cost" else best[::-1]


def figure(document: Mapping[str, Any], kind: Kind) -> go.Figure:
    """Every point with both figures; coloured by the axis that is not the load, if few differ."""
    points = places(document, kind)
    key, name = _grouped(document)
    groups: dict[str, list[At]] = {}
    for at in points:
        groups.setdefault(written(at.row["settings"][key]), []).append(at)
    if len(groups) > MOST_LINES:
        groups = {"": points}
    looks = styles([{key: mine[0].row["settings"][key]} for mine in groups.values()])
    traces = [_front(front(points, kind), kind)] if len(points) > 1 else []
    for (value, mine), look in zip(groups.items(), looks, strict=True):
        label = f"{name}={value}" if value else "points"
        traces.append(_trace(label, mine, look.color, look.dash != "solid", kind))
    layout = theme.layout() | {
        "xaxis": theme.axis(_X[kind]) | {"rangemode": "tozero"},
        "yaxis": _y(points, kind, _percentile(document)),
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


_X: Mapping[Kind, str] = {
    "speed": "output tokens/s of a user",
    "cost": PER_TOKENS,
}
_HOVER: Mapping[Kind, str] = {
    "speed": "%{x:,.4~g} tokens/s of a user, %{y:,.4~g} of a GPU",
    "cost": "$%{x:,.4~g}, %{y:.4~s}s",
}


def _y(points: Sequence[At], kind: Kind, at: float) -> dict[str, Any]:
    if kind == "cost":
        return times(f"TTFT {rank(at / 100)}", [1e3 * point.y for point in points])
    return theme.axis("output tokens/s of a GPU") | {"rangemode": "tozero"}


def _grouped(document: Mapping[str, Any]) -> tuple[str, str]:
    """Key and name of the axis that gives the colours: the first that is not the load."""
    others = [axis for axis in document["axes"] if axis["key"] != document["load"]]
    axis = (others or document["axes"])[0]
    return axis["key"], axis["name"]


def _front(best: Sequence[At], kind: Kind) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [at.x for at in best],
        "y": [at.y for at in best],
        "line": {
            "shape": "hv" if kind == "cost" else "vh",
            "color": theme.PAGE["ink"].light,
            "width": 1.5,
            "dash": "dot",
        },
        "hoverinfo": "skip",
    }


def _trace(name: str, points: Sequence[At], color: str, hollow: bool, kind: Kind) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": [at.x for at in points],
        "y": [at.y for at in points],
        "customdata": [plain(at.row["label"]) for at in points],
        "marker": {"size": 9, "color": color, "symbol": "circle-open" if hollow else "circle"},
        "hovertemplate": f"%{{customdata}}<br>{_HOVER[kind]}<extra></extra>",
    }
