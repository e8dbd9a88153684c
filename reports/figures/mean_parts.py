"""Draws what latencies consist of: a stacked bar for all requests and one for the slowest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.frame import theme
from reports.frame.scale import time_axis, time_scale
from sim.units import milliseconds

TITLES: Mapping[str, str] = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "others' prefill, before the first token",
    "prefill_preempted": "preempted before the first token",
    "decode": "decode",
    "decode_delay": "others' prefill, after the first token",
    "decode_preempted": "preempted after the first token",
    "transfer": "transfer",
}
BARS: Mapping[str, str] = {
    "ttft": "TTFT",
    "slowest_ttft": "TTFT, slowest 1 %",
    "e2el": "E2EL",
    "slowest_e2el": "E2EL, slowest 1 %",
}


def figure(document: Mapping[str, Any], latency: str) -> go.Figure:
    """The parts of ``ttft`` or ``e2el``: means of all requests, and of the slowest."""
    names = [name for name in (latency, f"slowest_{latency}") if name in document["latency"]]
    longest = max((sum(document["latency"][name].values()) for name in names), default=0.0)
    shown = time_scale(longest / 1e3)
    traces = []
    for part, title in TITLES.items():
        values = [document["latency"][name].get(part, 0.0) for name in names]
        if any(values):
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": title,
                    "y": [BARS[name] for name in names],
                    "x": [value * shown.factor / 1e3 for value in values],
                    "customdata": [milliseconds(value) for value in values],
                    "marker": {"color": theme.LATENCY_PARTS[part].light},
                    "hovertemplate": f"{title}: %{{customdata}}<extra></extra>",
                }
            )
    layout = theme.layout() | {
        "xaxis": time_axis(f"{latency.upper()}, mean", shown),
        "yaxis": theme.axis(None) | {"type": "category", "autorange": "reversed"},
        "barmode": "stack",
        "height": 270,
        "showlegend": True,
        "legend": legend() | {"traceorder": "normal"},
    }
    return go.Figure(data=traces, layout=layout)
