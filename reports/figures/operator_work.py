"""Draws the time of each operator by what bound it, and the roofline of the GPU.

A circle stands for iterations of similar arithmetic intensity; its area is their share of the busy
time, its height their FLOP/s, the host's part of an iteration included. Left of the ridge the
memory bandwidth is the limit, right of it arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10, sqrt
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import logarithmic
from reports.figures.charts import chart
from reports.frame import draw, theme
from sim.metrics.terms.definitions import bound_name
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar

NOT_APART = "not distinguished"
"""The bound of operators of which nothing else is known."""

HOST = "host"


def operator_time(
    shares: Mapping[str, float], operators: Mapping[str, Mapping[str, float]]
) -> go.Figure:
    """The ``shares`` (0..1) of the busy time, by operator, the largest first.

    ``operators`` says how many seconds each was bound by what (``infersim.operators`` of a
    summary); one that is not in it has a bar of one colour.
    """
    bars = []
    for name in sorted(shares, key=lambda name: -shares[name]):
        at = 0.0
        for bound, part in _split(name, shares[name], operators).items():
            title = bound_name(bound)
            text, tone = (
                f"{title}: {part:.2%} of the busy time",
                bound if bound != NOT_APART else "",
            )
            bars.append(ChartBar(name, at + part, text, tone=tone, start=at, part=title))
            at += part
    return chart(BarChart(ChartAxis("share of the busy time", "share"), tuple(bars)))


def _split(
    name: str, share: float, operators: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The share of one operator by what bound it; the parts add up to it."""
    if name == HOST:
        return {HOST: share}
    if name not in operators:
        return {NOT_APART: share}
    seconds = {bound: operators[name][bound] for bound in theme.BOUNDS if bound != HOST}
    total = sum(seconds.values())
    return {bound: share * part / total for bound, part in seconds.items() if part}


LARGEST, SMALLEST = 36.0, 4.0
"""Diameters (px) of the circle with most of the time, and of one with next to none."""

NAMES = {"decode": "decode only", "mixed": "prefill and decode", "prefill": "prefill only"}
"""Kind of iteration -> what the legend calls it."""

Points = list[Mapping[str, Any]]


def roofline(found: Mapping[str, Any] | None) -> go.Figure:
    """The roof of one GPU and the points of a run (``roofline`` of ``charts.json``).

    Points that compute nothing are left out. Without any the figure is empty and says so.
    """
    points = [] if found is None else [point for point in found["points"] if point["flops"] > 0]
    if found is None or not points:
        return draw.nothing("No iteration is known")
    peak, bandwidth = found["peak_flops"], found["bandwidth"]
    ridge = peak / bandwidth
    intensities = [point["flops"] / point["bytes"] for point in points]
    low, high = min(*intensities, ridge) / 2.2, max(*intensities, ridge) * 2.2
    floor = min(point["flops"] / point["seconds"] for point in points) / 2.2
    busy = sum(point["seconds"] for point in points)
    most = max(point["seconds"] for point in points)
    ink, muted = theme.PAGE["ink"].light, theme.PAGE["muted"].light
    traces = [
        draw.line(
            [low, ridge, high],
            [low * bandwidth, peak, peak],
            ink,
            f"roof ({found['precision']}, data sheet)",
            "roof: %{y:.3~s}FLOP/s<extra></extra>",
            width=1.5,
        ),
        draw.line(
            [ridge, ridge],
            [floor, peak],
            muted,
            f"ridge: {ridge:,.0f} FLOP per byte",
            width=1.2,
            dash="dash",
        ),
    ]
    for kind, name in NAMES.items():
        mine = [point for point in points if point["kind"] == kind]
        if mine:
            traces.append(_circles(mine, kind, name, busy, most))
    return draw.assemble(
        traces,
        logarithmic("arithmetic intensity (FLOP per byte)", [low, high])
        | {"range": [log10(low), log10(high)]},
        logarithmic("FLOP/s of one GPU", [floor, peak])
        | {"range": [log10(floor), log10(peak * 2.2)]},
        showlegend=True,
        legend={"itemsizing": "constant"},
    )


def _circles(points: Points, kind: str, name: str, busy: float, most: float) -> dict[str, Any]:
    sizes = [max(SMALLEST, LARGEST * sqrt(point["seconds"] / most)) for point in points]
    circle = {"opacity": 0.65, "line": {"color": theme.PAGE["surface"].light, "width": 1}}
    return draw.points(
        [point["flops"] / point["bytes"] for point in points],
        [point["flops"] / point["seconds"] for point in points],
        {"size": sizes, "color": theme.ITERATIONS[kind].light, **circle},
        name,
        f"{name}: %{{x:.3~g}} FLOP per byte, %{{y:.3~s}}FLOP/s<br>%{{customdata[0]:.2%}} of "
        "the busy time, %{customdata[1]:,.0f} iterations of %{customdata[2]:,.3~g} ms"
        "<extra></extra>",
        customdata=[
            [
                point["seconds"] / busy,
                point["iterations"],
                1e3 * point["seconds"] / point["iterations"],
            ]
            for point in points
        ],
        cliponaxis=False,
    )
