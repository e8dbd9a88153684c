"""Draws the pools of a fleet over a run, and the attempts of clients when replicas fail.

Pools have a panel for each quantity and a line each; values are means over stretches of the run.
Attempts above arrivals are requests that clients send again; good answers below arrivals are
requests that are late, given up, or wait. After an outage the three meet again, unless the retries
alone keep the fleet overloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from reports.figures.series import Style, plain, styles
from reports.figures.timeline import Panel, stacked
from reports.frame import draw, theme
from reports.frame.draw import run_axis, run_scale

PANELS = {"held": "replicas held", "running": "requests running", "waiting": "requests waiting"}
"""Key of a pool in the course -> title of its panel."""


def pools(course: Mapping[str, Any]) -> go.Figure:
    """``course`` is ``fleet`` of ``charts.json``."""
    edges, pools = course["edges"], course["pools"]
    looks = styles([{} for _ in pools])
    panels = [
        Panel(
            title,
            {},
            [
                _line(edges, pool[key], pool["name"], look)
                for pool, look in zip(pools, looks, strict=True)
            ],
        )
        for key, title in PANELS.items()
    ]
    if course["handed"] is not None:
        look = Style(theme.PAGE["ink"].light, "solid")
        name = "prompt complete, KV not there yet"
        panels.append(Panel("hand-overs", {}, [_line(edges, course["handed"], name, look)]))
    return stacked(panels, float(edges[-1]))


def _line(edges: Sequence[float], values: Sequence[float], name: str, look: Style) -> draw.Trace:
    """One value for each stretch; the last is repeated to close the last step."""
    steps = {"shape": "hv", "dash": look.dash, "width": 1.5}
    x, y = np.array(edges, np.float32), np.array([*values, *values[-1:]], np.float32)
    return draw.line(x, y, look.color, plain(name), "%{y:,.3~g}", **steps)


HEIGHT = 300
"""Of the figure (px)."""

SERIES = {
    "sent": ("attempts", "preemptions", "dot"),
    "arrived": ("requests", "arrivals", "solid"),
    "good": ("answers within the SLO", "completions", "solid"),
}
"""Key of the course -> name, whose colour it has, line."""


def attempts(
    course: Mapping[str, Sequence[float]],
    outages: Sequence[Mapping[str, Any]],
    *,
    answers: str = SERIES["good"][0],
) -> go.Figure:
    """``course`` and ``outages`` are those of ``failures`` in a summary; ``answers`` names the good
    ones."""
    times = [float(time) for time in course["time_s"]]
    width = times[1] - times[0] if len(times) > 1 else 1.0
    end = times[-1] + width
    shown = run_scale(end)
    traces = []
    for key, (name, metric, dash) in SERIES.items():
        values = [float(value) for value in course[key]]
        traces.append(
            draw.line(
                [time * shown.factor for time in (*times, end)],
                [*values, values[-1]],
                theme.METRICS[metric].light,
                answers if key == "good" else name,
                "%{y:,.3~g}/s",
                dash=dash,
                shape="hv",
            )
        )
    return draw.assemble(
        traces,
        run_axis(shown) | {"range": [times[0] * shown.factor, end * shown.factor]},
        theme.axis("per second", rangemode="tozero", fixedrange=True),
        height=HEIGHT,
        hovermode="x unified",
        showlegend=True,
        legend={"y": 1.02},
        margin={"t": 32},
        shapes=[_outage(each, end, shown.factor) for each in outages],
    )


def _outage(outage: Mapping[str, Any], end: float, factor: float) -> draw.Trace:
    until = end if outage["until_s"] is None else min(outage["until_s"], end)
    ends = {"x0": outage["since_s"] * factor, "x1": until * factor, "y0": 0, "y1": 1}
    return draw.wash(theme.PAGE["neutral-soft"].light, yref="y domain", **ends)
