"""Draws a latency as a cumulative distribution: the share of requests at or below each value.

Percentiles are marked, the latency limit is a dashed line, the share that must meet it a dotted
one; the legend names both. Figures take seconds and show milliseconds, or seconds where the values
are long. The gaps between tokens (ITL) of a whole run are too many for a table, so the run
directory has their distribution at exact points (``charts.json``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.frame import draw, theme
from reports.frame.decimate import ranks
from reports.frame.draw import time_axis
from sim.units import Scale, show_time, time_scale

TITLES: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL", "queue": "Queue time"}
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
    # whether a linear axis would squeeze most of them against its left edge
    wide = 0 < 25 * float(marks[0]) < longest
    log = _logarithmic(curve, float(marks[0]), longest, scale) if longest > 0 else {}
    ends = {"range": [0, longest * scale.factor * 1.05 or 1]}
    shapes = []
    if limit_s is not None:
        name = f"limit {show_time(limit_s)}"
        shapes.append(draw.upright(limit_s * scale.factor, dash="dash", **_named(name)))
    if target is not None and target < 1:
        name = f"{100 * target:.6g} % wanted"
        shapes.append(draw.across(target, "muted", 1, "dot", **_named(name)))
    places = _place(marks, curve.x, limit_s, wide)
    above = any(
        rank > TOP and at > TO_THE_LEFT for rank, at in zip(marked(target), places, strict=True)
    )
    return draw.assemble(
        [_line(shown, metric, scale), _marks(marks, marked(target), places, metric, scale)],
        time_axis(title, scale, rangemode="tozero") | (log if wide else ends),
        theme.axis(
            f"share of {curve.of}",
            range=[0, 1.14 if above else 1.04],  # labels stay below the legend
            tickformat=".0%",
            dtick=0.25,
            fixedrange=True,
        ),
        meta={"log": log} if log else None,
        shapes=shapes,
        showlegend=bool(shapes),
    )


def _named(name: str) -> dict[str, Any]:
    """A line that the legend names, behind the labels of the percentiles."""
    return {"name": name, "showlegend": True, "layer": "below"}


def empty(title: str) -> go.Figure:
    """The figure of a latency called ``title`` without any value."""
    return draw.nothing(
        f"No completed request has a {title}",
        x=theme.axis(title, range=[0, 1], showticklabels=False),
        y=theme.axis("share of requests", range=[0, 1.04], tickformat=".0%"),
    )


def _logarithmic(
    curve: LatencyCurve, median: float, longest: float, scale: Scale
) -> dict[str, Any]:
    """The axis as it is when it is logarithmic: from the fastest on, unless that is so much faster
    than most that it would say nothing (s)."""
    fastest = float(curve.x[curve.x > 0][0]) if (curve.x > 0).any() else longest
    start = max(fastest / 1.2, median / BELOW)
    return labelled(start * scale.factor, longest * 1.15 * scale.factor)


def _line(shown: LatencyCurve, metric: str, scale: Scale) -> draw.Trace:
    return draw.line(
        shown.x.astype(np.float32),
        shown.y.astype(np.float32),
        theme.METRICS[metric].light,
        hover=f"%{{y:.1%}} take at most %{{x:,.4~g}} {scale.unit}<extra></extra>",
        shape=shown.shape,
        showlegend=False,
    )


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


TO_THE_LEFT = 0.6
"""From this share of the width on the label of a percentile stands left of its mark."""

TOP = 92
"""Above this percentile such a label stands over its mark, where no line of a wanted share is."""

WIDE_LABEL = 0.3
"""The width of a label, as a share of the plot of a page on a phone."""


def _marks(
    marks: Floats, ranks: tuple[float, ...], place: Floats, metric: str, scale: Scale
) -> draw.Trace:
    """The percentiles; each label is next to the curve where there is room: of two that would lie
    on each other the higher is left out."""
    texts = [f" p{p:g}  {show_time(seconds)} " for p, seconds in zip(ranks, marks, strict=True)]
    for lower, upper in pairwise(range(len(ranks))):
        beside = abs(place[upper] - place[lower]) > WIDE_LABEL
        if ranks[upper] - ranks[lower] < CLOSE and not beside:
            texts[upper] = ""
    surface = {"color": theme.PAGE["surface"].light, "width": 1.5}
    return draw.points(
        marks * scale.factor,
        np.asarray(ranks) / 100,
        {"size": 8, "color": theme.METRICS[metric].light, "line": surface},
        text=texts,
        textposition=[
            "bottom right" if at <= TO_THE_LEFT else "top left" if rank > TOP else "middle left"
            for rank, at in zip(ranks, place, strict=True)
        ],
        cliponaxis=False,
        showlegend=False,
    )


ITL_TITLE = "ITL"


def itl(
    curve: Mapping[str, Sequence[float]] | None, percentiles: Mapping[int, float | None]
) -> go.Figure:
    """The distribution of the gaps: ``curve`` has ``ms``, ascending, and ``share``.

    ``percentiles`` has the gap (ms) at each of ``MARKS``, as the summary states it. Without any
    gap the figure is empty and says so.
    """
    marks = [percentiles[mark] for mark in MARKS]
    if curve is None or None in marks:
        return empty(ITL_TITLE)
    x = np.asarray(curve["ms"], dtype=float) / 1e3
    y = np.asarray(curve["share"], dtype=float)
    drawn = LatencyCurve(np.append(x[:1], x), np.append(0.0, y), "linear", "gaps")
    return distribution("itl", ITL_TITLE, drawn, np.asarray(marks, dtype=float) / 1e3)


def stated(summary: Mapping[str, Any]) -> dict[int, float | None]:
    """The percentiles of a summary, as ``figure`` takes them."""
    return {mark: summary[f"p{mark}_itl_ms"] for mark in MARKS}
