"""Draws what the memory of a GPU holds when it is fullest, and the KV cache over time.

A GPU's parts together are its whole memory: each bar begins where the one above it ends. Bytes.

Over time the areas are what is used, reserved but empty, free; where there is a prefix cache, also
what several requests share, and what is cached but held by no request. At any moment they add up to
the KV cache of the whole fleet. In a long run each column of the screen shows the mean over its
time, with a line for the most that was reserved in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.charts import chart
from reports.figures.steps import CACHED, RESERVED_END, Steps, fleet_steps
from reports.frame import draw, theme
from reports.frame.decimate import Floats
from reports.frame.draw import run_axis, run_scale
from sim.growth.leaps import Leaps
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar

TITLES: Mapping[str, str] = {
    "weights": "weights",
    "activations": "activations of the largest pass",
    "reserve": "the engine's reserve",
    "kv_used": "KV cache: holds tokens",
    "kv_wasted": "KV cache: reserved, unused",
    "kv_cached": "KV cache: cached, of no request",
    "kv_free": "KV cache: free",
    "outside": "left free",
}
"""Part of the memory -> what it is called."""


class Memory(NamedTuple):
    """Bytes of each of ``TITLES`` that the memory has; ``time`` (s) is when the cache was fullest,
    NaN if never used.

    ``short`` are the bytes by which the parts exceed the memory of the GPU: 0 unless the number of
    KV blocks was given and is too large for it.
    """

    parts: dict[str, float]
    total: float
    time: float
    short: float


def gpu_memory(memory: Mapping[str, Any], timeseries: pd.DataFrame) -> Memory:
    """The memory of a GPU that is as the summary's ``infersim.memory`` says, at its fullest."""
    time, used, reserved, idle = _fullest(timeseries)
    token, cache = memory["kv_bytes_per_token"], memory["kv_cache_bytes"]
    taken = min(max(used, reserved) * token, cache)
    cached = None if idle is None else min(idle * token, cache - taken)
    parts = {
        "weights": memory["weights_bytes"] + memory.get("adapter_bytes", 0.0),
        "activations": memory["activations_bytes"],
        "reserve": memory["reserve_bytes"],
        "kv_used": min(used * token, taken),
        "kv_wasted": taken - min(used * token, taken),
        **({} if cached is None else {"kv_cached": cached}),
        "kv_free": cache - taken - (cached or 0.0),
    }
    rest = memory["gpu_bytes"] - sum(parts.values())
    parts["outside"] = max(0.0, rest)
    return Memory(parts, memory["gpu_bytes"], time, max(0.0, -rest))


def _fullest(timeseries: pd.DataFrame) -> tuple[float, float, float, float | None]:
    """When a replica had most of its cache reserved, and its tokens used, reserved and cached
    without a request then; these None where no prefixes are cached."""
    idle = timeseries.get(CACHED[1], None)
    if not len(timeseries):
        return np.nan, 0.0, 0.0, None if idle is None else 0.0
    growth = np.nan_to_num(Leaps.saved(timeseries).gained().astype(float))
    used = timeseries["kv_used_tokens"].to_numpy(float) + growth
    column = RESERVED_END if RESERVED_END in timeseries else "kv_reserved_tokens"
    reserved = np.maximum(timeseries[column].to_numpy(float), used)
    at = int(np.lexsort((used, reserved))[-1])
    cached = None if idle is None else float(idle.fillna(0).iloc[at])
    return float(timeseries["end_s"].iloc[at]), float(used[at]), float(reserved[at]), cached


GIB = 2.0**30

NAMES: Mapping[str, str] = {
    "weights": "weights",
    "activations": "activations",
    "reserve": "engine's reserve",
    "kv_used": "KV cache, used",
    "kv_wasted": "KV cache, wasted",
    "kv_cached": "KV cache, cached",
    "kv_free": "KV cache, free",
    "outside": "left free",
}
"""Part -> what its row is called, in few letters."""


def gpu_bars(found: Memory) -> go.Figure:
    """The parts below each other, in GiB."""
    bars, at = [], 0.0
    for part, name in NAMES.items():
        if part not in found.parts:
            continue
        amount, share = found.parts[part] / GIB, found.parts[part] / found.total
        text = f"{TITLES[part]}: {amount:,.4g} GiB, {share:.1%} of the memory"
        bars.append(ChartBar(name, at + amount, text, f"{amount:,.3g} GiB", part, start=at))
        at += amount
    return chart(BarChart(ChartAxis("memory of one GPU (GiB)"), tuple(bars)))


BUCKETS = 480
"""Columns of the screen that a long run is drawn in."""

FEW = 4 * BUCKETS
"""Moments that are all drawn."""

MOST = "most reserved"
"""The legend for the line of the highest reservation in each column."""

PARTS = {
    "kv_shared": "shared by several requests",
    "kv_used": "used",
    "kv_wasted": "reserved, empty",
    "kv_cached": "cached, of no request",
    "kv_free": "free",
}
"""Part of the cache -> what the legend calls it, from below."""

BY_ONE = "used by one request"
"""The legend for the used part where another one is shared."""


def kv_parts(steps: Steps, capacity: float) -> dict[str, Floats]:
    """Tokens of the cache in each of ``PARTS`` that it has; the sum is ``capacity`` wherever that
    suffices."""
    used, reserved = steps.levels["kv_used_tokens"], steps.levels["kv_reserved_tokens"]
    wasted = np.maximum(reserved - used, 0.0)
    free = np.maximum(capacity - np.maximum(reserved, used), 0.0)
    if CACHED[0] not in steps.levels:
        return {"kv_used": used, "kv_wasted": wasted, "kv_free": free}
    shared = np.minimum(steps.levels[CACHED[0]], used)
    cached = np.minimum(steps.levels[CACHED[1]], free)
    return {
        "kv_shared": shared,
        "kv_used": used - shared,
        "kv_wasted": wasted,
        "kv_cached": cached,
        "kv_free": free - cached,
    }


def kv_map(
    timeseries: pd.DataFrame, requests: pd.DataFrame, *, kv_tokens: float, replicas: int = 1
) -> go.Figure:
    """The cache of the fleet over time; ``kv_tokens`` is that of one replica, above 0.

    Without any plan it is free all the time, and the figure is empty.
    """
    capacity = kv_tokens * replicas
    steps = fleet_steps(timeseries, requests)
    found = kv_parts(steps, capacity)
    if steps.time.size > FEW:
        traces = _columns(steps.time, found, capacity)
    else:
        traces = [
            _area(name, steps.time, found[name], capacity) for name in found if steps.time.size
        ]
    if "kv_shared" in found:
        for trace in traces:
            if trace["name"] == PARTS["kv_used"]:
                trace["name"] = BY_ONE
    shown = run_scale(float(steps.time[-1]) if steps.time.size else 0.0)
    traces = [trace | {"x": np.asarray(trace["x"]) * shown.factor} for trace in traces]
    across = run_axis(shown) | {"showgrid": False}
    if steps.time.size:
        across["range"] = [0, float(steps.time[-1]) * shown.factor]
    share = {"range": [0, 1], "tickformat": ".0%", "fixedrange": True}
    return draw.assemble(
        traces,
        across,
        theme.axis("share of the KV cache", **share),
        hovermode="x unified",
        showlegend=True,
        legend={"traceorder": "normal"},
    )


def _columns(time: Floats, found: dict[str, Floats], capacity: float) -> list[dict[str, Any]]:
    """The areas as means over equal stretches of time, and the most reserved in each of them."""
    edges = np.linspace(time[0], time[-1], BUCKETS + 1)
    starts = np.searchsorted(time, edges[:-1], side="right") - 1
    taken = [found[name] for name in ("kv_shared", "kv_used", "kv_wasted") if name in found]
    reserved: Floats = np.sum(taken, axis=0)
    most = np.maximum(np.maximum.reduceat(reserved, starts), reserved[starts])
    areas = [_area(name, edges[:-1], means(time, found[name], edges), capacity) for name in found]
    line = _area("kv_most", edges[:-1], most, capacity)
    del line["stackgroup"], line["fillcolor"]
    line["line"] = line["line"] | {"width": 1}
    return [*areas, line]


def means(time: Floats, values: Floats, edges: Floats) -> Floats:
    """The mean over each stretch between ``edges`` of what is ``values[i]`` from ``time[i]`` on.

    >>> means(np.array([0.0, 1, 2]), np.array([4.0, 8, 0]), np.array([0.0, 2])).tolist()
    [6.0]
    """
    collected = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(time))))
    amounts: Floats = np.diff(np.interp(edges, time, collected)) / np.diff(edges)
    return amounts


def _area(name: str, time: Floats, tokens: Floats, capacity: float) -> dict[str, Any]:
    tone = theme.MEMORY.get(name, theme.PAGE["neutral"])
    return draw.line(
        time.astype(np.float32),
        (tokens / capacity).astype(np.float32),
        tone.light,
        PARTS.get(name, MOST),
        "%{y:.1%} (%{customdata:,d} tokens)",
        width=0,
        shape="hv",
        customdata=np.rint(np.nan_to_num(tokens)).astype(np.int64),
        stackgroup="cache",
        fillcolor=tone.light,
    )
