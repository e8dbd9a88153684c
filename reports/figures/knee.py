"""Draws a latency over the load of a sweep, at the percentile of the SLO: a line for each variant.

Seconds, on a logarithmic axis; the area within the SLO is shaded. Overloaded points are hollow:
with more requests they would be slower still.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.layout import limit_line, times, within
from reports.figures.naming import plain
from reports.figures.series import Style, styles
from reports.frame import theme
from sim.metrics.states import SloState
from sim.planning.answers.drawings import LatencyLine, LatencyLines, LatencyPoint


def figure(knee: LatencyLines) -> go.Figure:
    """The latency over the load, and its limits."""
    looks = styles([line.settings for line in knee.lines])
    traces = [_trace(line, look) for line, look in zip(knee.lines, looks, strict=True)]
    drawn = [point.latency for line in knee.lines for point in line.points]
    axis = times(knee.title, [*drawn, *knee.limits])
    limits = [limit / 1e3 for limit in knee.limits]
    shapes = [limit_line(limit) for limit in limits]
    layout = theme.layout() | {
        "xaxis": theme.axis(knee.load) | {"rangemode": "tozero"},
        "yaxis": axis,
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
        "shapes": within(limits[0], 10 ** axis["range"][0]) if len(limits) == 1 else shapes,
    }
    return go.Figure(data=traces, layout=layout)


def _trace(line: LatencyLine, look: Style) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(line.label),
        "x": [point.load for point in line.points],
        "y": [point.latency / 1e3 for point in line.points],
        "customdata": [point.text for point in line.points],
        "line": {"color": look.color, "width": 2, "dash": look.dash},
        "marker": {
            "size": 7,
            "color": look.color,
            "symbol": [_symbol(point) for point in line.points],
        },
        "hovertemplate": "%{x:.4~g}: %{y:.4~s}s, %{customdata}",
    }


def _symbol(point: LatencyPoint) -> str:
    """Hollow if overloaded; else a diamond if the SLO is too close to call, a cross if missed."""
    if point.overloaded:
        return "circle-open"
    symbols: dict[str | None, str] = {SloState.OPEN: "diamond", SloState.MISSED: "x"}
    return symbols.get(point.slo, "circle")
