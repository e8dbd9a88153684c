"""Draws a latency over the run: its median and a high percentile, of the requests as they arrived.

The requests are cut, in the order of their arrival, into stretches of equally many; each has a
point at the middle of its arrivals. Where many arrive for a while and none is completed, the line
is broken. Seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.latency_cdf import TITLES, Floats
from reports.frame import draw, theme
from reports.frame.scale import run_axis, run_scale, time_axis
from sim.units import show_time, time_scale

FEWEST = 40
"""Requests of a stretch, so that a percentile of it means something."""

MOST = 100
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
    stretches = min(MOST, len(values) // FEWEST)
    if stretches < 2 or arrivals[0] == arrivals[-1]:
        return None
    lost = np.diff(np.flatnonzero(counted)) - 1
    silent = np.diff(arrivals) >= SILENCE * (arrivals[-1] - arrivals[0])
    breaks = np.flatnonzero((lost >= FEWEST) & silent) + 1
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


def figure(
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
