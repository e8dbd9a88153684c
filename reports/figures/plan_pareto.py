"""Draws the cost of every fleet that meets the SLO against a latency, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.figures.pareto import beside, front
from reports.figures.series import FORMAT, GPU, Style, styles
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import CostAndLatency, FleetPoint
from sim.units import milliseconds, time_scale


def figure(drawn: CostAndLatency) -> go.Figure:
    """Every fleet that holds: dollars per hour against a latency at the percentile of the SLO,
    under the rate with its headroom."""
    points, limit = drawn.fleets, drawn.limit
    highest = max([*(point.latency for point in points), limit or 0.0])
    shown = time_scale(highest / 1e3)
    factor = shown.factor / 1e3
    best = sorted((point for point in points if point.front), key=lambda point: point.usd)
    traces = [front([p.usd for p in best], [factor * p.latency for p in best], "hv")]
    cards = list(dict.fromkeys((point.gpu, point.precision) for point in points))
    looks = styles([{GPU: gpu, FORMAT: precision} for gpu, precision in cards])
    for card, look in zip(cards, looks, strict=True):
        mine = [point for point in points if (point.gpu, point.precision) == card]
        traces.append(_points(mine, factor, look))
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


def _points(points: Sequence[FleetPoint], factor: float, look: Style) -> draw.Trace:
    """The fleets of one GPU and format; milliseconds are multiplied with ``factor``."""
    return draw.points(
        [point.usd for point in points],
        [factor * point.latency for point in points],
        {"size": 11, "color": look.color, "symbol": look.symbol},
        " ".join(filter(None, [points[0].gpu, points[0].precision])),
        "%{hovertext}: $%{x:,.2f}/h, %{customdata}<extra></extra>",
        **beside([f"{point.replicas:,} x {point.gpus // point.replicas}" for point in points]),
        hovertext=[point.name for point in points],
        customdata=[milliseconds(point.latency) for point in points],
    )
