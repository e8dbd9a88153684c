"""Draws the distribution of the traffic's lengths, or of the gaps between arrivals, as a histogram.

Values are counted into bins here, so that a page is as small for a million requests as for ten.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from reports.figures.axes import logarithmic
from reports.frame import draw, theme
from reports.frame.decimate import Floats

BINS = 48
"""At most that many bars."""

WIDE = 12.0
"""From this ratio of the largest value to the median on the axis is logarithmic."""


class Bins(NamedTuple):
    """``counts[i]`` values lie in ``edges[i]..edges[i + 1]``, the upper end included only in the
    last; ``is_log``: the edges have equal ratios."""

    edges: Floats
    counts: Floats
    is_log: bool


def binned(values: Floats, *, whole: bool = False) -> Bins:
    """``values``, none negative and at least one, in at most ``BINS`` bins; ``whole`` numbers get
    edges between two of them."""
    low, high, middle = float(values.min()), float(values.max()), float(np.median(values))
    is_log = middle > 0 and high > WIDE * middle
    if is_log:
        lowest = max(float(values[values > 0].min()), high * 1e-6)
        edges = np.geomspace(lowest, high, BINS + 1)
        values = np.maximum(values, lowest)  # zeros are drawn with the smallest
    else:
        edges = np.linspace(low, high, BINS + 1)
    if whole:
        edges = np.unique(np.concatenate([np.floor(edges[:1]), np.ceil(edges[1:-1]), [high + 1]]))
        edges = edges - 0.5
    elif low == high:
        edges = np.array([low * 0.95, low * 1.05]) if low else np.array([0.0, 1.0])
    return Bins(edges, np.histogram(values, bins=edges)[0].astype(np.float64), is_log)


def figure(values: Floats, *, title: str, metric: str, whole: bool = False) -> go.Figure:
    """The histogram of ``values`` under an axis called ``title``, in the colour of ``metric``.

    Of nothing it is empty and says so.
    """
    if not len(values):
        return draw.nothing("No request arrived", x=theme.axis(title, showticklabels=False))
    edges, counts, is_log = binned(values, whole=whole)
    shift = 0.5 if whole else 0.0  # to the numbers that are in a bin
    ends = [f"{_shown(a + shift)} to {_shown(b - shift)}" for a, b in pairwise(edges.tolist())]
    axis = theme.axis(title)
    if is_log:
        ends_of_axis = [float(edges[0]), float(edges[-1])]
        axis = logarithmic(title, ends_of_axis) | {
            "range": np.log10(ends_of_axis).tolist(),
            "tickformat": ",~g",
        }
    surface = {"color": theme.PAGE["surface"].light, "width": 0.5}
    trace: draw.Trace = {
        "type": "bar",
        "x": edges[:-1],
        "offset": 0,
        "y": counts,
        "width": np.diff(edges),
        "customdata": ends,
        "marker": {"color": theme.METRICS[metric].light, "line": surface},
        "hovertemplate": "%{customdata}: %{y:,d}<extra></extra>",
    }
    upwards = theme.axis("requests", rangemode="tozero", fixedrange=True)
    return draw.assemble([trace], axis, upwards, bargap=0)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
