"""Draws requests, attempts and good answers per second over a run, with its outages shaded.

Attempts above arrivals are requests that clients send again; good answers below arrivals are
requests that are late, given up, or wait. After an outage the three meet again, unless the retries
alone keep the fleet overloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.frame import theme

HEIGHT = 300
"""Of the figure (px)."""

SERIES = {
    "sent": ("attempts", "preemptions", "dot"),
    "arrived": ("requests", "arrivals", "solid"),
    "good": ("answers within the SLO", "completions", "solid"),
}
"""Key of the course -> name, whose colour it has, line."""


def figure(
    course: Mapping[str, Sequence[float]],
    outages: Sequence[Mapping[str, Any]],
    *,
    answers: str = SERIES["good"][0],
) -> go.Figure:
    """``course`` and ``outages`` are those of ``failures`` in a summary; ``answers`` names the good
    ones."""
    times = [float(time) for time in course["time_s"]]
    width = times[1] - times[0] if len(times) > 1 else 1.0
    traces = []
    for key, (name, metric, dash) in SERIES.items():
        values = [float(value) for value in course[key]]
        line = {"shape": "hv", "color": theme.METRICS[metric].light, "width": 2, "dash": dash}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": answers if key == "good" else name,
                "x": [*times, times[-1] + width],
                "y": [*values, values[-1]],
                "line": line,
                "hovertemplate": "%{y:,.3~g}/s",
            }
        )
    end = times[-1] + width
    layout = theme.layout() | {
        "height": HEIGHT,
        "hovermode": "x unified",
        "showlegend": True,
        "xaxis": theme.axis("time since the start")
        | {"range": [times[0], end], "ticksuffix": " s", "hoverformat": ",.4~g"},
        "yaxis": theme.axis("per second") | {"rangemode": "tozero", "fixedrange": True},
        "shapes": [_outage(each, end) for each in outages],
    }
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    layout["margin"] = layout["margin"] | {"t": 32}
    return go.Figure(data=traces, layout=layout)


def _outage(outage: Mapping[str, Any], end: float) -> dict[str, Any]:
    until = end if outage["until_s"] is None else min(outage["until_s"], end)
    return {
        "type": "rect",
        "x0": outage["since_s"],
        "x1": until,
        "y0": 0,
        "y1": 1,
        "yref": "y domain",
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": theme.PAGE["neutral-soft"].light,
    }
