"""What does the fit leave over, kind of shape by kind of shape? Predicted over measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.profile.names import Own
from reports.profile.predicted import legend

TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
LEAST_SPAN = 1.25
"""The axis reaches at least from one over this to this."""


def figure(own: Own, regimes: Sequence[str]) -> go.Figure:
    """A box for each regime (in the order of ``regimes``) and precision; every point beside it."""
    traces = []
    largest = LEAST_SPAN
    for precision in own.precisions:
        columns = own.where(precision=precision)
        pairs = zip(columns["predicted"], columns["measured"], strict=True)
        ratios = [predicted / measured for predicted, measured in pairs]
        largest = max([largest, *ratios, *(1 / ratio for ratio in ratios)])
        traces.append(_boxes(columns, ratios, precision))
    shown = [tick for tick in TICKS if 1 / largest <= tick <= largest]
    while len(shown) > 9:
        shown = [tick for tick in shown if tick == 1 or shown.index(tick) % 2 == shown.index(1) % 2]
    layout = theme.layout() | {
        "xaxis": theme.axis(None)
        | {"categoryorder": "array", "categoryarray": list(regimes), "showgrid": False},
        "yaxis": theme.axis("predicted / measured")
        | {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]},
        "boxmode": "group",
        "hovermode": "closest",
        "showlegend": len(own.precisions) > 1,
        "legend": legend(),
        "shapes": [_equality()],
    }
    return go.Figure(data=traces, layout=layout)


def _boxes(columns: dict[str, list[Any]], ratios: list[float], precision: str) -> dict[str, Any]:
    tone = theme.precision(precision)
    return {
        "type": "box",
        "name": precision,
        "x": columns["regime"],
        "y": ratios,
        "customdata": columns["shape"],
        "boxpoints": "all",
        "jitter": 0.5,
        "pointpos": 0,
        "line": {"color": tone.light, "width": 1.5},
        "fillcolor": theme.faint(tone).light,
        "marker": {"size": 4, "opacity": 0.5, "color": tone.light},
        "hoveron": "points",
        "hovertemplate": "%{customdata}<br>%{y:.2f}",
    }


def _equality() -> dict[str, Any]:
    line = {"color": theme.PAGE["muted"].light, "width": 1}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1}
    return across | {"line": line, "layer": "below"}
