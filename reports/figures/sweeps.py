"""Draws the points of a sweep: latencies over the load, pairs of metrics, grids.

Latencies over the load are in seconds, on a logarithmic axis; the area within the SLO is shaded.
Overloaded points are hollow: with more requests they would be slower still.

``speed``: output tokens per second of a GPU against those that a user sees (1 over the median
TPOT); more of both is better. ``cost``: USD per 1M tokens (prompt + output) against TTFT at the
percentile of the SLO; less of both is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import times, within
from reports.figures.series import Style, plain, styles
from reports.frame import draw, theme
from sim.metrics.states import SloState
from sim.planning.answers.drawings import (
    Grid,
    LatencyLine,
    LatencyLines,
    LatencyPoint,
    Trade,
    TradeGroup,
)
from sim.units import PER_TOKENS


def latency_lines(knee: LatencyLines) -> go.Figure:
    """The latency over the load, and its limits."""
    looks = styles([line.settings for line in knee.lines])
    traces = [_line(line, look) for line, look in zip(knee.lines, looks, strict=True)]
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


def _line(line: LatencyLine, look: Style) -> dict[str, Any]:
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


X: Mapping[str, str] = {"speed": "output tokens/s of a user", "cost": PER_TOKENS}
HOVER: Mapping[str, str] = {
    "speed": "%{x:,.4~g} tokens/s of a user, %{y:,.4~g} of a GPU",
    "cost": "$%{x:,.4~g}, %{y:.4~s}s",
}


def trades(trade: Trade) -> go.Figure:
    """Every point, in the colour of its group."""
    looks = styles([group.settings for group in trade.groups])
    points = [point for group in trade.groups for point in group.points]
    best = [at.x for at in trade.front], [_factor(trade.kind) * at.y for at in trade.front]
    traces = [front(*best, "hv" if trade.kind == "cost" else "vh")] if len(points) > 1 else []
    pairs = zip(trade.groups, looks, strict=True)
    traces += [_trace(group, look, trade.kind) for group, look in pairs if group.points]
    axis = theme.axis("output tokens/s of a GPU", rangemode="tozero")
    return draw.assemble(
        traces,
        theme.axis(X[trade.kind], rangemode="tozero"),
        times(trade.title, [at.y for at in points]) if trade.kind == "cost" else axis,
        showlegend=len(traces) > 1,
    )


def _factor(kind: str) -> float:
    """The factor of values: latencies are drawn in seconds."""
    return 1e-3 if kind == "cost" else 1.0


def front(x: Sequence[float], y: Sequence[float], shape: str) -> draw.Trace:
    """The line that joins the points that none beats."""
    ink = theme.PAGE["ink"].light
    return draw.line(x, y, ink, "Pareto front", shape=shape, width=1.5, dash="dot")


def _trace(group: TradeGroup, look: Style, kind: str) -> draw.Trace:
    short = [at.short for at in group.points]
    words = beside(short) if any(short) else {}
    return draw.points(
        [at.x for at in group.points],
        [_factor(kind) * at.y for at in group.points],
        {"size": 10, "color": look.color, "symbol": look.symbol},
        plain(group.label),
        f"%{{customdata}}<br>{HOVER[kind]}<extra></extra>",
        customdata=[plain(at.label) for at in group.points],
        **words,
    )


def beside(texts: Sequence[str]) -> dict[str, object]:
    """Words below points."""
    look = {"textposition": "bottom center", "textfont": theme.text("muted", 11)}
    return {"text": list(texts), **look}


MOST_TEXTS = 12
"""Columns up to which every field shows its value."""

MOST_LONG = 5
"""Columns up to which it does so with all digits."""


def heat(grid: Grid) -> go.Figure:
    """The metric over both values; failed points stay empty."""
    count = len(grid.columns)
    trace = {
        "type": "heatmap",
        "x": grid.columns,
        "y": grid.rows,
        "z": [[_shade(value, grid.logarithmic) for value in row] for row in grid.values],
        "customdata": grid.values,
        "text": [[_short(value, count) for value in row] for row in grid.values],
        "texttemplate": "%{text}" if count <= MOST_TEXTS else None,
        "colorscale": [[0, theme.PAGE["neutral-soft"].light], [1, theme.PAGE["bar"].light]],
        "textfont": theme.text("ink", 12),
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": f"%{{x}}, %{{y}}: %{{customdata:,.4~g}}, {grid.title}<extra></extra>",
    }
    kind = {"type": "category", "showgrid": False}
    return draw.assemble(
        [trace],
        theme.axis(plain(grid.across), **kind),
        theme.axis(plain(grid.up), **kind),
        shapes=_border(grid.met),
    )


def _border(met: Sequence[Sequence[bool]]) -> list[dict[str, Any]]:
    """A line between each field that meets the SLO and each neighbour that does not."""
    line = {"color": theme.PAGE["good"].light, "width": 3}
    shapes = []
    for j, fields in enumerate(met):
        for i, here in enumerate(fields):
            if i + 1 < len(fields) and here != fields[i + 1]:
                shapes.append({"x0": i + 0.5, "x1": i + 0.5, "y0": j - 0.5, "y1": j + 0.5})
            if j + 1 < len(met) and here != met[j + 1][i]:
                shapes.append({"x0": i - 0.5, "x1": i + 0.5, "y0": j + 0.5, "y1": j + 0.5})
    return [{"type": "line", "line": line, **shape} for shape in shapes]


def _shade(value: float | None, logarithmic: bool) -> float | None:
    """The value behind the colour."""
    if value is None or (logarithmic and value <= 0):
        return None
    return log10(value) if logarithmic else value


def _short(value: float | None, columns: int) -> str:
    """The text of a field; in thousands where there is little room."""
    if value is None:
        return ""
    if abs(value) >= 1e4 and columns > MOST_LONG:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
