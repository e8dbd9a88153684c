"""Draws predicted against measured times of an operator, in seconds, on logarithmic axes."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import equality, logarithmic
from reports.figures.kernel_names import Own
from reports.frame import draw, theme

AWAY = 1.2
"""The dashed lines are this ratio away from equality."""


def figure(own: Own) -> go.Figure:
    """The points of one operator, coloured by precision; hollow ones were noisy."""
    both = [*own.columns["measured"], *own.columns["predicted"]]
    ends = [min(both) / 1.5, max(both) * 1.5]
    traces = equality(ends, AWAY)
    for precision in own.precisions:
        traces.append(_points(own.where(precision=precision), precision))
    return draw.assemble(
        traces,
        logarithmic("measured", both, "s"),
        logarithmic("predicted", both, "s"),
        showlegend=len(own.precisions) > 1,
    )


def _points(columns: dict[str, list[Any]], precision: str) -> dict[str, Any]:
    errors = [p / m - 1 for p, m in zip(columns["predicted"], columns["measured"], strict=True)]
    marker = {
        "size": 6,
        "opacity": 0.75,
        "color": theme.precision(precision).light,
        "symbol": ["circle-open" if noisy else "circle" for noisy in columns["noisy"]],
    }
    return draw.points(
        columns["measured"],
        columns["predicted"],
        marker,
        precision,
        "%{customdata[0]}<br>measured %{x:.3~s}s, predicted %{y:.3~s}s (%{customdata[1]:+.1%})",
        customdata=list(zip(columns["shape"], errors, strict=True)),
    )
