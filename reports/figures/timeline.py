"""What happened when? Requests, KV cache and tokens of a whole run on one time axis.

Panels, top to bottom: requests running and waiting; share of the KV cache used and reserved;
tokens per second. Steps are states of the fleet (replicas summed, KV cache averaged). Run it:
``python -m reports.figures.timeline [RUN_DIR]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports import theme
from reports.decimate import Floats, extremes
from reports.steps import Rates, fleet_steps, nice_width, token_rates

BUCKETS = 600
"""Columns of the screen that a series is drawn for."""

BINS = 240
"""At most so many bars of tokens per second."""

PANELS = ((0.72, 0.96), (0.385, 0.625), (0.05, 0.29))
"""Bottom and top of each panel, as shares of the plot's height; legends stand above each."""


def figure(
    timeseries: pd.DataFrame, requests: pd.DataFrame, *, kv_tokens: float | None, replicas: int = 1
) -> go.Figure:
    """The run over time.

    ``kv_tokens`` is the KV cache of one replica, None or 0 when unknown (the panel is then in
    tokens). Without any plan the figure is empty and says so.
    """
    steps = fleet_steps(timeseries, requests)
    if not steps.time.size:
        return _empty()
    capacity = kv_tokens * replicas if kv_tokens else None
    duration = float(steps.time[-1])
    rates = token_rates(timeseries, requests, nice_width(duration, BINS))
    share = capacity or 1.0
    levels = steps.levels
    used, reserved = levels["kv_used_tokens"] / share, levels["kv_reserved_tokens"] / share
    traces = [
        _steps(steps.time, levels["running"], name="running", metric="running"),
        _steps(steps.time, levels["waiting"], name="waiting", metric="waiting"),
        _steps(steps.time, reserved, name="reserved", metric="kv_reserved", panel=2)
        | {"fill": "none"},
        _steps(steps.time, used, name="used", metric="kv_used", panel=2),
        _bars(rates, rates.prompt, "prompt tokens", "prompt_tokens"),
        _bars(rates, rates.output, "output tokens", "output_tokens"),
    ]
    for trace in traces[2:4]:
        trace["hovertemplate"] = "%{y:.1%}" if capacity else "%{y:,.0f} tokens"
    preempted = _preemptions(timeseries, rates)
    if preempted is not None:
        traces.append(preempted)
    layout = _layout(capacity is not None, duration)
    if max(levels["running"].max(), levels["waiting"].max()) <= 5:
        layout["yaxis"]["dtick"] = 1
    layout["shapes"] = _warmup(requests, duration)
    return go.Figure(data=traces, layout=layout)


def _steps(
    time: Floats, level: Floats, *, name: str, metric: str, panel: int = 1
) -> dict[str, Any]:
    drawn = extremes(time, level, BUCKETS)
    tone = theme.METRICS[metric]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": time[drawn].astype(np.float32),
        "y": level[drawn].astype(np.float32),
        "yaxis": f"y{panel}" if panel > 1 else "y",
        "legend": f"legend{panel}" if panel > 1 else "legend",
        "line": {"shape": "hv", "color": tone.light, "width": 1.5},
        "fill": "tozeroy",
        "fillcolor": theme.faint(tone).light,
        "hovertemplate": "%{y:,.0f}",
    }


def _bars(rates: Rates, values: Floats, name: str, metric: str) -> dict[str, Any]:
    """Means per bin, drawn as steps; the last value is repeated to close the last step."""
    tone = theme.METRICS[metric]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": rates.edges.astype(np.float32),
        "y": np.append(values, values[-1:]).astype(np.float32),
        "yaxis": "y3",
        "legend": "legend3",
        "line": {"shape": "hv", "color": tone.light, "width": 1.5},
        "fill": "tozeroy",
        "fillcolor": theme.faint(tone).light,
        "hovertemplate": "%{y:,.0f}/s",
    }


def _preemptions(timeseries: pd.DataFrame, rates: Rates) -> dict[str, Any] | None:
    """A mark on the KV panel for every bin in which requests are known to have been preempted."""
    start = timeseries["start_s"].to_numpy(float)
    known = timeseries["preemptions"].fillna(0)
    counts = np.histogram(start, bins=rates.edges, weights=known)[0]
    hit = np.flatnonzero(counts)
    if not hit.size:
        return None
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "preemptions",
        "x": ((rates.edges[hit] + rates.edges[hit + 1]) / 2).astype(np.float32),
        "y": np.zeros(hit.size, dtype=np.float32),
        "customdata": counts[hit].astype(int),
        "yaxis": "y2",
        "legend": "legend2",
        "cliponaxis": False,
        "marker": {"symbol": "triangle-up", "size": 7, "color": theme.METRICS["preemptions"].light},
        "hovertemplate": "%{customdata:,d}",
    }


def _layout(is_share: bool, duration: float) -> dict[str, Any]:
    titles = (
        "requests",
        "share of KV cache" if is_share else "KV cache (tokens)",
        "tokens per second",
    )
    layout = theme.layout() | {"hovermode": "x unified", "hoversubplots": "axis"}
    layout["showlegend"] = True
    layout["xaxis"] = theme.axis("time since the start") | {
        "anchor": "y3",
        "range": [0, duration],
        "hoverformat": ",.4~g",
        "ticksuffix": " s",
    }
    for panel, (title, (bottom, top)) in enumerate(zip(titles, PANELS, strict=True), start=1):
        suffix = str(panel) if panel > 1 else ""
        layout[f"yaxis{suffix}"] = theme.axis(title) | {
            "domain": [bottom, top],
            "rangemode": "tozero",
            "fixedrange": True,
            "nticks": 5,
        }
        layout[f"legend{suffix}"] = {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": top,
            "yanchor": "bottom",
            "font": {"size": 12, "color": theme.PAGE["ink"].light},
            "bgcolor": "rgba(0, 0, 0, 0)",
        }
    if is_share:
        layout["yaxis2"] |= {"tickformat": ".0%", "range": [0, 1.02]}
    return layout


def _warmup(requests: pd.DataFrame, duration: float) -> list[dict[str, Any]]:
    """A wash over the time in which the requests of the warm-up arrive."""
    arrivals = requests.loc[requests["warmup"].astype(bool), "arrival_s"].to_numpy(float)
    arrivals = arrivals[np.isfinite(arrivals)]
    until = min(float(arrivals.max()), duration) if arrivals.size else 0.0
    if until <= 0:
        return []
    band = {"type": "rect", "x0": 0, "x1": until, "y0": 0, "y1": 1, "layer": "below"}
    band |= {"line": {"width": 0}, "fillcolor": theme.PAGE["neutral-soft"].light}
    return [band | {"xref": "x", "yref": f"{axis} domain"} for axis in ("y", "y2", "y3")]


def _empty() -> go.Figure:
    note = {"text": "No iteration was run", "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    note |= {"showarrow": False, "font": {"color": theme.PAGE["muted"].light}}
    hidden = {"visible": False}
    layout = theme.layout() | {"annotations": [note], "xaxis": hidden, "yaxis": hidden}
    return go.Figure(layout=layout)


if __name__ == "__main__":
    from reports.figures.demo import main
    from reports.steps import replica_count

    main(
        "timeline",
        lambda run: figure(
            run.timeseries,
            run.requests,
            kv_tokens=run.summary["infersim"]["kv_cache"]["tokens"],
            replicas=replica_count(run.timeseries, run.requests),
        ),
    )
