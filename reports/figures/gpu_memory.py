"""Draws what the memory of one GPU holds when its KV cache is fullest: a bar for each part.

Each bar begins where the one above it ends, so that together they reach from nothing to the whole
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.memory_parts import TITLES, Memory
from reports.frame import theme

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
    layout = theme.layout() | {
        "height": FRAME + ROW * len(rows),
        "hovermode": "closest",
        "xaxis": theme.axis("memory of one GPU (GiB)")
        | {"range": [0, max(end, at)], "fixedrange": True},
        "yaxis": theme.axis(None)
        | {
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [f"{NAMES[name]} " for name, _, _ in rows],
            "tickfont": {"color": theme.PAGE["ink"].light, "size": 11},
            "showgrid": False,
            "fixedrange": True,
        },
    }
    layout["annotations"] = [
        _label(row, start, amount, max(end, at)) for row, (_, start, amount) in enumerate(rows)
    ]
    traces = [_part(row, *part, found) for row, part in enumerate(rows)]
    return go.Figure(data=traces, layout=layout)


def _part(row: int, name: str, start: float, amount: float, found: Memory) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": NAMES[name],
        "x": [amount],
        "base": [start],
        "y": [row],
        "width": 0.72,
        "customdata": [found.parts[name] / found.total],
        "marker": {"color": theme.MEMORY[name].light},
        "hovertemplate": (
            f"{TITLES[name]}: {amount:,.4g} GiB, %{{customdata:.1%}} of the memory<extra></extra>"
        ),
    }


def _label(row: int, start: float, amount: float, end: float) -> dict[str, Any]:
    """The number, on the side of its bar that has room."""
    before = start + amount > LATE * end
    return {
        "x": start if before else start + amount,
        "y": row,
        "text": f" {amount:,.3g} GiB ",
        "showarrow": False,
        "xanchor": "right" if before else "left",
        "yanchor": "middle",
        "font": {"color": theme.PAGE["ink"].light, "size": 11},
    }
