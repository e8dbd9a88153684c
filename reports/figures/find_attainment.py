"""Draws the share of requests within the SLO at each load, with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.find_curve import OUTCOMES
from reports.frame import theme


def figure(document: Mapping[str, Any]) -> go.Figure:
    """The share at every load with its 95 % interval, and the share that the SLO asks for.

    Without an SLO the figure is empty.
    """
    probes = [probe for probe in document["probes"] if probe["promises"]]
    right = max([probe["load"] for probe in document["probes"]]) * 1.04
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({document['unit']})") | {"range": [0, right]},
        "yaxis": theme.axis("share of requests") | {"range": [0, 1.03], "tickformat": ".0%"},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    traces = [_points(probes, *outcome) for outcome in OUTCOMES]
    if probes:
        traces.append(_target(probes[0]["promises"][0]["target"], right))
    return go.Figure(data=traces, layout=layout)


def _points(
    probes: list[Mapping[str, Any]], outcome: str, color: str, symbol: str
) -> dict[str, Any]:
    mine = [probe for probe in probes if probe["outcome"] == outcome]
    worst = [min(probe["promises"], key=lambda p: p["low"] - p["target"]) for probe in mine]
    tone = theme.PAGE[color].light
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [probe["load"] for probe in mine],
        "y": [each["attainment"] for each in worst],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, each["high"] - each["attainment"]) for each in worst],
            "arrayminus": [max(0.0, each["attainment"] - each["low"]) for each in worst],
            "color": tone,
            "thickness": 1.5,
        },
        "marker": {"size": 8, "symbol": symbol, "color": tone},
        "hovertemplate": "%{x:.4~g}: %{y:.3%}<extra></extra>",
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
