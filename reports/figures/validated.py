"""Draws an observed run against its prediction: errors, iterations, latencies, timelines.

Latencies are given in seconds and shown in milliseconds, or seconds where they are long. Panels of
the timelines, top to bottom: requests running, requests waiting, KV cache, output tokens per
second. The KV cache is left out where the record has no data on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from reports.figures.axes import equality, labelled, logarithmic
from reports.figures.charts import chart
from reports.figures.latency_cdf import POINTS
from reports.figures.steps import fleet_steps, nice_width, token_rates
from reports.figures.timeline import BINS, BUCKETS, Panel, stacked
from reports.frame import draw, theme
from reports.frame.decimate import Floats, extremes, ranks
from reports.frame.draw import time_axis
from reports.frame.run_directory import Frames
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar, Mark
from sim.planning.answers.validated import ErrorRow
from sim.units import Scale, time_scale


def all_errors(rows: Sequence[tuple[str, ErrorRow]], band: float | None) -> go.Figure:
    """``rows`` are metrics by name; the ends of the ``band`` are dashed. It is around the predicted
    value, an error is relative to the observed one."""
    bars = []
    for title, row in rows:
        inside = row.within_band is not False
        part, tone = ("within the band", "all") if inside else ("outside the band", "bad")
        bars.append(ChartBar(title, row.error, f"{title}: {row.error:+.1%}", tone=tone, part=part))
    ends = () if band is None else (1 / (1 + band) - 1, 1 / (1 - min(band, 0.9)) - 1)
    marks = (Mark(0.0, dash="solid"), *map(Mark, ends))
    return chart(BarChart(ChartAxis("error", "share"), tuple(bars), marks, dots=True))


MOST_POINTS = 1500
"""So many iterations of a regime are drawn; of more, evenly spaced ones."""

AWAY = 1.2
"""The dotted lines are this ratio away from equality."""

Columns = Mapping[str, Sequence[Any]]


def against(series: Columns) -> go.Figure:
    """Every iteration: observed duration across, predicted upwards, both logarithmic."""
    known = [
        value
        for pair in zip(series["observed"], series["predicted"], strict=True)
        if min(pair) > 0
        for value in pair
    ]
    ends = [min(known) / 1.2, max(known) * 1.2]
    traces = equality(ends, AWAY)
    traces += [
        _points(name, tone, own["observed"], own["predicted"], _HOVER)
        for name, tone, own in by_regime(series)
    ]
    return draw.assemble(
        traces,
        logarithmic("observed", known, "s"),
        logarithmic("predicted", known, "s"),
        showlegend=True,
    )


def over_time(series: Columns) -> go.Figure:
    """Predicted over observed duration, iteration by iteration."""
    traces = []
    for name, tone, own in by_regime(series):
        ratios = [p / o for p, o in zip(own["predicted"], own["observed"], strict=True)]
        traces.append(_points(name, tone, own["start"], ratios, _RATIO_HOVER))
    return draw.assemble(
        traces,
        theme.axis("time since the start", ticksuffix=" s", rangemode="tozero"),
        theme.axis("predicted / observed", type="log", nticks=8),
        showlegend=True,
        shapes=[draw.across(1, "muted", 1, layer="below")],
    )


def by_regime(series: Columns) -> list[tuple[str, theme.Tone, dict[str, list[Any]]]]:
    """Each regime that occurs, its colour and its iterations, thinned to what can be drawn."""
    found = []
    for place, name in enumerate(series["regimes"]):
        mine = [
            index
            for index, regime in enumerate(series["regime"])
            if regime == name and series["observed"][index] > 0 and series["predicted"][index] > 0
        ]
        if not mine:
            continue
        kept = mine[:: -(-len(mine) // MOST_POINTS)]
        columns = {n: [series[n][i] for i in kept] for n in ("start", "observed", "predicted")}
        found.append((name, theme.REGIMES[place % len(theme.REGIMES)], columns))
    return found


_HOVER = "observed %{x:.3~s}s, predicted %{y:.3~s}s"
_RATIO_HOVER = "at %{x:,.4~g} s: %{y:.2f}"


def _points(
    name: str, tone: theme.Tone, x: Sequence[float], y: Sequence[float], hover: str
) -> dict[str, Any]:
    marker = {"size": 5, "opacity": 0.6, "color": tone.light}
    return draw.points(list(x), list(y), marker, name, hover)


WIDE = 25.0
"""The largest over the median value from which on an axis is logarithmic."""


class LatencySample:
    """Values in ascending order, each seen ``weights`` times."""

    def __init__(self, values: Floats, weights: Floats | None = None) -> None:
        self.values = values
        self.weights = np.ones(len(values)) if weights is None else weights

    def __len__(self) -> int:
        return len(self.values)

    def median(self) -> float:
        """The middle one."""
        reached = np.cumsum(self.weights)
        return float(self.values[np.searchsorted(reached, reached[-1] / 2)])


def latencies(title: str, observed: LatencySample, predicted: LatencySample) -> go.Figure:
    """The observed and predicted distribution of the latency called ``title``; a side without
    values has no curve."""
    sides = {"observed": observed, "predicted": predicted}
    known = {name: sample for name, sample in sides.items() if len(sample)}
    longest = max((float(sample.values[-1]) for sample in known.values()), default=0.0)
    shown = time_scale(longest)
    wide = any(longest > WIDE * sample.median() > 0 for sample in known.values())
    above = [float(each) for s in known.values() for each in s.values[s.values > 0][:1]]
    log = labelled(min(above, default=1.0) * shown.factor, (longest or 1.0) * 1.15 * shown.factor)
    ends = {"range": [0, longest * shown.factor * 1.05 or 1]}
    shares = {"range": [0, 1.02], "tickformat": ".0%", "dtick": 0.25, "fixedrange": True}
    return draw.assemble(
        [_curve(name, sample, shown) for name, sample in known.items()],
        time_axis(title, shown) | (log if wide else ends),
        theme.axis("share", **shares),
        meta={"log": log},
        showlegend=True,
    )


def _curve(name: str, sample: LatencySample, shown: Scale) -> dict[str, Any]:
    drawn = ranks(len(sample), POINTS)
    shares = np.cumsum(sample.weights) / sample.weights.sum()
    x = np.concatenate([sample.values[:1], sample.values[drawn]]) * shown.factor
    y = np.concatenate([[0.0], shares[drawn]])
    return draw.line(
        x.astype(np.float32),
        y.astype(np.float32),
        name=name,
        hover=f"%{{y:.1%}} take at most %{{x:,.4~g}} {shown.unit}",
        shape="hv",
        **theme.side(name),
    )


def timelines(
    observed: Frames, predicted: Frames, kv_tokens: Mapping[str, float | None]
) -> go.Figure:
    """The observed and predicted run over time; ``kv_tokens`` is the size of each one's KV cache,
    None if unknown (the panel is then in tokens). A side without iterations is left out."""
    sides = {"observed": observed, "predicted": predicted}
    drawn = {name: frames for name, frames in sides.items() if len(frames.timeseries)}
    is_share = all(kv_tokens[name] for name in drawn)
    longest = max((float(f.timeseries["end_s"].max()) for f in drawn.values()), default=1.0)
    memory = all((frames.timeseries["kv_reserved_tokens"] > 0).any() for frames in drawn.values())
    share, told = ("KV cache", "%{y:.1%}") if is_share else ("KV tokens", "%{y:,.0f}")
    panels: dict[str, Panel] = {}
    for name, frames in drawn.items():
        steps = fleet_steps(frames.timeseries, frames.requests)
        rates = token_rates(frames.timeseries, frames.requests, nice_width(longest, BINS))
        kv = steps.levels["kv_reserved_tokens"] / ((is_share and kv_tokens[name]) or 1.0)
        output = np.append(rates.output, rates.output[-1:])
        rows = [
            ("running", steps.time, steps.levels["running"], "%{y:,.0f}"),
            ("waiting", steps.time, steps.levels["waiting"], "%{y:,.0f}"),
            *([(share, steps.time, kv, told)] if memory else []),
            ("tokens/s", rates.edges, output, "%{y:,.0f}/s"),
        ]
        for title, time, level, hover in rows:
            percent = {"tickformat": ".0%"} if is_share and title == share else {}
            panel = panels.setdefault(title, Panel(title, percent, []))
            once = {"showlegend": title == "running"}
            panel.traces.append(_steps(name, time, level, hover) | once)
    return stacked(list(panels.values()), longest)


def _steps(name: str, time: Floats, level: Floats, hover: str) -> draw.Trace:
    drawn = extremes(time, level, BUCKETS)
    x, y = time[drawn].astype(np.float32), level[drawn].astype(np.float32)
    look = theme.side(name) | {"shape": "hv", "width": 1.5, "legendgroup": name}
    return draw.line(x, y, name=name, hover=hover, **look)
