"""Draws both runs on one time axis, to compare what ran, waited and filled the memory.

Panels, top to bottom: requests running, requests waiting, KV cache, output tokens per second. The
KV cache is left out where the record has no data on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from reports.figures.steps import fleet_steps, nice_width, token_rates
from reports.figures.timeline import BINS, BUCKETS, Panel, stacked
from reports.frame import draw, theme
from reports.frame.decimate import Floats, extremes
from reports.frame.run_directory import Frames


def figure(observed: Frames, predicted: Frames, kv_tokens: Mapping[str, float | None]) -> go.Figure:
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
