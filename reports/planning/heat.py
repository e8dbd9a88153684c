"""Where in a grid of two values is it good? One figure of the summary as colour.

Run it: ``python -m reports.planning.heat [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain

METRICS: Mapping[str, str] = {
    "p99_ttft_ms": "p99 TTFT (ms)",
    "output_throughput": "output tokens/s",
}
"""What can be drawn -> its title with its unit."""

LOGARITHMIC = frozenset({"p99_ttft_ms"})
"""Figures that span decades, whose colours go by the logarithm."""


def figure(document: Mapping[str, Any], metric: str) -> go.Figure:
    """``metric`` (a key of ``METRICS``) over the two axes of a sweep; failed points stay empty."""
    across, up = document["axes"]
    columns, rows = sorted(across["values"]), sorted(up["values"])
    found = {
        (row["settings"][across["key"]], row["settings"][up["key"]]): row["summary"][metric]
        for row in document["results"]
        if row["summary"] is not None
    }
    values = [[found.get((x, y)) for x in columns] for y in rows]
    title = METRICS[metric]
    trace = {
        "type": "heatmap",
        "x": [f"{x:g}" for x in columns],
        "y": [f"{y:g}" for y in rows],
        "z": [[_height(value, metric) for value in line] for line in values],
        "customdata": values,
        "text": [["" if v is None else _short(v) for v in line] for line in values],
        "texttemplate": "%{text}" if len(columns) <= 12 else None,
        "colorscale": [[0, theme.PAGE["neutral-soft"].light], [1, theme.PAGE["bar"].light]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": f"%{{x}}, %{{y}}: %{{customdata:,.4~g}} {title}<extra></extra>",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(plain(across["name"])) | {"type": "category", "showgrid": False},
        "yaxis": theme.axis(plain(up["name"])) | {"type": "category", "showgrid": False},
    }
    return go.Figure(data=[trace], layout=layout)


def _height(value: float | None, metric: str) -> float | None:
    """What the colour goes by."""
    if value is None or (metric in LOGARITHMIC and value <= 0):
        return None
    return log10(value) if metric in LOGARITHMIC else value


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    from reports.planning.demo import made_up_grid, main

    main("heat", lambda document: figure(document, "p99_ttft_ms"), made_up_grid)
