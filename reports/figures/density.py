"""Draws how many requests have which length or latency over the run, as a heat map: whether it is
all requests that change, or some.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.frame import draw, theme
from reports.frame.decimate import Floats
from reports.frame.scale import run_axis, run_scale

COLUMNS, ROWS = 60, 24
"""Stretches of time, and of values by their logarithm."""

SHADES = ((0, 0), (0.3, 2), (1, 6))
"""Shares of the most requests in a field, and their places in the ramp of colours."""

FEWEST = 400
"""Requests that fill enough fields to see a shape."""


def figure(arrivals: Floats, values: Floats, title: str, unit: str) -> go.Figure:
    """How many of the requests that arrived at these times (s) have these ``values``, above 0;
    ``title`` names them, with their ``unit``."""
    shown = run_scale(float(arrivals.max()))
    times = np.linspace(0.0, float(arrivals.max()), COLUMNS + 1)
    low, high = float(values.min()), float(values.max())
    edges = np.geomspace(low, max(high, 1.1 * low), ROWS + 1)
    edges[[0, -1]] = low, max(high, 1.1 * low)  # as they are: the others are rounded
    counts = np.histogram2d(values, arrivals, bins=(edges, times))[0].astype(int)
    trace = {
        "type": "heatmap",
        "x": (times * shown.factor).round(3).tolist(),
        "y": [float(f"{edge:.4g}") for edge in edges],
        "z": [[count or None for count in row] for row in counts.tolist()],
        "colorscale": [[share, theme.RAMP[place].light] for share, place in SHADES],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"%{{z:,d}} requests of about %{{y:,.3~g}} {unit}, at %{{x:,.3~g}} "
        f"{shown.unit}<extra></extra>",
    }
    return draw.assemble(
        [trace],
        run_axis(shown, "arrival"),
        theme.axis(f"{title} ({unit})") | labelled(float(edges[0]), float(edges[-1])),
    )
