"""Draws TTFT against the length of the prompt: whether a long wait has a long prompt behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.units import time_scale

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


def figure(requests: pd.DataFrame, *, limit_s: float | None = None) -> go.Figure:
    """A point for each request of ``drawn``, at least one; its parts are under the pointer."""
    points = drawn(requests)
    shown = time_scale(float(points["ttft_s"].max()))
    trace = draw.points(
        points["prompt_tokens"].tolist(),
        (points["ttft_s"] * shown.factor).round(3).tolist(),
        {"size": 4, "opacity": 0.6, "color": theme.METRICS["ttft"].light},
        hover=f"request %{{customdata[0]:,d}}: %{{x:,d}} tokens, %{{y:,.4g}} {shown.unit}, "
        "of which %{customdata[1]:,.4g} ms in the queue<extra></extra>",
        customdata=list(zip(points["request_id"].tolist(), _queue_ms(points), strict=True)),
    )
    at = [] if limit_s is None else [limit_s * shown.factor]
    return draw.assemble(
        [trace],
        theme.axis("prompt (tokens)", rangemode="tozero", tickformat=",d"),
        time_axis("TTFT", shown, rangemode="tozero"),
        shapes=[draw.across(limit, width=1, dash="dash") for limit in at],
    )


def _queue_ms(points: pd.DataFrame) -> list[float]:
    found: list[float] = np.nan_to_num(points["queue_s"].to_numpy(float) * 1e3).round(2).tolist()
    return found
