"""Draws the share of requests within the SLO at each load, with its 95 % interval.

The axis ends a little below the target, where the loads are decided; what is lower stands on it as
a triangle.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.figures.find_curve import OUTCOMES
from reports.frame import draw, theme
from sim.planning.answers.drawings import AttainedByLoad, LoadShare

DEPTH = 8.0
"""Where the axis ends, in shares that may miss the target."""


def figure(attained: AttainedByLoad) -> go.Figure:
    """The share at every load with its 95 % interval, and the share that the SLO asks for.

    Without an SLO the figure is empty.
    """
    unit, right, targets, points = attained
    floor = max(0.0, 1 - DEPTH * (1 - min(targets))) if targets else 0.0
    right *= 1.04
    traces = [_points(points, floor, *outcome) for outcome in OUTCOMES]
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


def _points(
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
