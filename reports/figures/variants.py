"""Draws how variants compare: their means, how far each is from the base, what each costs.

Differences are ratios to the base with their intervals, in percent or, where they are large, as
multiples on a logarithmic axis. The best variant is on top. By cost and service, what stands up and
left of another variant is better in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import MANY, ROW_HEIGHT, height, labelled, times
from reports.figures.series import label, plain
from reports.frame import draw, theme
from reports.frame.draw import time_axis
from sim.planning.answers.drawings import CostAttained, Differences, Means, VariantName
from sim.units import PER_OUTPUT_TOKENS, time_scale

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


def differences(found: Differences) -> go.Figure:
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


NEAR = 0.05
"""Share of an axis within which two names would lie on each other."""

TO_THE_LEFT = 0.8
"""From this share of the axis on a name stands to the left of its point."""


def cost_attained(found: CostAttained) -> go.Figure:
    """A point for each variant."""
    names = [plain(point.label) for point in found.points]
    points = [(point.x, point.y) for point in found.points]
    lowest = min(share for _, share in points)
    right = TO_THE_LEFT * max(x for x, _ in points)
    trace = draw.points(
        [x for x, _ in points],
        [y for _, y in points],
        {"size": 9, "opacity": 0.7, "color": theme.BLUE.light},
        hover="%{customdata}<br>$%{x:,.4~g}, %{y:.2%}<extra></extra>",
        text=_texts(points, [plain(point.short) for point in found.points]),
        textposition=["top left" if x > right else "top center" for x, _ in points],
        customdata=names,
        cliponaxis=False,
    )
    pad = max(0.02, 0.1 * (1 - lowest))
    share = {"tickformat": ".0%", "range": [max(0.0, lowest - pad), 1 + pad]}
    return draw.assemble(
        [trace],
        theme.axis(PER_OUTPUT_TOKENS, rangemode="tozero"),
        theme.axis("requests within the SLO", **share),
    )


def _texts(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[str]:
    """The name of each point; of points that lie on each other the first has all names.

    >>> _texts([(1.0, 0.5), (1.01, 0.5), (3.0, 0.9)], ["#1", "#2", "#3"])
    [' #1, #2 ', '', ' #3 ']
    """
    widest = max(x for x, _ in points)
    texts = [""] * len(points)
    for at, (x, y) in enumerate(points):
        first = next(
            i
            for i, (left, low) in enumerate(points)
            if abs(x - left) <= NEAR * widest and abs(y - low) <= NEAR
        )
        texts[first] = (
            f"{texts[first].rstrip()}, {names[at]} " if texts[first] else f" {names[at]} "
        )
    return texts
