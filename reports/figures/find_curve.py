"""Draws a latency over the load, at the share of requests that the SLO asks for, for all probes.

Latencies in milliseconds, or seconds where they are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.layout import times
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import LoadCurve
from sim.units import milliseconds, show_load, time_scale

WIDE = 30.0
"""Largest over smallest latency from which on the axis is logarithmic."""

OUTCOMES = (
    ("holds", "good", "circle"),
    ("too close to call", "warn", "diamond"),
    ("fails", "bad", "x"),
)
"""Outcome of a load, with its colour and symbol."""


def figure(curve: LoadCurve) -> go.Figure:
    """The region within the SLO is shaded, the scenario's own load and the knee are marked."""
    limit, points = curve.limit, curve.points
    axis, ends, factor = _axis(curve.title, [point.latency for point in points] or [1.0], limit)
    traces = []
    if limit is not None:
        traces.append(_region(curve.highest, factor * limit, ends[0]))
    traces.append(
        draw.line(
            [point.load for point in points],
            [factor * point.latency for point in points],
            theme.METRICS[curve.metric].light,
            showlegend=False,
        )
    )
    traces += [_points(curve, factor, look) for look in OUTCOMES]
    muted = theme.PAGE["muted"].light
    traces += [
        draw.line([load] * 2, ends, muted, f"{name} {show_load(load, 3)}", width=1.5, dash=dash)
        for load, name, dash in ((curve.own, "own load", "dot"), (curve.knee, "knee", "dash"))
        if load is not None
    ]
    across = theme.axis(f"load ({curve.unit})", range=[0, 1.04 * curve.right])
    return draw.assemble(traces, across, axis, showlegend=True)


def _axis(
    title: str, values: Sequence[float], limit: float | None
) -> tuple[dict[str, Any], tuple[float, float], float]:
    """An axis for latencies (ms) and their limit, its two ends, and what milliseconds are
    multiplied with to be in its unit."""
    drawn = [*values, *([] if limit is None else [limit])]
    if max(values) > WIDE * min(values):
        axis = times(title, drawn)
        low, high = axis["range"]
        return axis, (10**low, 10**high), 1e-3
    shown = time_scale(max(drawn) / 1e3)
    factor = shown.factor / 1e3
    top = 1.08 * factor * max(drawn)
    return time_axis(title, shown, range=[0, top]), (0.0, top), factor


def _region(right: float, limit: float, bottom: float) -> dict[str, Any]:
    """Up to the highest load that holds and up to the limit."""
    x, y = [0, 0, right, right], [bottom, limit, limit, bottom]
    green = theme.faint(theme.GREEN).light
    fill = {"fill": "toself", "fillcolor": green}
    return draw.line(x, y, theme.GREEN.light, "within the SLO", width=1, **fill)


def _points(curve: LoadCurve, factor: float, look: tuple[str, str, str]) -> draw.Trace:
    outcome, color, symbol = look
    mine = [point for point in curve.points if point.outcome == outcome]
    return draw.points(
        [point.load for point in mine],
        [factor * point.latency for point in mine],
        {"size": 9, "symbol": symbol, "color": theme.PAGE[color].light},
        outcome,
        "%{x:.4~g}: %{customdata}, %{text}<extra></extra>",
        customdata=[milliseconds(point.latency) for point in mine],
        text=[point.text for point in mine],
    )
