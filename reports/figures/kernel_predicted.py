"""Draws predicted against measured times of an operator, in seconds, on logarithmic axes."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend, logarithmic, reference_line
from reports.figures.kernel_names import Own
from reports.frame import theme

AWAY = 1.2
"""The dashed lines are this ratio away from equality."""


def figure(own: Own) -> go.Figure:
    """The points of one operator, coloured by precision; hollow ones were noisy."""
    both = [*own.columns["measured"], *own.columns["predicted"]]
    ends = [min(both) / 1.5, max(both) * 1.5]
    traces: list[dict[str, Any]] = [
        reference_line(ends, [end * ratio for end in ends], "solid" if ratio == 1 else "dot")
        for ratio in (1.0, AWAY, 1 / AWAY)
    ]
    for precision in own.precisions:
        traces.append(_points(own.where(precision=precision), precision))
    layout = theme.layout() | {
        "xaxis": logarithmic("measured", both, "s"),
        "yaxis": logarithmic("predicted", both, "s"),
        "hovermode": "closest",
        "showlegend": len(own.precisions) > 1,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


def _points(columns: dict[str, list[Any]], precision: str) -> dict[str, Any]:
    errors = [p / m - 1 for p, m in zip(columns["predicted"], columns["measured"], strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": precision,
        "x": columns["measured"],
        "y": columns["predicted"],
        "customdata": list(zip(columns["shape"], errors, strict=True)),
        "marker": {
            "size": 6,
            "opacity": 0.75,
            "color": theme.precision(precision).light,
            "symbol": ["circle-open" if noisy else "circle" for noisy in columns["noisy"]],
        },
        "hovertemplate": "%{customdata[0]}<br>measured %{x:.3~s}s, predicted %{y:.3~s}s "
        "(%{customdata[1]:+.1%})",
    }
