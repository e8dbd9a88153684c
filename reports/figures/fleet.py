"""Draws the pools of a fleet over a run: replicas held, requests, and hand-overs between pools.

A panel for each quantity, a line for each pool; values are means over stretches of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from reports.figures.naming import plain
from reports.figures.series import Style, styles
from reports.figures.timeline import Panel, stacked
from reports.frame import draw, theme

PANELS = {
    "held": "replicas held",
    "running": "requests running",
    "waiting": "requests waiting",
}
"""Key of a pool in the course -> title of its panel."""


def figure(course: Mapping[str, Any]) -> go.Figure:
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
