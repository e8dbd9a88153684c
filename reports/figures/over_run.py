"""Draws latencies over the run, by the length of the prompt, and as a heat map.

For a course the requests are cut, in the order of their arrival, into stretches of equally many;
each has a point at the middle of its arrivals. Where many arrive for a while and none is completed,
the line is broken. A heat map shows whether it is all requests that change, or some. Seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.figures.latency_cdf import TITLES, Floats
from reports.frame import draw, theme
from reports.frame.draw import run_axis, run_scale, time_axis
from sim.units import show_time, time_scale

FEWEST_OF_STRETCH = 40
"""Requests of a stretch, so that a percentile of it means something."""

MOST_STRETCHES = 100
"""Stretches of a run."""

SILENCE = 1 / 30
"""Share of the run without a completed request from which on the line is broken, if as many as a
stretch has arrived meanwhile."""


class LatencyCourse(NamedTuple):
    """For each stretch of ``size`` requests: the middle of the arrivals, the median and the other
    percentile of the latency; NaN between two stretches that a line must not join."""

    size: int
    at: Floats
    median: Floats
    high: Floats


def course(requests: pd.DataFrame, metric: str, percentile: float) -> LatencyCourse | None:
    """The stretches of the completed requests, warm-up included; None for fewer than two."""
    ordered = requests.sort_values("arrival_s", kind="stable")
    times = ordered[f"{metric}_s"].to_numpy(float)
    counted = (ordered["status"] == "completed").to_numpy() & np.isfinite(times)
    values, arrivals = times[counted], ordered["arrival_s"].to_numpy(float)[counted]
    stretches = min(MOST_STRETCHES, len(values) // FEWEST_OF_STRETCH)
    if stretches < 2 or arrivals[0] == arrivals[-1]:
        return None
    lost = np.diff(np.flatnonzero(counted)) - 1
    silent = np.diff(arrivals) >= SILENCE * (arrivals[-1] - arrivals[0])
    breaks = np.flatnonzero((lost >= FEWEST_OF_STRETCH) & silent) + 1
    size = -(-len(values) // stretches)
    rows: list[tuple[float, float, float]] = []
    for joined in np.split(np.arange(len(values)), breaks):
        if rows:
            rows.append((arrivals[joined[0]], np.nan, np.nan))
        for part in np.array_split(joined, -(-len(joined) // size)):
            middle = (arrivals[part[0]] + arrivals[part[-1]]) / 2
            rows.append((middle, *np.percentile(values[part], (50, percentile))))
    at, median, high = np.array(rows).T
    return LatencyCourse(size, at, median, high)


def latency_over_time(
    found: LatencyCourse, metric: str, percentile: float, *, limit_s: float | None = None
) -> go.Figure:
    """The course of ``metric`` with its limit, if there is one."""
    shown = time_scale(float(np.nanmax(found.high)))
    arrived = run_scale(float(found.at[-1]))
    at = found.at * arrived.factor
    tone = theme.METRICS[metric]
    shapes = []
    if limit_s is not None:
        name, at_limit = f"limit {show_time(limit_s)}", limit_s * shown.factor
        shapes.append(draw.across(at_limit, width=1, dash="dash", name=name, showlegend=True))
    traces = [
        _line(f"p{percentile:.6g}", at, found.high * shown.factor, tone, shown.unit),
        _line("p50", at, found.median * shown.factor, tone, shown.unit) | {"opacity": 0.45},
    ]
    return draw.assemble(
        traces,
        run_axis(arrived, "arrival"),
        time_axis(TITLES[metric], shown, rangemode="tozero"),
        hovermode="x unified",
        showlegend=True,
        shapes=shapes,
    )


def _line(name: str, x: Floats, y: Floats, tone: theme.Tone, unit: str) -> draw.Trace:
    values = [None if np.isnan(value) else value for value in y.round(3).tolist()]
    hover = f"%{{y:,.4g}} {unit}"
    return draw.line(x.round(3).tolist(), values, tone.light, name, hover, width=1.8)


MOST = 600
"""Points: every n-th request by its TTFT, the slowest always."""

SLOWEST = 100


def drawn(requests: pd.DataFrame) -> pd.DataFrame:
    """The completed requests that have a point, the slowest last."""
    ordered = _answered(requests).sort_values("ttft_s", kind="stable")
    rest = max(len(ordered) - SLOWEST, 0)
    some: pd.DataFrame = ordered.iloc[: rest : _step(len(ordered))]
    slowest: pd.DataFrame = ordered.iloc[rest:]
    return pd.concat([some, slowest])


def caption(requests: pd.DataFrame) -> str:
    """Which requests have a point."""
    step = _step(len(_answered(requests)))
    if step == 1:
        return "Every request."
    return f"One of {step:,} requests, in the order of their TTFT, and the slowest {SLOWEST}."


def _answered(requests: pd.DataFrame) -> pd.DataFrame:
    done = requests[(requests["status"] == "completed") & ~requests["warmup"].astype(bool)]
    answered: pd.DataFrame = done[np.isfinite(done["ttft_s"])]
    return answered


def _step(count: int) -> int:
    """The number of requests for each one that has a point."""
    return max(1, -(-(count - SLOWEST) // (MOST - SLOWEST)))


def ttft_by_prompt(requests: pd.DataFrame, *, limit_s: float | None = None) -> go.Figure:
    """A point for each request of ``drawn``, at least one; its parts are under the pointer."""
    points = drawn(requests)
    queue_ms = np.nan_to_num(points["queue_s"].to_numpy(float) * 1e3).round(2)
    shown = time_scale(float(points["ttft_s"].max()))
    trace = draw.points(
        points["prompt_tokens"].tolist(),
        (points["ttft_s"] * shown.factor).round(3).tolist(),
        {"size": 4, "opacity": 0.6, "color": theme.METRICS["ttft"].light},
        hover=f"request %{{customdata[0]:,d}}: %{{x:,d}} tokens, %{{y:,.4g}} {shown.unit}, "
        "of which %{customdata[1]:,.4g} ms in the queue<extra></extra>",
        customdata=list(zip(points["request_id"].tolist(), queue_ms.tolist(), strict=True)),
    )
    at = [] if limit_s is None else [limit_s * shown.factor]
    return draw.assemble(
        [trace],
        theme.axis("prompt (tokens)", rangemode="tozero", tickformat=",d"),
        time_axis("TTFT", shown, rangemode="tozero"),
        shapes=[draw.across(limit, width=1, dash="dash") for limit in at],
    )


COLUMNS, ROWS = 60, 24
"""Stretches of time, and of values by their logarithm."""

SHADES = ((0, 0), (0.3, 2), (1, 6))
"""Shares of the most requests in a field, and their places in the ramp of colours."""

FEWEST = 400
"""Requests that fill enough fields to see a shape."""


def density(arrivals: Floats, values: Floats, title: str, unit: str) -> go.Figure:
    """How many of the requests that arrived at these times (s) have these ``values``, above 0;
    ``title`` names them, with their ``unit``."""
    shown = run_scale(float(arrivals.max()))
    times = np.linspace(0.0, float(arrivals.max()), COLUMNS + 1)
    low, high = float(values.min()), float(values.max())
    edges = np.geomspace(low, max(high, 1.1 * low), ROWS + 1)
    edges[[0, -1]] = low, max(high, 1.1 * low)  # as they are: the others are rounded
    counts = np.histogram2d(values, arrivals, bins=(edges, times))[0].astype(int)
    trace = {
        "type": "heatmap",
        "x": (times * shown.factor).round(3).tolist(),
        "y": [float(f"{edge:.4g}") for edge in edges],
        "z": [[count or None for count in row] for row in counts.tolist()],
        "colorscale": [[share, theme.RAMP[place].light] for share, place in SHADES],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"%{{z:,d}} requests of about %{{y:,.3~g}} {unit}, at %{{x:,.3~g}} "
        f"{shown.unit}<extra></extra>",
    }
    return draw.assemble(
        [trace],
        run_axis(shown, "arrival"),
        theme.axis(f"{title} ({unit})") | labelled(float(edges[0]), float(edges[-1])),
    )
