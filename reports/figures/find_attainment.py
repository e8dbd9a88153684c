"""Draws the share of requests within the SLO at each load, with its 95 % interval.

The axis ends a little below the target, where the loads are decided; what is lower stands on it as
a triangle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.find_curve import OUTCOMES
from reports.frame import theme
from sim.planning.points.wording import nearest_promise, promise_name

DEPTH = 8.0
"""Where the axis ends, in shares that may miss the target."""


def figure(document: Mapping[str, Any]) -> go.Figure:
    """The share at every load with its 95 % interval, and the share that the SLO asks for.

    Without an SLO the figure is empty.
    """
    probes = [probe for probe in document["probes"] if probe["promises"]]
    targets = [each["target"] for probe in probes for each in probe["promises"]]
    floor = max(0.0, 1 - DEPTH * (1 - min(targets))) if targets else 0.0
    right = max([probe["load"] for probe in document["probes"]]) * 1.04
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({document['unit']})") | {"range": [0, right]},
        "yaxis": theme.axis("share of requests")
        | {"range": [floor - (1 - floor) * 0.04, 1 + (1 - floor) * 0.04], "tickformat": ".4~p"},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    traces = [_points(probes, floor, *outcome) for outcome in OUTCOMES]
    if probes:
        asked = dict.fromkeys(each["target"] for each in probes[0]["promises"])
        traces += [_target(share, right) for share in asked]
    return go.Figure(data=traces, layout=layout)


def _points(
    probes: list[Mapping[str, Any]], floor: float, outcome: str, color: str, symbol: str
) -> dict[str, Any]:
    mine = [probe for probe in probes if probe["outcome"] == outcome]
    worst = [each for probe in mine if (each := nearest_promise(probe)) is not None]
    several = any(len(probe["promises"]) > 1 for probe in mine)
    tone = theme.PAGE[color].light
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [probe["load"] for probe in mine],
        "y": [max(floor, each["attainment"]) for each in worst],
        "customdata": [each["attainment"] for each in worst],
        "cliponaxis": False,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, each["high"] - max(floor, each["attainment"])) for each in worst],
            "arrayminus": [
                max(0.0, each["attainment"] - max(floor, each["low"])) for each in worst
            ],
            "color": tone,
            "thickness": 1.5,
        },
        "marker": {
            "size": 8,
            "symbol": [symbol if p["attainment"] >= floor else "triangle-down" for p in worst],
            "color": tone,
        },
        "hovertemplate": f"%{{x:.4~g}}: %{{customdata:.3%}}{' %{text}' * several}<extra></extra>",
        **({"text": [f"within {promise_name(each)}" for each in worst]} if several else {}),
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
