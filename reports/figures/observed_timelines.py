"""Draws both runs on one time axis, to compare what ran, waited and filled the memory.

Panels, top to bottom: requests running, requests waiting, KV cache, output tokens per second. The
KV cache is left out where the record has no data on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from reports.figures.steps import fleet_steps, nice_width, token_rates
from reports.figures.timeline import BINS, BUCKETS
from reports.frame import draw, theme
from reports.frame.decimate import Floats, extremes
from reports.frame.run_directory import Frames
from reports.frame.scale import run_axis, run_scale

GAP, FOOT = 0.07, 0.04
"""Between panels, and below the last one, as shares of the plot's height."""


def figure(observed: Frames, predicted: Frames, kv_tokens: Mapping[str, float | None]) -> go.Figure:
    """The observed and predicted run over time; ``kv_tokens`` is the size of each one's KV cache,
    None if unknown (the panel is then in tokens). A side without iterations is left out."""
    sides = {"observed": observed, "predicted": predicted}
    drawn = {name: frames for name, frames in sides.items() if len(frames.timeseries)}
    is_share = all(kv_tokens[name] for name in drawn)
    longest = max((float(f.timeseries["end_s"].max()) for f in drawn.values()), default=1.0)
    traces = []
    memory = all((frames.timeseries["kv_reserved_tokens"] > 0).any() for frames in drawn.values())
    for name, frames in drawn.items():
        steps = fleet_steps(frames.timeseries, frames.requests)
        kv = steps.levels["kv_reserved_tokens"] / ((kv_tokens[name] or 1.0) if is_share else 1.0)
        rates = token_rates(frames.timeseries, frames.requests, nice_width(longest, BINS))
        traces += [
            _steps(name, steps.time, steps.levels["running"], 1, "%{y:,.0f}"),
            _steps(name, steps.time, steps.levels["waiting"], 2, "%{y:,.0f}"),
        ]
        if memory:
            told = "%{y:.1%}" if is_share else "%{y:,.0f}"
            traces.append(_steps(name, steps.time, kv, 3, told))
        output = np.append(rates.output, rates.output[-1:])
        traces.append(_steps(name, rates.edges, output, 4 if memory else 3, "%{y:,.0f}/s"))
    share = "KV cache" if is_share else "KV tokens"
    titles = ["running", "waiting", *([share] if memory else []), "tokens/s"]
    factor = np.float32(run_scale(longest).factor)
    traces = [trace | {"x": trace["x"] * factor} for trace in traces]
    return go.Figure(data=traces, layout=_layout(longest, titles, is_share=memory and is_share))


def _steps(name: str, time: Floats, level: Floats, panel: int, hover: str) -> dict[str, Any]:
    drawn = extremes(time, level, BUCKETS)
    return draw.line(
        time[drawn].astype(np.float32),
        level[drawn].astype(np.float32),
        name=name,
        hover=hover,
        shape="hv",
        **theme.side(name) | {"width": 1.5},
        legendgroup=name,
        showlegend=panel == 1,
        yaxis=f"y{panel}" if panel > 1 else "y",
    )


def _layout(duration: float, titles: Sequence[str], *, is_share: bool) -> dict[str, Any]:
    layout = theme.layout() | {"hovermode": "x unified", "hoversubplots": "axis"}
    layout["showlegend"] = True
    shown = run_scale(duration)
    layout["xaxis"] = run_axis(shown) | {
        "anchor": f"y{len(titles)}",
        "range": [0, duration * shown.factor],
    }
    height = (1 - FOOT - 0.03 - GAP * (len(titles) - 1)) / len(titles)
    for panel, title in enumerate(titles, start=1):
        bottom = FOOT + (len(titles) - panel) * (height + GAP)
        top = bottom + height
        layout[f"yaxis{panel if panel > 1 else ''}"] = theme.axis(title) | {
            "domain": [bottom, top],
            "rangemode": "tozero",
            "fixedrange": True,
            "nticks": 4,
        }
    if is_share:
        layout["yaxis3"] |= {"tickformat": ".0%"}
    return layout
