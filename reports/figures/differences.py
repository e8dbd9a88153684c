"""Draws how variants compare in one metric: their means, and how far each is from the base.

Differences are ratios to the base with their intervals, in percent or, where they are large, as
multiples on a logarithmic axis. The best variant is on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.figures.layout import MANY, ROW_HEIGHT, height, times
from reports.figures.naming import label
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import Differences, Means, VariantName
from sim.units import time_scale

WIDE = 30.0
"""Largest over smallest latency from which on means are drawn on a logarithmic axis."""

ROOM = 1.25
"""How much longer than the longest bar the axis is, for the value behind it."""

LETTERS = 8
"""Letters of a value that this has room for; longer ones take more."""

LINE_HEIGHT = 15
"""Pixels that each further line of a label takes."""

FAR = 3.0
"""A ratio to the base from which on differences are multiples on a logarithmic axis."""


def means(found: Means) -> go.Figure:
    """The mean of every variant that has one, the best on top."""
    bars = found.bars
    values = [bar.value for bar in bars]
    wide = found.timed and min(values, default=1) > 0 < len(values)
    wide = wide and max(values) > WIDE * min(values)
    linear, factor = _linear(found, values)
    factor = 1e-3 if wide else factor
    edges = [_tone(bar.variant).light for bar in bars]
    pale = [theme.faint(_tone(bar.variant)).light for bar in bars]
    over = [bar.variant.overloaded for bar in bars]
    marker = {
        "color": [p if o else edge for p, o, edge in zip(pale, over, edges, strict=True)],
        "line": {"color": edges, "width": 1.5},
    }
    labels = [label(bar.variant.name) for bar in bars]
    shape: draw.Trace = {
        "y": labels,
        "x": [factor * value for value in values],
        "text": [f" {bar.text}" for bar in bars],
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [[_hover(bar.variant), bar.text] for bar in bars],
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
    axis = times(found.title, [*values, beyond**2 * max(values)]) if wide else linear | room
    return draw.assemble([shape], axis, **_rows(labels))


def _linear(found: Means, values: Sequence[float]) -> tuple[dict[str, Any], float]:
    """An axis for the metric, and what its values are multiplied with to be in its unit."""
    if not found.timed:
        return theme.axis(found.head), 1.0
    shown = time_scale(max(values, default=0.0) / 1e3)
    return time_axis(found.title, shown), shown.factor / 1e3


def figure(found: Differences) -> go.Figure:
    """The differences to the base.

    Green is better than the base, red is worse, grey cannot be distinguished from it.
    """
    bars = found.bars
    ratios = [1 + bar.value for bar in bars]
    far = min(ratios, default=0.0) > 0 and max(*ratios, 1 / min(ratios)) >= FAR
    halves = [bar.half for bar in bars]
    labels = [label(bar.variant.name) for bar in bars]
    if far:
        lows = [min(half, 0.999 * ratio) for half, ratio in zip(halves, ratios, strict=True)]
    else:
        lows = halves = [100 * half for half in halves]
    tones = {True: theme.GREEN, False: theme.VERMILLION, None: theme.GREY}
    trace = draw.points(
        ratios if far else [100 * bar.value for bar in bars],
        labels,
        {"size": 9, "color": [tones[bar.better].light for bar in bars]},
        hover="%{customdata[1]} against the base<br>%{customdata[0]}<extra></extra>",
        error_x=draw.spread(lows, halves, theme.GREY.light, width=4),
        customdata=[[_hover(bar.variant), bar.text] for bar in bars],
    )
    if far:
        axis = _multiples(f"{found.title}, times that of the base", ratios)
    else:
        axis = theme.axis(f"{found.title}, difference (%)")
    return draw.assemble([trace], axis, shapes=[draw.upright(int(far))], **_rows(labels))


def _tone(variant: VariantName) -> theme.Tone:
    """Batching policies have the colours that they have everywhere, all others one."""
    return theme.BLUE if variant.policy is None else theme.policy(variant.policy)


def _hover(variant: VariantName) -> str:
    return "<br>".join(map(label, variant.hover))


def _multiples(title: str, ratios: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis around these ratios and 1, with ticks that read as multiples.

    >>> _multiples("Goodput", [0.5, 9.9])["ticktext"]
    ['0.5x', '1x', '2x', '5x', '10x']
    """
    low, high = min(1.0, *ratios) / 1.333, max(1.0, *ratios) * 1.333
    return theme.axis(title) | labelled(low, high, "{:,.10g}x".format, MANY)


def _rows(labels: Sequence[str]) -> dict[str, Any]:
    """The axis of the variants, the first one on top, and the height that it needs."""
    rows = max(len(labels), 1)
    lines = max((each.count("<br>") + 1 for each in labels), default=1)
    # ticks are at names: at positions, Plotly would take 1 for the variant that is called "1"
    ticks = {"tickmode": "array", "tickvals": list(labels), "ticktext": list(labels)}
    return {
        "y": theme.axis(None, type="category", range=[rows - 0.4, -0.6], **ticks),
        "height": height(len(labels), ROW_HEIGHT + LINE_HEIGHT * (lines - 1)),
    }
