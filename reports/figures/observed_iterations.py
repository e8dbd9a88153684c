"""Draws two figures of iteration times: predicted against observed, and their ratio over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import equality, logarithmic
from reports.frame import draw, theme

MOST_POINTS = 1500
"""So many iterations of a regime are drawn; of more, evenly spaced ones."""

AWAY = 1.2
"""The dotted lines are this ratio away from equality."""

Columns = Mapping[str, Sequence[Any]]


def against(series: Columns) -> go.Figure:
    """Every iteration: observed duration across, predicted upwards, both logarithmic."""
    known = [
        value
        for pair in zip(series["observed"], series["predicted"], strict=True)
        if min(pair) > 0
        for value in pair
    ]
    ends = [min(known) / 1.2, max(known) * 1.2]
    traces = equality(ends, AWAY)
    traces += [
        _points(name, tone, own["observed"], own["predicted"], _HOVER)
        for name, tone, own in by_regime(series)
    ]
    return draw.assemble(
        traces,
        logarithmic("observed", known, "s"),
        logarithmic("predicted", known, "s"),
        showlegend=True,
    )


def over_time(series: Columns) -> go.Figure:
    """Predicted over observed duration, iteration by iteration."""
    traces = []
    for name, tone, own in by_regime(series):
        ratios = [p / o for p, o in zip(own["predicted"], own["observed"], strict=True)]
        traces.append(_points(name, tone, own["start"], ratios, _RATIO_HOVER))
    return draw.assemble(
        traces,
        theme.axis("time since the start", ticksuffix=" s", rangemode="tozero"),
        theme.axis("predicted / observed", type="log", nticks=8),
        showlegend=True,
        shapes=[draw.across(1, "muted", 1, layer="below")],
    )


def by_regime(series: Columns) -> list[tuple[str, theme.Tone, dict[str, list[Any]]]]:
    """Each regime that occurs, its colour and its iterations, thinned to what can be drawn."""
    found = []
    for place, name in enumerate(series["regimes"]):
        mine = [
            index
            for index, regime in enumerate(series["regime"])
            if regime == name and series["observed"][index] > 0 and series["predicted"][index] > 0
        ]
        if not mine:
            continue
        kept = mine[:: -(-len(mine) // MOST_POINTS)]
        columns = {n: [series[n][i] for i in kept] for n in ("start", "observed", "predicted")}
        found.append((name, theme.REGIMES[place % len(theme.REGIMES)], columns))
    return found


_HOVER = "observed %{x:.3~s}s, predicted %{y:.3~s}s"
_RATIO_HOVER = "at %{x:,.4~g} s: %{y:.2f}"


def _points(
    name: str, tone: theme.Tone, x: Sequence[float], y: Sequence[float], hover: str
) -> dict[str, Any]:
    marker = {"size": 5, "opacity": 0.6, "color": tone.light}
    return draw.points(list(x), list(y), marker, name, hover)
