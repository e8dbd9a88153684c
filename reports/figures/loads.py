"""Draws what a search for the highest load has seen: latencies and shares within the SLO.

The axis of shares ends a little below the target, where the loads are decided; what is lower stands
on it as a triangle. Latencies are in milliseconds, or seconds where they are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import times
from reports.frame import draw, theme
from reports.frame.draw import time_axis
from sim.planning.answers.drawings import AttainedByLoad, LoadCurve, LoadShare
from sim.units import milliseconds, show_load, time_scale

WIDE = 30.0
"""Largest over smallest latency from which on the axis is logarithmic."""

OUTCOMES = (
    ("holds", "good", "circle"),
    ("too close to call", "warn", "diamond"),
    ("fails", "bad", "x"),
)
"""Outcome of a load, with its colour and symbol."""


def latency_curve(curve: LoadCurve) -> go.Figure:
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


DEPTH = 8.0
"""Where the axis ends, in shares that may miss the target."""


def attained(attained: AttainedByLoad) -> go.Figure:
    """The share at every load with its 95 % interval, and the share that the SLO asks for.

    Without an SLO the figure is empty.
    """
    unit, right, targets, points = attained
    floor = max(0.0, 1 - DEPTH * (1 - min(targets))) if targets else 0.0
    right *= 1.04
    traces = [_shares(points, floor, *outcome) for outcome in OUTCOMES]
    ink = theme.PAGE["ink"].light
    traces += [
        draw.line(
            [0, right], [share, share], ink, f"SLO: {100 * share:.6g} %", width=1.5, dash="dash"
        )
        for share in targets
    ]
    ends = [floor - (1 - floor) * 0.04, 1 + (1 - floor) * 0.04]
    return draw.assemble(
        traces,
        theme.axis(f"load ({unit})", range=[0, right]),
        theme.axis("share of requests", range=ends, tickformat=".4~p"),
        showlegend=True,
    )


def _shares(
    points: Sequence[LoadShare], floor: float, outcome: str, color: str, symbol: str
) -> draw.Trace:
    mine = [point for point in points if point.outcome == outcome]
    tone = theme.PAGE[color].light
    symbols = [symbol if point.attainment >= floor else "triangle-down" for point in mine]
    drawn = [max(floor, each.attainment) for each in mine]
    return draw.points(
        [point.load for point in mine],
        drawn,
        {"size": 8, "symbol": symbols, "color": tone},
        outcome,
        "%{x:.4~g}: %{customdata:.3%}%{text}<extra></extra>",
        customdata=[each.attainment for each in mine],
        cliponaxis=False,
        error_y=draw.spread(
            [max(0.0, each.attainment - max(floor, each.low)) for each in mine],
            [max(0.0, each.high - at) for each, at in zip(mine, drawn, strict=True)],
            tone,
        ),
        text=[each.text for each in mine],
    )
