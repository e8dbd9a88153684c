"""Draws the fields of two values: the darker a field, the larger its metric."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

import plotly.graph_objects as go

from reports.figures.series import plain
from reports.frame import draw, theme
from sim.planning.answers.drawings import Grid

MOST_TEXTS = 12
"""Columns up to which every field shows its value."""

MOST_LONG = 5
"""Columns up to which it does so with all digits."""


def heat(grid: Grid) -> go.Figure:
    """The metric over both values; failed points stay empty."""
    count = len(grid.columns)
    trace = {
        "type": "heatmap",
        "x": grid.columns,
        "y": grid.rows,
        "z": [[_shade(value, grid.logarithmic) for value in row] for row in grid.values],
        "customdata": grid.values,
        "text": [[_short(value, count) for value in row] for row in grid.values],
        "texttemplate": "%{text}" if count <= MOST_TEXTS else None,
        "colorscale": [[0, theme.PAGE["neutral-soft"].light], [1, theme.PAGE["bar"].light]],
        "textfont": theme.text("ink", 12),
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": f"%{{x}}, %{{y}}: %{{customdata:,.4~g}}, {grid.title}<extra></extra>",
    }
    kind = {"type": "category", "showgrid": False}
    return draw.assemble(
        [trace],
        theme.axis(plain(grid.across), **kind),
        theme.axis(plain(grid.up), **kind),
        shapes=_border(grid.met),
    )


def _border(met: Sequence[Sequence[bool]]) -> list[dict[str, Any]]:
    """A line between each field that meets the SLO and each neighbour that does not."""
    line = {"color": theme.PAGE["good"].light, "width": 3}
    shapes = []
    for j, fields in enumerate(met):
        for i, here in enumerate(fields):
            if i + 1 < len(fields) and here != fields[i + 1]:
                shapes.append({"x0": i + 0.5, "x1": i + 0.5, "y0": j - 0.5, "y1": j + 0.5})
            if j + 1 < len(met) and here != met[j + 1][i]:
                shapes.append({"x0": i - 0.5, "x1": i + 0.5, "y0": j + 0.5, "y1": j + 0.5})
    return [{"type": "line", "line": line, **shape} for shape in shapes]


def _shade(value: float | None, logarithmic: bool) -> float | None:
    """The value behind the colour."""
    if value is None or (logarithmic and value <= 0):
        return None
    return log10(value) if logarithmic else value


def _short(value: float | None, columns: int) -> str:
    """The text of a field; in thousands where there is little room."""
    if value is None:
        return ""
    if abs(value) >= 1e4 and columns > MOST_LONG:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
