"""Draws the cost of every fleet that meets the SLO against a latency, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.frame import theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import CostAndLatency, FleetPoint
from sim.units import milliseconds, time_scale

TONES = (theme.BLUE, theme.VERMILLION, theme.GREEN, theme.PURPLE, theme.ORANGE, theme.GREY)
"""Colours of GPUs, in the order in which they come; more of them share the last."""


def figure(drawn: CostAndLatency) -> go.Figure:
    """Every fleet that holds: dollars per hour against a latency at the percentile of the SLO,
    under the rate with its headroom."""
    points, limit = drawn.fleets, drawn.limit
    highest = max([*(point.latency for point in points), limit or 0.0])
    shown = time_scale(highest / 1e3)
    factor = shown.factor / 1e3
    layout = theme.layout() | {
        "xaxis": theme.axis("cost (USD per hour)") | {"rangemode": "tozero"},
        "yaxis": time_axis(drawn.title, shown) | {"rangemode": "tozero"},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    front = sorted((point for point in points if point.front), key=lambda point: point.usd)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            "x": [point.usd for point in front],
            "y": [factor * point.latency for point in front],
            "line": {"shape": "hv", "color": theme.PAGE["ink"].light, "width": 1.5, "dash": "dot"},
            "hoverinfo": "skip",
        }
    ]
    for index, gpu in enumerate(dict.fromkeys(point.gpu for point in points)):
        mine = [point for point in points if point.gpu == gpu]
        traces.append(_points(mine, factor, gpu, TONES[min(index, len(TONES) - 1)]))
    if limit is not None and points:
        traces.append(_limit(limit, factor, max(point.usd for point in points)))
    return go.Figure(data=traces, layout=layout)


def _points(
    points: Sequence[FleetPoint], factor: float, gpu: str, tone: theme.Tone
) -> dict[str, Any]:
    """The fleets of one GPU; milliseconds are multiplied with ``factor``."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": gpu,
        "x": [point.usd for point in points],
        "y": [factor * point.latency for point in points],
        "text": [str(point.replicas) for point in points],
        "textposition": "bottom center",
        "textfont": {"color": theme.PAGE["muted"].light, "size": 11},
        "hovertext": [point.name for point in points],
        "customdata": [milliseconds(point.latency) for point in points],
        "marker": {"size": 11, "color": tone.light},
        "hovertemplate": "%{hovertext}: $%{x:,.2f}/h, %{customdata}<extra></extra>",
    }


def _limit(limit: float, factor: float, right: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit {milliseconds(limit)}",
        "x": [0, 1.04 * right],
        "y": [factor * limit] * 2,
        "line": {"color": theme.PAGE["muted"].light, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
