"""Draws the share of requests within the SLO at each load, with its 95 % interval.

The axis ends a little below the target, where the loads are decided; what is lower stands on it as
a triangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.find_curve import OUTCOMES
from reports.frame import theme
from sim.planning.answers.drawings import AttainedByLoad, LoadShare

DEPTH = 8.0
"""Where the axis ends, in shares that may miss the target."""


def figure(attained: AttainedByLoad) -> go.Figure:
    """The share at every load with its 95 % interval, and the share that the SLO asks for.

    Without an SLO the figure is empty.
    """
    unit, right, targets, points = attained
    floor = max(0.0, 1 - DEPTH * (1 - min(targets))) if targets else 0.0
    right *= 1.04
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({unit})") | {"range": [0, right]},
        "yaxis": theme.axis("share of requests")
        | {"range": [floor - (1 - floor) * 0.04, 1 + (1 - floor) * 0.04], "tickformat": ".4~p"},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    traces = [_points(points, floor, *outcome) for outcome in OUTCOMES]
    traces += [_target(share, right) for share in targets]
    return go.Figure(data=traces, layout=layout)


def _points(
    points: Sequence[LoadShare], floor: float, outcome: str, color: str, symbol: str
) -> dict[str, Any]:
    mine = [point for point in points if point.outcome == outcome]
    tone = theme.PAGE[color].light
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [point.load for point in mine],
        "y": [max(floor, each.attainment) for each in mine],
        "customdata": [each.attainment for each in mine],
        "cliponaxis": False,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, each.high - max(floor, each.attainment)) for each in mine],
            "arrayminus": [max(0.0, each.attainment - max(floor, each.low)) for each in mine],
            "color": tone,
            "thickness": 1.5,
        },
        "marker": {
            "size": 8,
            "symbol": [symbol if p.attainment >= floor else "triangle-down" for p in mine],
            "color": tone,
        },
        "hovertemplate": "%{x:.4~g}: %{customdata:.3%}%{text}<extra></extra>",
        "text": [each.text for each in mine],
    }


def _target(share: float, right: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"SLO: {100 * share:.6g} %",
        "x": [0, right],
        "y": [share, share],
        "line": {"color": theme.PAGE["ink"].light, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
