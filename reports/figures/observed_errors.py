"""Draws all errors of a prediction: a dot for each metric, and the predicted error band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.frame import theme

LEAST = 0.06
"""The axis reaches at least that far to each side."""


def figure(rows: Sequence[tuple[str, Mapping[str, Any]]], band: float | None) -> go.Figure:
    """``rows`` are metrics by name, with ``error`` and ``within_band``; ``band`` is shaded."""
    errors = [row["error"] for _, row in rows]
    far = 0.0 if band is None else 1 / (1 - min(band, 0.9)) - 1  # the wider side of the band
    reach = 1.1 * max(LEAST, far, *(abs(error) for error in errors))
    traces = []
    for name, inside, symbol in (
        ("within the band", True, "circle"),
        ("outside the band", False, "x"),
    ):
        mine = [(title, row) for title, row in rows if (row["within_band"] is not False) == inside]
        traces.append(_dots(name, mine, symbol, theme.BLUE if inside else theme.VERMILLION))
    layout = theme.layout() | {
        "xaxis": theme.axis("error") | {"range": [-reach, reach], "tickformat": "+.0%"},
        "yaxis": theme.axis("")
        | {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [title for title, _ in reversed(rows)],
            "dtick": 1,
            "fixedrange": True,
        },
        "hovermode": "closest",
        "showlegend": False,
        "shapes": _band(band),
    }
    return go.Figure(data=[trace for trace in traces if trace["x"]], layout=layout)


def _dots(
    name: str, rows: Sequence[tuple[str, Mapping[str, Any]]], symbol: str, tone: theme.Tone
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [row["error"] for _, row in rows],
        "y": [title for title, _ in rows],
        "marker": {"size": 8, "symbol": symbol, "color": tone.light},
        "hovertemplate": "%{y}: %{x:+.1%}",
    }


def _band(band: float | None) -> list[dict[str, Any]]:
    """The predicted band, and the line at no error."""
    upright = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    line = {"color": theme.PAGE["muted"].light, "width": 1}
    zero = {**upright, "type": "line", "x0": 0, "x1": 0, "line": line}
    if band is None:
        return [zero]
    fill = {"line": {"width": 0}, "fillcolor": theme.PAGE["neutral-soft"].light}
    # the band is around the predicted value, an error is relative to the observed one
    low, high = 1 / (1 + band) - 1, 1 / (1 - min(band, 0.9)) - 1
    return [{**upright, "x0": low, "x1": high, **fill}, zero]
