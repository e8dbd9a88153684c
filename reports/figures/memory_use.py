"""Adds up and draws what the memory of one GPU holds when its KV cache is fullest. Bytes.

The parts together are the whole memory of the GPU: each bar begins where the one above it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.figures.steps import RESERVED_END
from reports.frame import draw, theme
from sim.growth.leaps import Leaps

TITLES: Mapping[str, str] = {
    "weights": "weights",
    "activations": "activations of the largest pass",
    "reserve": "the engine's reserve",
    "kv_used": "KV cache: holds tokens",
    "kv_wasted": "KV cache: reserved, unused",
    "kv_free": "KV cache: free",
    "outside": "left free",
}
"""Part of the memory -> what it is called."""


class Memory(NamedTuple):
    """Bytes of each of ``TITLES``; ``time`` (s) is when the cache was fullest, NaN if never used.

    ``short`` are the bytes by which the parts exceed the memory of the GPU: 0 unless the number of
    KV blocks was given and is too large for it.
    """

    parts: dict[str, float]
    total: float
    time: float
    short: float


def gpu_memory(memory: Mapping[str, Any], timeseries: pd.DataFrame) -> Memory:
    """The memory of a GPU that is as the summary's ``infersim.memory`` says, at its fullest."""
    time, used, reserved = _fullest(timeseries)
    token, cache = memory["kv_bytes_per_token"], memory["kv_cache_bytes"]
    taken = min(max(used, reserved) * token, cache)
    parts = {
        "weights": memory["weights_bytes"] + memory.get("adapter_bytes", 0.0),
        "activations": memory["activations_bytes"],
        "reserve": memory["reserve_bytes"],
        "kv_used": min(used * token, taken),
        "kv_wasted": taken - min(used * token, taken),
        "kv_free": cache - taken,
    }
    rest = memory["gpu_bytes"] - sum(parts.values())
    parts["outside"] = max(0.0, rest)
    return Memory(parts, memory["gpu_bytes"], time, max(0.0, -rest))


def _fullest(timeseries: pd.DataFrame) -> tuple[float, float, float]:
    """When a replica had most of its cache reserved, and its tokens used and reserved then."""
    if not len(timeseries):
        return np.nan, 0.0, 0.0
    growth = np.nan_to_num(Leaps.saved(timeseries).gained().astype(float))
    used = timeseries["kv_used_tokens"].to_numpy(float) + growth
    column = RESERVED_END if RESERVED_END in timeseries else "kv_reserved_tokens"
    reserved = np.maximum(timeseries[column].to_numpy(float), used)
    at = int(np.lexsort((used, reserved))[-1])
    return float(timeseries["end_s"].iloc[at]), float(used[at]), float(reserved[at])


GIB = 2.0**30
ROW, FRAME = 26, 62
"""Height (px) of a part, and of what stands around them."""

NAMES: Mapping[str, str] = {
    "weights": "weights",
    "activations": "activations",
    "reserve": "engine's reserve",
    "kv_used": "KV cache, used",
    "kv_wasted": "KV cache, wasted",
    "kv_free": "KV cache, free",
    "outside": "left free",
}
"""Part -> what its row is called, in few letters."""

LATE = 0.85
"""Bars that end beyond this share of the width have their number on the left."""


def figure(found: Memory) -> go.Figure:
    """The parts below each other, in GiB."""
    end = (found.total + found.short) / GIB
    rows, at = [], 0.0
    for name in NAMES:
        rows.append((name, at, found.parts[name] / GIB))
        at += found.parts[name] / GIB
    whole = max(end, at)
    traces = [
        draw.bars(
            [amount],
            [row],
            theme.MEMORY[name].light,
            f"{TITLES[name]}: {amount:,.4g} GiB, %{{customdata:.1%}} of the memory<extra></extra>",
            name=NAMES[name],
            base=[start],
            width=0.72,
            customdata=[found.parts[name] / found.total],
        )
        for row, (name, start, amount) in enumerate(rows)
    ]
    return draw.assemble(
        traces,
        theme.axis("memory of one GPU (GiB)", range=[0, whole], fixedrange=True),
        draw.rows([NAMES[name] for name, _, _ in rows], 11),
        height=FRAME + ROW * len(rows),
        annotations=[
            _label(row, start, amount, whole) for row, (_, start, amount) in enumerate(rows)
        ],
    )


def _label(row: int, start: float, amount: float, end: float) -> draw.Trace:
    """The number, on the side of its bar that has room."""
    before = start + amount > LATE * end
    place = {"xanchor": "right" if before else "left", "yanchor": "middle"}
    at = start if before else start + amount
    return draw.note(f" {amount:,.3g} GiB ", at, row, "ink", 11, **place)
