"""Draws what latencies consist of: a stacked bar for all requests and one for the slowest."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import BARS, PARTS, MeanParts
from sim.units import milliseconds, time_scale


def figure(found: MeanParts) -> go.Figure:
    """A bar of means of all requests, and one of the slowest."""
    longest = max((sum(parts.values()) for parts in found.bars.values()), default=0.0)
    shown = time_scale(longest / 1e3)
    traces = []
    for part, title in PARTS.items():
        values = [parts.get(part, 0.0) for parts in found.bars.values()]
        if any(values):
            traces.append(
                draw.bars(
                    [value * shown.factor / 1e3 for value in values],
                    [BARS[name] for name in found.bars],
                    theme.LATENCY_PARTS[part].light,
                    f"{title}: %{{customdata}}<extra></extra>",
                    name=title,
                    customdata=[milliseconds(value) for value in values],
                )
            )
    return draw.assemble(
        traces,
        time_axis(f"{found.latency.upper()}, mean", shown),
        draw.names(),
        barmode="stack",
        height=270,
        showlegend=True,
        legend={"traceorder": "normal"},
    )
