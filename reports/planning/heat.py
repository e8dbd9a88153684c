"""Draws one metric of a sweep over a grid of two values, as colours.

Run it: ``python -m reports.planning.heat [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain
from reports.planning.series import written

MOST_TEXTS = 12
"""Columns up to which every field shows its value."""

MOST_LONG = 5
"""Columns up to which it does so with all digits."""


class Metric(NamedTuple):
    """A metric that can be drawn: its title with its unit, its definition, what it is multiplied
    with, and whether colours go by its logarithm."""

    title: str
    definition: str
    factor: float = 1.0
    logarithmic: bool = False


METRICS: Mapping[str, Metric] = {
    "p99_ttft_ms": Metric("TTFT p99 (ms)", "ttft", logarithmic=True),
    "output_throughput": Metric("Output tokens/s", "output_throughput"),
    "attainment": Metric("Within SLO (%)", "attainment", factor=100.0),
}


def figure(document: Mapping[str, Any], metric: str) -> go.Figure:
    """``metric`` (a key of ``METRICS``) over the two axes of a sweep; failed points stay empty."""
    across, up = document["axes"]
    columns, rows = sorted(across["values"]), sorted(up["values"])
    found = {
        (row["settings"][across["key"]], row["settings"][up["key"]]): value_of(row, metric)
        for row in document["results"]
    }
    values = [[found.get((x, y)) for x in columns] for y in rows]
    wanted = METRICS[metric]
    trace = {
        "type": "heatmap",
        "x": _labels(columns),
        "y": _labels(rows),
        "z": [[_shade(value, wanted) for value in line] for line in values],
        "customdata": values,
        "text": [[_short(value, len(columns)) for value in line] for line in values],
        "texttemplate": "%{text}" if len(columns) <= MOST_TEXTS else None,
        "textfont": {"color": theme.PAGE["ink"].light},
        "colorscale": [[0, theme.PAGE["neutral-soft"].light], [1, theme.PAGE["bar"].light]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": f"%{{x}}, %{{y}}: %{{customdata:,.4~g}}, {wanted.title}<extra></extra>",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(plain(across["name"])) | {"type": "category", "showgrid": False},
        "yaxis": theme.axis(plain(up["name"])) | {"type": "category", "showgrid": False},
    }
    return go.Figure(data=[trace], layout=layout)


def value_of(row: Mapping[str, Any], metric: str) -> float | None:
    """What a point has of ``metric``, in the unit of its title; None if it has none."""
    summary = row["summary"]
    if summary is None:
        return None
    own = summary["infersim"]["verdict"] if metric == "attainment" else summary
    value = own[metric]
    return METRICS[metric].factor * float(value) if value is not None and isfinite(value) else None


def _shade(value: float | None, metric: Metric) -> float | None:
    """What the colour goes by."""
    if value is None or (metric.logarithmic and value <= 0):
        return None
    return log10(value) if metric.logarithmic else value


def _labels(values: Sequence[float]) -> list[str]:
    """The values of an axis in four digits, or more where these do not tell them apart."""
    short = [f"{value:.4g}" for value in values]
    return short if len(set(short)) == len(short) else [written(value) for value in values]


def _short(value: float | None, columns: int) -> str:
    """The text of a field; in thousands where there is little room."""
    if value is None:
        return ""
    if abs(value) >= 1e4 and columns > MOST_LONG:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import grid_sweep

    main("heat", lambda document: figure(document, "p99_ttft_ms"), grid_sweep)
