"""Draws a latency over the load, at the share of requests that the SLO asks for, for all probes.

Latencies in milliseconds, or seconds where they are long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.layout import times
from reports.frame import theme
from reports.frame.scale import time_axis, time_scale
from sim.planning.points.wording import limit_name, rank
from sim.units import milliseconds, show_load

WIDE = 30.0
"""Largest over smallest latency from which on the axis is logarithmic."""

OUTCOMES = (
    ("holds", "good", "circle"),
    ("too close to call", "warn", "diamond"),
    ("fails", "bad", "x"),
)
"""Outcome of a load, with its colour and symbol."""


def figure(document: Mapping[str, Any], metric: str) -> go.Figure:
    """``metric`` (``ttft``, ``tpot``), at the percentile of the SLO, for every load that was
    simulated; the region within the SLO is shaded, the scenario's own load and the knee are
    marked."""
    key, limit = f"slo_{metric}_ms", document["limits_ms"].get(metric)
    probes = [probe for probe in document["probes"] if probe[key]]
    title = f"{metric.upper()} {rank(document['shares'][metric])}"
    axis, ends, factor = _axis(title, [probe[key] for probe in probes] or [1.0], limit)
    loads = [probe["load"] for probe in document["probes"]]
    right = max(loads) * 1.04
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({document['unit']})") | {"range": [0, right]},
        "yaxis": axis,
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    traces: list[dict[str, Any]] = []
    if limit is not None:
        traces.append(_region(document, factor * limit, ends[0]))
    traces.append(_line(probes, metric, factor))
    traces += [_points(probes, metric, factor, look) for look in OUTCOMES]
    if document["own"] is not None:
        traces.append(_mark(document["own"]["load"], ends, "own load", "dot"))
    if document["knee"] is not None:
        traces.append(_mark(document["knee"]["load"], ends, "knee", "dash"))
    return go.Figure(data=traces, layout=layout)


def _axis(
    title: str, values: Sequence[float], limit: float | None
) -> tuple[dict[str, Any], tuple[float, float], float]:
    """An axis for latencies (ms) and their limit, its two ends, and what milliseconds are
    multiplied with to be in its unit."""
    drawn = [*values, *([] if limit is None else [limit])]
    if max(values) > WIDE * min(values):
        axis = times(title, drawn)
        low, high = axis["range"]
        return axis, (10**low, 10**high), 1e-3
    shown = time_scale(max(drawn) / 1e3)
    factor = shown.factor / 1e3
    top = 1.08 * factor * max(drawn)
    return time_axis(title, shown) | {"range": [0, top]}, (0.0, top), factor


def _region(document: Mapping[str, Any], limit: float, bottom: float) -> dict[str, Any]:
    """Up to the highest load that holds and up to the limit."""
    right = document["load"]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "within the SLO",
        "x": [0, 0, right, right],
        "y": [bottom, limit, limit, bottom],
        "fill": "toself",
        "fillcolor": theme.faint(theme.GREEN).light,
        "line": {"color": theme.GREEN.light, "width": 1},
        "hoverinfo": "skip",
    }


def _line(probes: list[Mapping[str, Any]], metric: str, factor: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [probe["load"] for probe in probes],
        "y": [factor * probe[f"slo_{metric}_ms"] for probe in probes],
        "line": {"color": theme.METRICS[metric].light, "width": 2},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _points(
    probes: list[Mapping[str, Any]],
    metric: str,
    factor: float,
    look: tuple[str, str, str],
) -> dict[str, Any]:
    outcome, color, symbol = look
    key = f"slo_{metric}_ms"
    mine = [probe for probe in probes if probe["outcome"] == outcome]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [probe["load"] for probe in mine],
        "y": [factor * probe[key] for probe in mine],
        "customdata": [milliseconds(probe[key]) for probe in mine],
        "text": [
            f"{probe['runs']} runs"
            + _open(probe)
            + ("" if probe["holds"] else f", {limit_name(probe['breaks'])} breaks")
            for probe in mine
        ],
        "marker": {"size": 9, "symbol": symbol, "color": theme.PAGE[color].light},
        "hovertemplate": "%{x:.4~g}: %{customdata}, %{text}<extra></extra>",
    }


def _open(probe: Mapping[str, Any]) -> str:
    count = probe["requests_to_decide"]
    return "" if count is None else f", about {count:,} requests would decide"


def _mark(load: float, ends: tuple[float, float], name: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} {show_load(load, 3)}",
        "x": [load, load],
        "y": list(ends),
        "line": {"color": theme.PAGE["muted"].light, "width": 1.5, "dash": dash},
        "hoverinfo": "skip",
    }
