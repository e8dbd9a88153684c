"""Draws one latency as a cumulative distribution: the share of requests at or below each value.

Percentiles are marked, the latency limit is a dashed line, the share that must meet it a dotted
one. The figure takes seconds and shows milliseconds, or seconds where the values are long.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.frame import theme
from reports.frame.decimate import ranks
from reports.frame.scale import time_axis
from sim.units import Scale, show_time, time_scale

TITLES: Mapping[str, str] = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "e2el": "E2EL",
    "queue": "Queue time",
}
"""The latencies that a request has; ``<name>_s`` is the column."""

MARKS = (50, 90, 99)

CLOSE = 7
"""Percentiles that are closer have labels that touch."""

BELOW = 30.0
"""How far below the median a logarithmic axis begins, as a ratio."""

POINTS = 800

Floats = npt.NDArray[np.float64]


def sample(requests: pd.DataFrame, metric: str) -> Floats:
    """The latency of every completed request after the warm-up, ascending, in seconds."""
    counted = (requests["status"] == "completed") & ~requests["warmup"].astype(bool)
    values = requests.loc[counted, f"{metric}_s"].to_numpy(float)
    return np.sort(values[np.isfinite(values)])


def figure(
    requests: pd.DataFrame,
    metric: str,
    *,
    limit_s: float | None = None,
    target: float | None = None,
) -> go.Figure:
    """The distribution of ``metric`` (a key of ``TITLES``) over completed requests.

    ``limit_s`` is the latency limit in seconds, if there is one, and ``target`` the share of
    requests that must keep it. Without any request the figure is empty and says so. KeyError for an
    unknown metric.
    """
    title = TITLES[metric]
    values = sample(requests, metric)
    if not values.size:
        return empty(title)
    drawn = ranks(values.size, POINTS)
    x = np.concatenate([values[:1], values[drawn]])
    y = np.concatenate([[0.0], (drawn + 1) / values.size])
    marks = np.percentile(values, marked(target))
    return distribution(metric, title, LatencyCurve(x, y, "hv", "requests"), marks, limit_s, target)


def marked(target: float | None) -> tuple[float, ...]:
    """The percentiles that are marked: ``MARKS``, and that of the ``target`` in the place of the
    nearest of them.

    >>> marked(None), marked(0.95), marked(0.99), marked(0.5)
    ((50, 90, 99), (50, 95.0, 99), (50, 90, 99), (50, 90, 99))
    """
    if target is None:
        return MARKS
    wanted = float(f"{100 * target:.9g}")
    nearest = min(MARKS, key=lambda mark: abs(mark - wanted))
    if nearest == 99 and wanted != 99:
        nearest = 90  # the tail stays
    return tuple(sorted({*MARKS, wanted} - ({nearest} - {wanted})))


class LatencyCurve(NamedTuple):
    """A distribution function: at most ``x`` seconds (ascending) take the share ``y``, drawn in
    steps (``hv``) or between exact points (``linear``); ``of`` says what is counted."""

    x: Floats
    y: Floats
    shape: str
    of: str


def distribution(
    metric: str,
    title: str,
    curve: LatencyCurve,
    marks: Floats,
    limit_s: float | None = None,
    target: float | None = None,
) -> go.Figure:
    """``curve`` in the colour of ``metric``, its percentiles ``marked(target)`` (``marks``, s), its
    limit and the share ``target`` that must keep it."""
    longest = max(limit_s or 0.0, float(curve.x[-1]))
    scale = time_scale(longest)
    shown = curve._replace(x=curve.x * scale.factor)
    limit = None if limit_s is None else limit_s * scale.factor
    wide = _is_wide(float(marks[0]), longest)
    layout = theme.layout() | {
        "xaxis": time_axis(title, scale) | {"rangemode": "tozero"},
        "yaxis": theme.axis(f"share of {curve.of}")
        | {"range": [0, 1.04], "tickformat": ".0%", "dtick": 0.25, "fixedrange": True},
        "hovermode": "closest",
    }
    if longest > 0:
        layout["meta"] = {"log": _logarithmic(curve, float(marks[0]), longest, scale)}
    layout["xaxis"] |= (
        layout["meta"]["log"] if wide else {"range": [0, longest * scale.factor * 1.05 or 1]}
    )
    at = marks * scale.factor
    traces = [_line(shown, metric, scale)]
    if limit is not None:
        place = float(_place(np.array([limit]), shown.x, limit, wide)[0])
        traces.append(_limit(limit, scale, place, _label_height(shown, limit, place, target, wide)))
    places = _place(at, shown.x, limit, wide)
    if target is not None and target < 1:
        layout["shapes"] = [_wanted(target)]
        along = _place(shown.x, shown.x, limit, wide)
        stands = None if limit is None else place
        layout["annotations"] = [_wanted_label(target, _free_start(along, shown.y, places, stands))]
    traces.append(_marks(at, marked(target), places, metric, scale))
    return go.Figure(data=traces, layout=layout)


def empty(title: str) -> go.Figure:
    """The figure of a latency called ``title`` without any value."""
    layout = theme.layout() | {
        "xaxis": theme.axis(title) | {"range": [0, 1], "showticklabels": False},
        "yaxis": theme.axis("share of requests") | {"range": [0, 1.04], "tickformat": ".0%"},
        "annotations": [_nothing(title)],
    }
    return go.Figure(layout=layout)


def _is_wide(median: float, longest: float) -> bool:
    """Whether a linear axis would squeeze most of them against its left edge."""
    return median > 0 and longest > 25 * median


def _logarithmic(
    curve: LatencyCurve, median: float, longest: float, scale: Scale
) -> dict[str, Any]:
    """The axis as it is when it is logarithmic: from the fastest on, unless that is so much faster
    than most that it would say nothing (s)."""
    fastest = float(curve.x[curve.x > 0][0]) if (curve.x > 0).any() else longest
    start = max(fastest / 1.2, median / BELOW)
    return labelled(start * scale.factor, longest * 1.15 * scale.factor)


def _line(shown: LatencyCurve, metric: str, scale: Scale) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": shown.x.astype(np.float32),
        "y": shown.y.astype(np.float32),
        "line": {"shape": shown.shape, "color": theme.METRICS[metric].light, "width": 2},
        "hovertemplate": f"%{{y:.1%}} take at most %{{x:,.4~g}} {scale.unit}<extra></extra>",
    }


def _place(x: Floats, shown: Floats, limit: float | None, wide: bool) -> Floats:
    """Where ``x`` stands between the left (0) and the right (1) end of the time axis."""
    right = max(float(shown[-1]), limit or 0.0)
    if right <= 0:
        return np.zeros_like(x)
    if not wide:
        return x / right
    left = max(min(float(shown[0]), limit or right), right * 1e-6)
    span = float(np.log(right / left))
    place: Floats = np.log(np.maximum(x, left) / left) / (span or 1.0)
    return place


def _wanted(target: float) -> dict[str, Any]:
    """A dotted line at the share that must keep the limit."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": target,
        "y1": target,
        "line": {"color": theme.PAGE["muted"].light, "width": 1, "dash": "dot"},
    }


STARTS = (0.0, *(start / 100 for start in range(78, 20, -3)))
"""Where the label of the target may begin, as shares of the width."""


def _free_start(along: Floats, shares: Floats, marks: Floats, limit: float | None) -> float:
    """Where the label below the line of the target, as wide as ``LABEL``, meets neither the curve
    (``shares`` at the places ``along``), nor the labels of the percentiles, nor the limit's line;
    the left edge where that cannot be. Places are shares of the width."""
    width, _ = LABEL
    for start in STARTS:
        end = start + width
        low, high = np.interp((start, end), along, shares, left=0.0, right=1.0)
        crossed = low < 1 and high > HIGH  # it rises through the label
        labels = [(at - MARKED, at) if at > TO_THE_LEFT else (at, at + MARKED) for at in marks[1:]]
        struck = any(start < right and left < end for left, right in labels)
        struck |= limit is not None and start - 0.02 < limit < end + 0.02
        if not struck and not (crossed and low < TOP):
            return start
    return 0.0


MARKED = 0.34
"""Width of the label of a percentile, with its distance, as a share of a plot of that size."""

HIGH, TOP = 0.8, 0.999
"""Shares of requests between which the label of the target stands, whatever the target is."""

TO_THE_LEFT = 0.6
"""From this share of the width on the label of a percentile stands left of its mark."""


def _wanted_label(target: float, start: float) -> dict[str, Any]:
    return {
        "xref": "paper",
        "x": start,
        "y": target,
        "text": f"{100 * target:.6g} % wanted",
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "top",
        "font": {"color": theme.PAGE["muted"].light, "size": 11},
    }


def _marks(
    x: Floats, ranks: tuple[float, ...], place: Floats, metric: str, scale: Scale
) -> dict[str, Any]:
    """The percentiles; each label is next to the curve where there is room: of two that would lie
    on each other the higher is left out."""
    texts = [f" p{p:g}  {show_time(v / scale.factor)} " for p, v in zip(ranks, x, strict=True)]
    for lower, upper in pairwise(range(len(ranks))):
        beside = abs(place[upper] - place[lower]) > LABEL[0] + 0.05
        if ranks[upper] - ranks[lower] < CLOSE and not beside:
            texts[upper] = ""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": x,
        "y": np.asarray(ranks) / 100,
        "text": texts,
        "textposition": ["top left" if p > TO_THE_LEFT else "bottom right" for p in place],
        "textfont": {"color": theme.PAGE["ink"].light, "size": 12},
        "cliponaxis": False,
        "marker": {
            "size": 8,
            "color": theme.METRICS[metric].light,
            "line": {"color": theme.PAGE["surface"].light, "width": 1.5},
        },
        "hoverinfo": "skip",
    }


HEIGHTS = tuple(share / 20 for share in range(1, 20))
"""Where the label of a limit may stand, as shares of requests."""

LABEL = (0.25, 0.05)
"""Width and half the height of a label, as shares of the plot of a page on a phone."""


def _label_height(
    shown: LatencyCurve, limit: float, place: float, target: float | None, wide: bool
) -> float:
    """A share at which the label of a limit meets neither the curve nor the line of the ``target``
    with its own label below it, the lowest: labels of percentiles are higher."""
    width, half = LABEL
    at_left = _label_is_right(place)
    ends = (place, place + width) if at_left else (place - width, place)
    along = _place(shown.x, shown.x, limit, wide)
    low, high = np.interp(ends, along, shown.y, left=0.0, right=1.0)
    taken = [(float(low), float(high))]
    if target is not None and target < 1:
        taken.append((target - (2 * half if ends[0] < width else 0.0), target))
    free = [
        height
        for height in HEIGHTS
        if all(height + half < below or height - half > above for below, above in taken)
    ]
    return free[0] if free else 0.95 if at_left else 0.05


def _label_is_right(place: float) -> bool:
    """Whether the label of a limit at ``place`` stands right of it: there is more room."""
    return place < 0.4


def _limit(limit: float, scale: Scale, place: float, height: float) -> dict[str, Any]:
    """A dashed line; its label is next to it at ``height``, where nothing else is."""
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": [limit, limit, limit],
        "y": [0, height, 1.04],
        "text": ["", f" limit {show_time(limit / scale.factor)} ", ""],
        "textposition": "middle right" if _label_is_right(place) else "middle left",
        "textfont": {"color": theme.PAGE["muted"].light, "size": 12},
        "line": {"color": theme.PAGE["ink"].light, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _nothing(title: str) -> dict[str, Any]:
    return {
        "text": f"No completed request has a {title}",
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "font": {"color": theme.PAGE["muted"].light},
    }
