"""Draws how variants compare in one metric: their means, and how far each is from the base.

Differences are ratios to the base with their intervals, in percent or, where they are large, as
multiples on a logarithmic axis. The best variant is on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

import plotly.graph_objects as go

from reports.figures import variants
from reports.figures.layout import times, zero
from reports.frame import theme
from reports.frame.scale import time_axis, time_scale
from sim.planning.contrast.compare_words import change, head, with_unit

WIDE = 30.0
"""Largest over smallest latency from which on means are drawn on a logarithmic axis."""

ROOM = 1.25
"""How much longer than the longest bar the axis is, for the value behind it."""

LETTERS = 8
"""Letters of a value that this has room for; longer ones take more."""

FAR = 3.0
"""A ratio to the base from which on differences are multiples on a logarithmic axis."""


def means(document: Mapping[str, Any], key: str) -> go.Figure:
    """The mean of the metric called ``key`` of every variant that has one, the best on top."""
    found = _entry(document, key)
    rows = variants.best_first(found, found["means"])
    values = [found["means"][index] for index in rows]
    wide = found["unit"] == "ms" and min(values, default=1) > 0 < len(values)
    wide = wide and max(values) > WIDE * min(values)
    linear, factor = _linear(found, values)
    factor = 1e-3 if wide else factor
    labels = [variants.names(document)[index] for index in rows]
    tones, edges = variants.tones(document), variants.edges(document)
    marker = {
        "color": [tones[index] for index in rows],
        "line": {"color": [edges[index] for index in rows], "width": 1.5},
    }
    shape: dict[str, Any] = {
        "y": labels,
        "x": [factor * value for value in values],
        "text": [f" {with_unit(found, found['means'][index])}" for index in rows],
        "textfont": {"color": theme.PAGE["ink"].light, "size": 11},
        "cliponaxis": False,
        "customdata": [
            [variants.hover(document, found, index), with_unit(found, found["means"][index])]
            for index in rows
        ],
        "hovertemplate": "%{customdata[1]}<br>%{customdata[0]}<extra></extra>",
    }
    if wide:  # a bar on a logarithmic axis would begin nowhere
        shape |= {"type": "scatter", "mode": "markers+text", "marker": marker | {"size": 13}}
        shape |= {"textposition": "middle right"}
    else:
        shape |= {"type": "bar", "orientation": "h", "width": 0.6, "marker": marker}
        shape |= {"textposition": "outside", "constraintext": "none"}
    longest = max((len(text) for text in shape["text"]), default=0)
    beyond = 1 + (ROOM - 1) * max(1.0, longest / LETTERS)
    room = {"range": [0, beyond * factor * max(values, default=1.0)]}
    axis = times(found["title"], [*values, beyond**2 * max(values)]) if wide else linear | room
    return go.Figure(data=[shape], layout=_layout(labels) | {"xaxis": axis})


def _linear(found: Mapping[str, Any], values: Sequence[float]) -> tuple[dict[str, Any], float]:
    """An axis for the metric, and what its values are multiplied with to be in its unit."""
    if found["unit"] != "ms":
        return theme.axis(head(found)), 1.0
    shown = time_scale(max(values, default=0.0) / 1e3)
    return time_axis(found["title"], shown), shown.factor / 1e3


def figure(document: Mapping[str, Any], key: str) -> go.Figure:
    """The differences of the metric called ``key`` (of the document's ``figures``).

    Green is better than the base, red is worse, grey cannot be distinguished from it.
    """
    found = _entry(document, key)
    parts = [None if each is None else each["relative"] for each in found["differences"]]
    rows = variants.best_first(found, parts)
    apart = [found["differences"][index] for index in rows]
    ratios = [1 + each["relative"] for each in apart]
    far = min(ratios, default=0.0) > 0 and max(*ratios, 1 / min(ratios)) >= FAR
    halves = [each["relative_half_width"] or 0.0 for each in apart]
    labels = [variants.names(document)[index] for index in rows]
    bars = {"type": "data", "color": theme.GREY.light, "thickness": 1.5, "width": 4}
    if far:
        lows = [min(half, 0.999 * ratio) for half, ratio in zip(halves, ratios, strict=True)]
        bars |= {"symmetric": False, "array": halves, "arrayminus": lows}
    else:
        bars |= {"array": [100 * half for half in halves]}
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": ratios if far else [100 * each["relative"] for each in apart],
        "y": labels,
        "marker": {"size": 9, "color": [_colour(each, found["better"]) for each in apart]},
        "error_x": bars,
        "customdata": [
            [variants.hover(document, found, index), change(found["differences"][index])]
            for index in rows
        ],
        "hovertemplate": "%{customdata[1]} against the base<br>%{customdata[0]}<extra></extra>",
    }
    if far:
        axis = _multiples(f"{found['title']}, times that of the base", ratios)
        lines = [zero() | {"x0": 1, "x1": 1}]
    else:
        axis, lines = theme.axis(f"{found['title']}, difference (%)"), [zero()]
    layout = _layout(labels) | {"xaxis": axis, "shapes": lines}
    return go.Figure(data=[trace], layout=layout)


def _multiples(title: str, ratios: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis around these ratios and 1, with ticks that read as multiples.

    >>> _multiples("Goodput", [0.5, 9.9])["ticktext"]
    ['0.5x', '1x', '2x', '5x', '10x']
    """
    low, high = log10(min(1.0, *ratios) / 1.333), log10(max(1.0, *ratios) * 1.333)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    ticks = [step * 10.0**n for n in range(floor(low), ceil(high) + 1) for step in steps]
    shown = [tick for tick in ticks if low <= log10(tick) <= high]
    return theme.axis(title) | {
        "type": "log",
        "range": [low, high],
        "tickvals": shown,
        "ticktext": [f"{tick:,.10g}x" for tick in shown],
    }


def _entry(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = next(each for each in document["figures"] if each["key"] == key)
    return entry


def _layout(labels: Sequence[str]) -> dict[str, Any]:
    rows = max(len(labels), 1)
    upwards = {"type": "category", "range": [rows - 0.4, -0.6]}  # the first one on top
    # ticks are at names: at positions, Plotly would take 1 for the variant that is called "1"
    return theme.layout() | {
        "height": variants.tall(labels),
        "yaxis": theme.axis(None)
        | upwards
        | {"tickmode": "array", "tickvals": list(labels), "ticktext": list(labels)},
        "hovermode": "closest",
    }


def _colour(apart: Mapping[str, Any], better: str | None) -> str:
    if not apart["certain"] or better is None:
        return theme.GREY.light
    good = (apart["mean"] > 0) == (better == "higher")
    return (theme.GREEN if good else theme.VERMILLION).light
