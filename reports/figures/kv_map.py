"""How full was the KV cache over time, and with what? Used, wasted inside blocks, free: areas.

The areas of any moment add up to the cache of the whole fleet. Run it:
``python -m reports.figures.kv_map [RUN_DIR]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports import theme
from reports.decimate import Floats, extremes
from reports.profile.axes import legend
from reports.steps import Steps, fleet_steps

BUCKETS = 240
"""Columns of the screen that an area is drawn for; all areas change at the same moments."""

PARTS = {
    "kv_used": "used",
    "kv_wasted": "reserved, empty",
    "kv_free": "free",
}
"""Part of the cache -> what the legend calls it, from below."""


def parts(steps: Steps, capacity: float) -> dict[str, Floats]:
    """Tokens of the cache in each of ``PARTS``; the sum is ``capacity`` wherever that suffices."""
    used, reserved = steps.levels["kv_used_tokens"], steps.levels["kv_reserved_tokens"]
    return {
        "kv_used": used,
        "kv_wasted": np.maximum(reserved - used, 0.0),
        "kv_free": np.maximum(capacity - np.maximum(reserved, used), 0.0),
    }


def figure(
    timeseries: pd.DataFrame, requests: pd.DataFrame, *, kv_tokens: float, replicas: int = 1
) -> go.Figure:
    """The cache of the fleet over time; ``kv_tokens`` is that of one replica, above 0.

    Without any plan it is free all the time, and the figure is empty.
    """
    capacity = kv_tokens * replicas
    steps = fleet_steps(timeseries, requests)
    found = parts(steps, capacity)
    reserved = found["kv_used"] + found["kv_wasted"]
    kept = [extremes(steps.time, values, BUCKETS) for values in (found["kv_used"], reserved)]
    drawn = np.unique(np.concatenate(kept))
    traces = [
        _area(name, steps.time[drawn], found[name][drawn], capacity)
        for name in PARTS
        if steps.time.size
    ]
    layout = theme.layout() | {
        "hovermode": "x unified",
        "showlegend": True,
        "legend": legend() | {"traceorder": "normal"},
        "xaxis": theme.axis("time since the start")
        | {"hoverformat": ",.4~g", "ticksuffix": " s", "showgrid": False},
        "yaxis": theme.axis("share of the KV cache")
        | {"range": [0, 1], "tickformat": ".0%", "fixedrange": True},
    }
    if steps.time.size:
        layout["xaxis"]["range"] = [0, float(steps.time[-1])]
    return go.Figure(data=traces, layout=layout)


def _area(name: str, time: Floats, tokens: Floats, capacity: float) -> dict[str, Any]:
    tone = theme.MEMORY[name]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": PARTS[name],
        "x": time.astype(np.float32),
        "y": (tokens / capacity).astype(np.float32),
        "customdata": np.rint(tokens).astype(np.int64),
        "stackgroup": "cache",
        "line": {"shape": "hv", "color": tone.light, "width": 0.5},
        "fillcolor": tone.light,
        "hovertemplate": "%{y:.1%} (%{customdata:,d} tokens)",
    }


if __name__ == "__main__":
    from reports.figures.demo import KV_TOKENS, main
    from reports.steps import replica_count

    main(
        "kv_map",
        lambda run: figure(
            run.timeseries,
            run.requests,
            kv_tokens=run.summary["infersim"]["kv_cache"]["tokens"] or KV_TOKENS,
            replicas=replica_count(run.timeseries, run.requests),
        ),
    )
