"""Draws a whole run on one time axis, a panel for each of its quantities.

Top to bottom: arrivals and completions; requests running and waiting, and running in
each of several replicas; share of the KV cache used and reserved; preemptions, if there were any;
tokens prefilled and decoded per iteration; drafts of a sequence, where their number follows the
batch; tokens per second; power of a GPU, where it is known. Steps are states of the fleet (replicas
summed, KV cache averaged).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.memory_use import means
from reports.figures.series import MOST_LINES, styles
from reports.figures.steps import (
    PerIteration,
    StepRates,
    fleet_steps,
    nice_width,
    per_iteration,
    preempted,
    rate,
    spread,
    token_rates,
)
from reports.frame import draw, theme
from reports.frame.decimate import Floats, extremes
from reports.frame.draw import run_axis, run_scale

BUCKETS = 600
"""Columns of the screen that a series is drawn for."""

BINS = 240
"""The most bins of counts."""

PANEL, HEAD, FOOT = 104, 34, 52
"""Height (px) of a panel, of the legend above it, and of the time axis."""

STEPS = {"shape": "hv", "width": 1.5}
"""How a line is drawn."""

MOST = "most"
"""The ``meta`` of lines of the most behind a mean."""


class Panel(NamedTuple):
    """One panel: the title of its axis, further settings of the axis, and the traces drawn in
    it."""

    title: str
    axis: dict[str, Any]
    traces: list[draw.Trace]


def figure(
    timeseries: pd.DataFrame,
    requests: pd.DataFrame,
    *,
    kv_tokens: float | None,
    replicas: int = 1,
    power: Mapping[str, Sequence[float]] | None = None,
) -> go.Figure:
    """The run over time.

    ``power`` is that of ``charts.json``, ``kv_tokens`` is the KV cache of one replica, None or 0
    when unknown (the panel is then in tokens). Without any plan the figure is empty and says so.
    """
    if not len(timeseries):
        return draw.nothing("No iteration was run")
    capacity = kv_tokens * replicas if kv_tokens else None
    duration = float(timeseries["end_s"].max())
    rates = token_rates(timeseries, requests, nice_width(duration, BINS))
    panels = [
        _traffic(requests, rates.edges, duration),
        *_states(timeseries, requests, capacity, _by_replica(timeseries, requests, rates.edges)),
        *_preemptions(timeseries, rates.edges),
        *_iterations(timeseries, rates.edges),
        *_drafts(timeseries, rates.edges),
        _throughput(rates),
        *_power(power),
    ]
    return stacked(panels, duration, _warmup(requests, duration, len(panels)))


def states(
    timeseries: pd.DataFrame, requests: pd.DataFrame, *, kv_tokens: float | None, replicas: int = 1
) -> go.Figure:
    """The requests that run and wait, and the KV cache, alone over time; arguments as of
    ``figure``."""
    if not len(timeseries):
        return draw.nothing("No iteration was run")
    capacity = kv_tokens * replicas if kv_tokens else None
    duration = float(timeseries["end_s"].max())
    panels = _states(timeseries, requests, capacity, [])
    return stacked(panels, duration, _warmup(requests, duration, len(panels)))


def stacked(
    panels: Sequence[Panel], duration: float, shapes: Sequence[dict[str, Any]] = ()
) -> go.Figure:
    """The panels below each other, on one time axis in the unit that suits ``duration`` (s)."""
    traces = []
    factor = run_scale(duration).factor
    for number, panel in enumerate(panels, start=1):
        suffix = str(number) if number > 1 else ""
        traces += [
            trace
            | {"yaxis": f"y{suffix}", "legend": f"legend{suffix}"}
            | {"x": np.asarray(trace["x"] * np.float32(factor))}
            for trace in panel.traces
        ]
    layout = _layout(panels, duration)
    layout["shapes"] = [each | {end: factor * each[end] for end in ("x0", "x1")} for each in shapes]
    return go.Figure(data=traces, layout=layout)


# -- panels ----------------------------------------------------------------------------------------


def _traffic(requests: pd.DataFrame, edges: Floats, duration: float) -> Panel:
    done = requests.loc[requests["status"] == "completed", "finish_s"]
    rows = [("arrivals", requests["arrival_s"]), ("completions", done)]
    traces = [
        _bins(edges, rate(times.to_numpy(float), edges, duration), name, name, "%{y:,.3~g}/s")
        for name, times in rows
    ]
    return Panel("requests/s", {}, traces)


def _states(
    timeseries: pd.DataFrame,
    requests: pd.DataFrame,
    capacity: float | None,
    by_replica: Sequence[Panel],
) -> list[Panel]:
    """Requests in the system, of several replicas also of each, and the KV cache where anything is
    known of it."""
    steps = fleet_steps(timeseries, requests)
    levels = steps.levels
    counts = Panel(
        "requests",
        {"dtick": 1} if max(levels["running"].max(), levels["waiting"].max()) <= 5 else {},
        [trace for name in COUNTED for trace in _level(steps.time, levels[name], name)],
    )
    share = capacity or 1.0
    told = "%{y:.1%}" if capacity else "%{y:,.0f} tokens"
    used, reserved = levels["kv_used_tokens"] / share, levels["kv_reserved_tokens"] / share
    if not (reserved > 0).any():  # requests ran, and they cannot have run without memory
        return [counts, *by_replica]
    traces = [
        _steps(steps.time, reserved, "KV reserved", "kv_reserved", told) | {"fill": "none"},
        _steps(steps.time, used, "KV used", "kv_used", told),
    ]
    if (used == reserved).all():  # the blocks in use are known, not how full they are
        traces = [_steps(steps.time, used, "KV blocks in use", "kv_used", told)]
    cache = Panel(
        "KV cache" if capacity else "KV cache (tokens)",
        {"tickformat": ".0%", "range": [0, 1.02]} if capacity else {},
        traces,
    )
    return [counts, *by_replica, cache]


def _by_replica(timeseries: pd.DataFrame, requests: pd.DataFrame, edges: Floats) -> list[Panel]:
    """Requests that run in each replica, mean of each bin; of many the most, the mean and the least
    that one has. Nothing where there is one replica. Names are short, so that those of all lines
    stand side by side on a telephone."""
    running = {}
    of_plans, of_requests = (frame["replica"].to_numpy() for frame in (timeseries, requests))
    for replica in np.unique(of_plans).tolist():
        mine = timeseries[of_plans == replica], requests[of_requests == replica]
        steps = fleet_steps(*mine)
        running[int(replica)] = means(steps.time, steps.levels["running"], edges)
    if len(running) < 2:
        return []
    told = "%{y:,.3~g}"
    if len(running) > MOST_LINES:
        every = np.array(list(running.values()))
        ends = {"most": every.max(axis=0), "mean": every.mean(axis=0), "least": every.min(axis=0)}
        traces = [
            _bins(edges, values, name, "running", told) | {"fill": "none"}
            for name, values in ends.items()
        ]
        for trace, dash in zip(traces, ("dash", "solid", "dot"), strict=True):
            trace["line"] = trace["line"] | {"dash": dash}
    else:
        traces = [
            _bins(edges, values, f"{'' if place else 'replica '}{replica}", "running", told)
            | {"fill": "none", "line": {**STEPS, "color": look.color, "dash": look.dash}}
            for place, ((replica, values), look) in enumerate(
                zip(running.items(), styles([{} for _ in running]), strict=True)
            )
        ]
    return [Panel("in each replica", {}, traces)]


COUNTED = ("running", "waiting")

MANY = 4 * BUCKETS
"""Changes from which on a level is drawn by its mean and its most: single steps would fill the
panel."""


def _level(time: Floats, level: Floats, name: str) -> list[draw.Trace]:
    """Each change of a level, or of a long run the mean and the most of equal stretches."""
    if time.size <= MANY:
        return [_steps(time, level, name, name, "%{y:,.0f}")]
    edges = np.linspace(time[0], time[-1], BINS + 1)
    starts = np.searchsorted(time, edges[:-1], side="right") - 1
    most = np.maximum(np.maximum.reduceat(level, starts), level[starts])
    return _mean_and_most(PerIteration(means(time, level, edges), most), edges, name, name)


def _preemptions(timeseries: pd.DataFrame, edges: Floats) -> list[Panel]:
    """The preemptions over time; None where no request was preempted."""
    counts = preempted(timeseries, edges)
    if counts is None or not counts.any():
        return []
    return [
        Panel(
            "preemptions",
            {"dtick": 1} if counts.max() <= 5 else {},
            [
                _bins(
                    edges,
                    counts,
                    f"preemptions per {edges[1] - edges[0]:.4g} s",
                    "preemptions",
                    "%{y:,d}",
                )
            ],
        )
    ]


def _iterations(timeseries: pd.DataFrame, edges: Floats) -> list[Panel]:
    """The tokens in an iteration of one replica; nothing where rows are not iterations (the ticks
    of a log say how much was done in them, not in how many batches)."""
    if not timeseries["prefill_seqs"].notna().any():
        return []
    return [
        Panel(
            "tokens/iteration",
            {},
            _mean_and_most(per_iteration(timeseries, column, edges), edges, *names),
        )
        for column, names in PER_ITERATION.items()
        if timeseries[column].notna().any()
    ]


def _drafts(timeseries: pd.DataFrame, edges: Floats) -> list[Panel]:
    """Drafts of a decoding sequence, on average; nothing where all have as many."""
    if "drafts_per_sequence" not in timeseries:
        return []
    rows = timeseries[timeseries["decode_seqs"] > 0]
    checked = rows["drafts_per_sequence"].to_numpy(float)
    if not len(rows) or np.ptp(checked) == 0:
        return []
    sequences = (rows["iterations"] * rows["decode_seqs"]).to_numpy(float)
    start, end = (rows[name].to_numpy(float) for name in ("start_s", "end_s"))
    decoded = spread(start, end, sequences, edges)
    drafts = spread(start, end, sequences * checked, edges)
    mean = np.divide(drafts, decoded, out=np.zeros_like(drafts), where=decoded > 1e-9)
    drawn = _bins(edges, mean, "drafts of a sequence, mean", "output_tokens", "%{y:,.3~g}")
    return [Panel("drafts", {}, [drawn])]


def _mean_and_most(found: PerIteration, edges: Floats, name: str, metric: str) -> list[draw.Trace]:
    tone = theme.METRICS[metric]
    most = _bins(edges, found.most, f"{name}, most", metric, "%{y:,.0f}")
    mean = _bins(edges, found.mean, f"{name}, mean", metric, "%{y:,.4~g}")
    most |= {"line": {"shape": "hv", "color": theme.faint(tone).light, "width": 1}}
    return [most | {"showlegend": False, "meta": MOST}, mean | {"fill": "none"}]


PER_ITERATION = {
    "prefill_tokens": ("prefill", "prompt_tokens"),
    "decode_seqs": ("decode", "output_tokens"),
}
"""Column -> what it counts, and whose colour it has."""


def _throughput(rates: StepRates) -> Panel:
    told = "%{y:,.0f}/s"
    prompt = _bins(rates.edges, rates.prompt, "prompt tokens/s", "prompt_tokens", told)
    output = _bins(rates.edges, rates.output, "output tokens/s", "output_tokens", told)
    return Panel("tokens/s", {}, [prompt, output])


def _power(power: Mapping[str, Sequence[float]] | None) -> list[Panel]:
    if not power:
        return []
    edges, watts = np.array(power["edges"]), np.array(power["watts"])
    drawn = _bins(edges, watts, "mean of all GPUs", "power", "%{y:,.0f} W")
    return [Panel("W per GPU", {"rangemode": "tozero"}, [drawn])]


# -- traces ----------------------------------------------------------------------------------------


def _steps(time: Floats, level: Floats, name: str, metric: str, told: str) -> draw.Trace:
    drawn = extremes(time, level, BUCKETS)
    return _line(time[drawn], level[drawn], name, metric, told)


def _bins(edges: Floats, values: Floats, name: str, metric: str, told: str) -> draw.Trace:
    """One value per bin, drawn as steps; the last is repeated to close the last step."""
    return _line(edges, np.append(values, values[-1:]), name, metric, told)


def _line(x: Floats, y: Floats, name: str, metric: str, told: str) -> draw.Trace:
    tone = theme.METRICS[metric]
    fill = {"fill": "tozeroy", "fillcolor": theme.faint(tone).light}
    x, y = x.astype(np.float32), y.astype(np.float32)
    return draw.line(x, y, tone.light, name, told, **STEPS, **fill)


# -- layout ----------------------------------------------------------------------------------------


def _layout(panels: Sequence[Panel], duration: float) -> dict[str, Any]:
    plot = (PANEL + HEAD) * len(panels)
    layout = theme.layout() | {"hovermode": "x unified", "hoversubplots": "axis"}
    layout |= {"showlegend": True, "height": plot + FOOT, "margin": {"t": 0, "b": FOOT}}
    shown = run_scale(duration)
    layout["xaxis"] = run_axis(shown) | {
        "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        "range": [0, duration * shown.factor],
    }
    for number, panel in enumerate(panels, start=1):
        suffix = str(number) if number > 1 else ""
        bottom = 1 - number * (PANEL + HEAD) / plot
        top = bottom + PANEL / plot
        layout[f"yaxis{suffix}"] = theme.axis(
            panel.title,
            domain=[max(0.0, bottom), top],
            fixedrange=True,
            nticks=4,
            **{"rangemode": "tozero", **panel.axis},
        )
        layout[f"legend{suffix}"] = {**theme.LEGEND, "y": top}
    return layout


def _warmup(requests: pd.DataFrame, duration: float, panels: int) -> list[dict[str, Any]]:
    """A wash over the time in which the requests of the warm-up arrive."""
    arrivals = requests.loc[requests["warmup"].astype(bool), "arrival_s"].to_numpy(float)
    arrivals = arrivals[np.isfinite(arrivals)]
    until = min(float(arrivals.max()), duration) if arrivals.size else 0.0
    if until <= 0:
        return []
    ends = {"x0": 0, "x1": until, "y0": 0, "y1": 1, "xref": "x"}
    axes = ["y", *(f"y{number}" for number in range(2, panels + 1))]
    soft = theme.PAGE["neutral-soft"].light
    return [draw.wash(soft, yref=f"{axis} domain", **ends) for axis in axes]
