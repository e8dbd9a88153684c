"""Draws the errors that the fit leaves (predicted over measured) for each kind of shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log10
from typing import Any

import plotly.graph_objects as go

from reports.figures.kernel_names import Own
from reports.frame import draw, theme

TICKS = {
    1.3: (0.8, 0.9, 1.0, 1.1, 1.25),
    2.5: (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0),
    inf: (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0),
}
"""Labels of the axis, by the largest ratio that it has to hold."""

LEAST_SPAN = 1.25
"""The axis reaches at least from one over this to this."""

MARGIN = 0.01
"""Decades beyond that at both ends."""


def figure(own: Own, regimes: Sequence[str]) -> go.Figure:
    """A box for each regime (in the order of ``regimes``) and precision, with every point next to
    it."""
    traces = []
    largest = LEAST_SPAN
    for precision in reversed(own.precisions):  # upwards, so that the first one is on top
        columns = own.where(precision=precision)
        pairs = zip(columns["predicted"], columns["measured"], strict=True)
        ratios = [predicted / measured for predicted, measured in pairs]
        largest = max([largest, *ratios, *(1 / ratio for ratio in ratios)])
        traces.append(_boxes(columns, ratios, precision))
    ticks = next(each for bound, each in TICKS.items() if largest <= bound)
    reach = log10(largest) + MARGIN
    return draw.assemble(
        traces,
        theme.axis(
            "predicted / measured",
            type="log",
            tickvals=ticks,
            ticktext=[f"{tick:g}" for tick in ticks],
            range=[-reach, reach],
        ),
        theme.axis(
            None, categoryorder="array", categoryarray=list(reversed(regimes)), showgrid=False
        ),
        boxmode="group",
        showlegend=len(own.precisions) > 1,
        legend={"traceorder": "reversed"},
        shapes=[draw.upright(1, "muted", 1, layer="below")],
    )


def _boxes(columns: dict[str, list[Any]], ratios: list[float], precision: str) -> dict[str, Any]:
    tone = theme.precision(precision)
    return {
        "type": "box",
        "orientation": "h",
        "name": precision,
        "x": ratios,
        "y": columns["regime"],
        "customdata": columns["shape"],
        "boxpoints": "all",
        "jitter": 0.5,
        "pointpos": 0,
        "line": {"color": tone.light, "width": 1.5},
        "fillcolor": theme.faint(tone).light,
        "marker": {"size": 4, "opacity": 0.5, "color": tone.light},
        "hoveron": "points",
        "hovertemplate": "%{customdata}<br>%{x:.2f}",
    }
