"""Draws a run's operating points under the roofline of its GPU.

A circle stands for iterations of similar arithmetic intensity; its area is their share of the busy
time, its height their FLOP/s, the host's part of an iteration included. Left of the ridge the
memory bandwidth is the limit, right of it arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10, sqrt
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend, logarithmic
from reports.frame import theme

LARGEST, SMALLEST = 36.0, 4.0
"""Diameters (px) of the circle with most of the time, and of one with next to none."""

NAMES = {"decode": "decode only", "mixed": "prefill and decode", "prefill": "prefill only"}
"""Kind of iteration -> what the legend calls it."""

Points = list[Mapping[str, Any]]


def figure(found: Mapping[str, Any] | None) -> go.Figure:
    """The roof of one GPU and the points of a run (``roofline`` of ``charts.json``).

    Points that compute nothing are left out. Without any the figure is empty and says so.
    """
    points = [] if found is None else [point for point in found["points"] if point["flops"] > 0]
    if found is None or not points:
        return _empty()
    peak, bandwidth = found["peak_flops"], found["bandwidth"]
    ridge = peak / bandwidth
    intensities = [point["flops"] / point["bytes"] for point in points]
    low, high = min(*intensities, ridge) / 2.2, max(*intensities, ridge) * 2.2
    roof = [(low, low * bandwidth), (ridge, peak), (high, peak)]
    floor = min(point["flops"] / point["seconds"] for point in points) / 2.2
    busy = sum(point["seconds"] for point in points)
    most = max(point["seconds"] for point in points)
    traces = [_roof(roof, found["precision"]), _ridge(ridge, floor, peak)]
    for kind, name in NAMES.items():
        mine = [point for point in points if point["kind"] == kind]
        if mine:
            traces.append(_circles(mine, kind, name, busy, most))
    layout = theme.layout() | {
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend() | {"itemsizing": "constant"},
        "xaxis": logarithmic("arithmetic intensity (FLOP per byte)", [low, high])
        | {"range": [log10(low), log10(high)]},
        "yaxis": logarithmic("FLOP/s of one GPU", [floor, peak])
        | {"range": [log10(floor), log10(peak * 2.2)]},
    }
    layout["annotations"] = [_ridge_label(ridge, floor, high)]
    return go.Figure(data=traces, layout=layout)


def _circles(points: Points, kind: str, name: str, busy: float, most: float) -> dict[str, Any]:
    tone = theme.ITERATIONS[kind]
    sizes = [max(SMALLEST, LARGEST * sqrt(point["seconds"] / most)) for point in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [point["flops"] / point["bytes"] for point in points],
        "y": [point["flops"] / point["seconds"] for point in points],
        "customdata": [
            [
                point["seconds"] / busy,
                point["iterations"],
                1e3 * point["seconds"] / point["iterations"],
            ]
            for point in points
        ],
        "cliponaxis": False,
        "marker": {
            "size": sizes,
            "opacity": 0.65,
            "color": tone.light,
            "line": {"color": theme.PAGE["surface"].light, "width": 1},
        },
        "hovertemplate": (
            f"{name}: %{{x:.3~g}} FLOP per byte, %{{y:.3~s}}FLOP/s<br>%{{customdata[0]:.2%}} of "
            "the busy time, %{customdata[1]:,.0f} iterations of %{customdata[2]:,.3~g} ms"
            "<extra></extra>"
        ),
    }


def _roof(points: list[tuple[float, float]], precision: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"roof ({precision}, data sheet)",
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "line": {"color": theme.PAGE["ink"].light, "width": 1.5},
        "hovertemplate": "roof: %{y:.3~s}FLOP/s<extra></extra>",
    }


def _ridge(ridge: float, floor: float, peak: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "ridge",
        "x": [ridge, ridge],
        "y": [floor, peak],
        "showlegend": False,
        "line": {"color": theme.PAGE["muted"].light, "width": 1.2, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _ridge_label(ridge: float, floor: float, high: float) -> dict[str, Any]:
    """Next to the foot of the line; its coordinates are logarithms, as Plotly wants them."""
    crowded = high / ridge < 8
    return {
        "x": log10(ridge),
        "y": log10(floor),
        "text": f" ridge: {ridge:,.0f} FLOP per byte ",
        "showarrow": False,
        "xanchor": "right" if crowded else "left",
        "yanchor": "bottom",
        "font": {"color": theme.PAGE["muted"].light, "size": 12},
    }


def _empty() -> go.Figure:
    note = {"text": "No iteration is known", "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    note |= {"showarrow": False, "font": {"color": theme.PAGE["muted"].light}}
    hidden = {"visible": False}
    layout = theme.layout() | {"annotations": [note], "xaxis": hidden, "yaxis": hidden}
    return go.Figure(layout=layout)
