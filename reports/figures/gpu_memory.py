"""Draws what the memory of one GPU holds when its KV cache is fullest: a bar for each part.

Each bar begins where the one above it ends, so that together they reach from nothing to the whole
memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from reports.figures.memory_parts import TITLES, Memory
from reports.frame import draw, theme

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
