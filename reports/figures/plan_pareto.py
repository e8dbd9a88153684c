"""Draws the cost of every fleet that meets the SLO against a latency, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.figures.pareto import front
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import CostAndLatency, FleetPoint
from sim.units import milliseconds, time_scale

TONES = (theme.BLUE, theme.VERMILLION, theme.GREEN, theme.PURPLE, theme.ORANGE, theme.GREY)
"""Colours of GPUs, in the order in which they come; more of them share the last."""


def figure(drawn: CostAndLatency) -> go.Figure:
    """Every fleet that holds: dollars per hour against a latency at the percentile of the SLO,
    under the rate with its headroom."""
    points, limit = drawn.fleets, drawn.limit
    highest = max([*(point.latency for point in points), limit or 0.0])
    shown = time_scale(highest / 1e3)
    factor = shown.factor / 1e3
    best = sorted((point for point in points if point.front), key=lambda point: point.usd)
    traces = [front([p.usd for p in best], [factor * p.latency for p in best], "hv")]
    for index, gpu in enumerate(dict.fromkeys(point.gpu for point in points)):
        mine = [point for point in points if point.gpu == gpu]
        traces.append(_points(mine, factor, gpu, TONES[min(index, len(TONES) - 1)]))
    if limit is not None and points:
        right = 1.04 * max(point.usd for point in points)
        name, muted = f"limit {milliseconds(limit)}", theme.PAGE["muted"].light
        ends = [0, right], [factor * limit] * 2
        traces.append(draw.line(*ends, muted, name, width=1.5, dash="dash"))
    return draw.assemble(
        traces,
        theme.axis("cost (USD per hour)", rangemode="tozero"),
        time_axis(drawn.title, shown, rangemode="tozero"),
        showlegend=True,
    )


def _points(points: Sequence[FleetPoint], factor: float, gpu: str, tone: theme.Tone) -> draw.Trace:
    """The fleets of one GPU; milliseconds are multiplied with ``factor``."""
    return draw.points(
        [point.usd for point in points],
        [factor * point.latency for point in points],
        {"size": 11, "color": tone.light},
        gpu,
        "%{hovertext}: $%{x:,.2f}/h, %{customdata}<extra></extra>",
        text=[str(point.replicas) for point in points],
        textposition="bottom center",
        textfont=theme.text("muted", 11),
        hovertext=[point.name for point in points],
        customdata=[milliseconds(point.latency) for point in points],
    )
