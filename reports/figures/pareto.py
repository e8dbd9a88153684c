"""Draws the points of a sweep by two metrics, with the Pareto front of those that none beats.

``speed``: output tokens per second of a GPU against those that a user sees (1 over the median
TPOT); more of both is better. ``cost``: USD per 1M tokens (prompt + output) against TTFT at the
percentile of the SLO; less of both is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.layout import times
from reports.figures.naming import plain
from reports.figures.series import Style, styles
from reports.frame import theme
from sim.planning.answers.drawings import Trade, TradeGroup
from sim.units import PER_TOKENS

X: Mapping[str, str] = {"speed": "output tokens/s of a user", "cost": PER_TOKENS}
HOVER: Mapping[str, str] = {
    "speed": "%{x:,.4~g} tokens/s of a user, %{y:,.4~g} of a GPU",
    "cost": "$%{x:,.4~g}, %{y:.4~s}s",
}


def figure(trade: Trade) -> go.Figure:
    """Every point, in the colour of its group."""
    looks = styles([group.settings for group in trade.groups])
    points = [point for group in trade.groups for point in group.points]
    traces = [_front(trade)] if len(points) > 1 else []
    pairs = zip(trade.groups, looks, strict=True)
    traces += [_trace(group, look, trade.kind) for group, look in pairs]
    axis = theme.axis("output tokens/s of a GPU") | {"rangemode": "tozero"}
    layout = theme.layout() | {
        "xaxis": theme.axis(X[trade.kind]) | {"rangemode": "tozero"},
        "yaxis": times(trade.title, [at.y for at in points]) if trade.kind == "cost" else axis,
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


def _factor(kind: str) -> float:
    """What values are multiplied with: latencies are drawn in seconds."""
    return 1e-3 if kind == "cost" else 1.0


def _front(trade: Trade) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [at.x for at in trade.front],
        "y": [_factor(trade.kind) * at.y for at in trade.front],
        "line": {
            "shape": "hv" if trade.kind == "cost" else "vh",
            "color": theme.PAGE["ink"].light,
            "width": 1.5,
            "dash": "dot",
        },
        "hoverinfo": "skip",
    }


def _trace(group: TradeGroup, look: Style, kind: str) -> dict[str, Any]:
    hollow = look.dash != "solid"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(group.label),
        "x": [at.x for at in group.points],
        "y": [_factor(kind) * at.y for at in group.points],
        "customdata": [plain(at.label) for at in group.points],
        "marker": {"size": 9, "color": look.color, "symbol": "circle-open" if hollow else "circle"},
        "hovertemplate": f"%{{customdata}}<br>{HOVER[kind]}<extra></extra>",
    }
