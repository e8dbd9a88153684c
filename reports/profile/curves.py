"""How does an operator's time grow? The fitted form as lines, and what was measured on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.profile.names import AXES
from reports.profile.predicted import legend


def figure(curves: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The lines of one operator in one precision, at most as many as there are colours."""
    traces = []
    for curve, tone in zip(curves, theme.SERIES, strict=False):
        traces.append(_line(curve, tone))
        if curve["measured"]:
            traces.append(_points(curve, tone))
    seconds = {"type": "log", "tickformat": "~s", "ticksuffix": "s", "nticks": 7}
    layout = theme.layout() | {
        "xaxis": theme.axis(AXES[curves[0]["variable"]])
        | {"type": "log", "tickformat": "~s", "nticks": 8},
        "yaxis": theme.axis(None) | seconds,
        "hovermode": "closest",
        "showlegend": len(curves) > 1,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


def _line(curve: Mapping[str, Any], tone: theme.Tone) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": curve["label"],
        "x": curve["at"],
        "y": curve["seconds"],
        "line": {"color": tone.light, "width": 2},
        "hovertemplate": "%{x:,.0f}: %{y:.3~s}s predicted",
    }


def _points(curve: Mapping[str, Any], tone: theme.Tone) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": curve["measured_at"],
        "y": curve["measured"],
        "showlegend": False,
        "marker": {"size": 7, "color": tone.light, "symbol": "circle-open", "line": {"width": 1.5}},
        "hovertemplate": "%{x:,.0f}: %{y:.3~s}s measured",
    }
