"""Draws what the latency of fast and slow requests consists of: stacked bars over percentiles.

Each bar is the mean over the requests between two percentiles; its parts add up to it.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from reports.figures.latency_bands import TITLES, Bands, Floats, Of
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.units import Scale, time_scale

NAMES = {"ttft": "TTFT", "e2el": "E2EL"}


def figure(found: Bands | None, of: Of) -> go.Figure:
    """The parts of ``of`` band by band, from fast to slow; of none, empty and says so."""
    if found is None:
        return draw.nothing("The parts of latencies were not recorded")
    longest = float(found.whole.max())
    shown = time_scale(longest)
    traces = [_bars(name, found, shown) for name in found.parts if (found.parts[name] > 0).any()]
    top = _top(found.whole, len(traces)) * shown.factor
    return draw.assemble(
        traces,
        theme.axis(
            f"percentiles of {NAMES[of]}, fast to slow",
            type="category",
            showgrid=False,
            fixedrange=True,
        ),
        time_axis(f"mean {NAMES[of]}", shown, range=[0, top], fixedrange=True),
        barmode="stack",
        bargap=0.25,
        showlegend=True,
        legend=LEGEND,
    )


LEGEND = {
    **{"orientation": "v", "x": 0.01, "y": 1.0, "xanchor": "left", "yanchor": "top"},
    **{"traceorder": "reversed", "font": {"size": 11}},
}
"""The parts as they lie on each other, over the lowest bars: latencies grow to the right."""

LINE, PLOT = 19, 235
"""Height (px) of a line of the legend, and of the plot that it stands in."""

UNDER = 4
"""Bars, from the left, that end below the legend."""


def _top(whole: Floats, names: int) -> float:
    """The end of the axis, so that the legend of ``names`` lines is above the bars ``UNDER`` it."""
    free = max(0.25, 1 - LINE * (names + 0.5) / PLOT)
    return float(max(1.05 * whole.max(), whole[:UNDER].max() / free)) or 1.0


def _bars(name: str, found: Bands, shown: Scale) -> dict[str, Any]:
    unit, factor = shown
    values = found.parts[name]
    rows = zip((values * factor).tolist(), (values / found.whole).tolist(), strict=True)
    return {
        "type": "bar",
        "name": TITLES[name],
        "x": list(found.labels),
        "y": (values * factor).tolist(),
        "customdata": [
            [label, count, f"{value:,.4g} {unit}", share]
            for label, count, (value, share) in zip(found.labels, found.counts, rows, strict=True)
        ],
        "marker": {
            "color": theme.LATENCY_PARTS[name].light,
            "line": {"color": theme.PAGE["surface"].light, "width": 0.5},
        },
        "hovertemplate": (
            f"{TITLES[name]}: %{{customdata[2]}} (%{{customdata[3]:.1%}})<br>mean of "
            "%{customdata[1]:,d} requests, %{customdata[0]}<extra></extra>"
        ),
    }
