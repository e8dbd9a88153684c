"""Draws one run of each variant of a comparison over each other.

Distributions of a latency, and how many requests run or wait over time. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.axes import times
from reports.figures.latency_cdf import TITLES, sample
from reports.figures.series import Style, plain
from reports.figures.steps import fleet_steps
from reports.frame import draw, theme
from reports.frame.decimate import ranks
from reports.frame.draw import run_axis, run_scale
from sim.results.trail_files import Trail
from sim.units import Scale

POINTS = 400
"""Points of each line."""

FEW = 5
"""Most requests of an axis that has a label for each number of them."""


class DrawnVariant(NamedTuple):
    """One run of a variant, and how its lines look."""

    label: str
    style: Style
    batching: str
    requests: pd.DataFrame
    timeseries: pd.DataFrame
    trail: Trail | None
    fleet: Mapping[str, Any] | None = None
    """Its pools over time, where they are several or scaled (``charts.json``)."""
    replicas: float = 0.0
    """Of a fleet without that."""


def held(variants: Sequence[DrawnVariant]) -> go.Figure | None:
    """Replicas held over time, all pools together; None unless a variant's number changes."""
    traces, end, changes = [], max((_end(each) for each in variants), default=0.0), False
    shown = run_scale(end)
    for each in variants:
        edges, values = [0.0, _end(each)], [each.replicas]
        if each.fleet is not None:
            edges = [float(edge) for edge in each.fleet["edges"]]
            values = np.sum([pool["held"] for pool in each.fleet["pools"]], axis=0).tolist()
        changes |= len(set(values)) > 1
        hover = f"%{{y:,.3~g}} replicas at {_at(shown)}"
        traces.append(_line(each, _in(shown, edges), [*values, values[-1]], hover))
    if not changes:
        return None
    return _over_time(traces, shown, end, theme.axis("replicas held", rangemode="tozero"))


def _over_time(
    traces: Sequence[draw.Trace], shown: Scale, end: float, axis: Mapping[str, Any]
) -> go.Figure:
    until = run_axis(shown) | {"range": [0, end * shown.factor]}
    return draw.assemble(traces, until, axis, showlegend=True)


def distributions(
    variants: Sequence[DrawnVariant], metric: str, limit_s: float | None = None
) -> go.Figure | None:
    """The share of requests at or below each value of ``metric`` (a key of ``TITLES``), a line for
    each variant, on a logarithmic axis; None without a value above 0."""
    samples = [(each, sample(each.requests, metric)) for each in variants]
    samples = [(each, values[values > 0]) for each, values in samples]
    samples = [(each, values) for each, values in samples if values.size]
    if not samples:
        return None
    traces = []
    for each, values in samples:
        drawn = ranks(values.size, POINTS)
        x, y = values[drawn].tolist(), ((drawn + 1) / values.size).tolist()
        traces.append(_line(each, x, y, "%{y:.1%} within %{x:.3~s}s<extra></extra>"))
    ends = [1e3 * float(value) for _, values in samples for value in (values[0], values[-1])]
    ends += [] if limit_s is None else [1e3 * limit_s]
    return draw.assemble(
        traces,
        times(TITLES[metric], ends),
        theme.axis("share of requests", range=[0, 1.02], tickformat=".0%"),
        shapes=[] if limit_s is None else [draw.upright(limit_s, "muted", 1, "dash")],
        showlegend=True,
    )


def levels(variants: Sequence[DrawnVariant], name: str) -> go.Figure | None:
    """How many requests are ``running`` or ``waiting`` in the whole fleet over time; None where
    nothing ran."""
    traces, end = [], max((_end(each) for each in variants), default=0.0)
    shown = run_scale(end)
    for each in variants:
        found = fleet_steps(each.timeseries, each.requests)
        if not found.time.size:
            continue
        at = np.linspace(0.0, _end(each), POINTS)
        place = np.maximum(np.searchsorted(found.time, at, side="right") - 1, 0)
        hover = f"%{{y:,}} {name} at {_at(shown)}"
        y = found.levels[name][place].tolist()
        traces.append(_line(each, _in(shown, at.tolist()), y, hover))
    if not traces:
        return None
    few = all(max(trace["y"], default=0) <= FEW for trace in traces)
    whole = {"tickformat": ",d"} | ({"dtick": 1} if few else {})
    axis = theme.axis(f"requests {name}", rangemode="tozero", **whole)
    return _over_time(traces, shown, end, axis)


def _in(shown: Scale, seconds: Sequence[float]) -> list[float]:
    return [second * shown.factor for second in seconds]


def _at(shown: Scale) -> str:
    """The end of a hover: when."""
    return f"%{{x:,.4~g}} {shown.unit}<extra></extra>"


def _end(each: DrawnVariant) -> float:
    return float(each.timeseries["end_s"].max()) if len(each.timeseries) else 0.0


def _line(each: DrawnVariant, x: Sequence[float], y: Sequence[float], hover: str) -> draw.Trace:
    name, style = plain(each.label), each.style
    look = {"dash": style.dash, "shape": "hv"}
    return draw.line(x, y, style.color, name, f"{name}: {hover}", **look)
