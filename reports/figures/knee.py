"""Draws a latency over the load of a sweep, at the percentile of the SLO: a line for each variant.

Seconds, on a logarithmic axis; the area within the SLO is shaded. Overloaded points are hollow:
with more requests they would be slower still.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from reports.figures.layout import times, within
from reports.figures.naming import plain
from reports.figures.series import Style, styles
from reports.frame import draw, theme
from sim.metrics.states import SloState
from sim.planning.answers.drawings import LatencyLine, LatencyLines, LatencyPoint


def figure(knee: LatencyLines) -> go.Figure:
    """The latency over the load, and its limits."""
    looks = styles([line.settings for line in knee.lines])
    traces = [_trace(line, look) for line, look in zip(knee.lines, looks, strict=True)]
    drawn = [point.latency for line in knee.lines for point in line.points]
    axis = times(knee.title, [*drawn, *knee.limits])
    limits = [limit / 1e3 for limit in knee.limits]
    shapes = (
        within(limits[0], 10 ** axis["range"][0])
        if len(limits) == 1
        else [draw.across(limit, dash="dash") for limit in limits]
    )
    load = theme.axis(knee.load, rangemode="tozero")
    return draw.assemble(traces, load, axis, showlegend=len(traces) > 1, shapes=shapes)


def _trace(line: LatencyLine, look: Style) -> dict[str, Any]:
    symbols = [_symbol(point) for point in line.points]
    return draw.line(
        [point.load for point in line.points],
        [point.latency / 1e3 for point in line.points],
        look.color,
        plain(line.label),
        "%{x:.4~g}: %{y:.4~s}s, %{customdata}",
        dash=look.dash,
        mode="lines+markers",
        customdata=[point.text for point in line.points],
        marker={"size": 7, "color": look.color, "symbol": symbols},
    )


def _symbol(point: LatencyPoint) -> str:
    """Hollow if overloaded; else a diamond if the SLO is too close to call, a cross if missed."""
    if point.overloaded:
        return "circle-open"
    symbols: dict[str | None, str] = {SloState.OPEN: "diamond", SloState.MISSED: "x"}
    return symbols.get(point.slo, "circle")
