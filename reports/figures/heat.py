"""Draws one metric of a sweep over a grid of two values, as colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.naming import axis_name, plain
from reports.figures.series import written
from reports.frame import theme
from reports.frame.scale import time_scale
from sim.metrics.terms.definitions import METRIC
from sim.planning.points.slo_state import meets
from sim.planning.points.wording import latency_ms, rank, slo_percentile
from sim.units import show_load

MOST_TEXTS = 12
"""Columns up to which every field shows its value."""

MOST_LONG = 5
"""Columns up to which it does so with all digits."""


METRICS = ("ttft", "output_throughput", "attainment")
"""What can be drawn: TTFT at the percentile of the SLO, throughput, the share within the SLO."""


class HeatValue(NamedTuple):
    """A metric of every point: its title with its unit, its values (None: it has none) in the order
    of the results, and whether colours go by their logarithm."""

    title: str
    values: list[float | None]
    logarithmic: bool = False


def figure(document: Mapping[str, Any], metric: str) -> go.Figure:
    """``metric`` (a key of ``METRICS``) over the two axes of a sweep; failed points stay empty."""
    across, up = document["axes"]
    columns, rows = sorted(across["values"]), sorted(up["values"])
    wanted = shown(document, metric)
    found_rows = {
        (row["settings"][across["key"]], row["settings"][up["key"]]): row
        for row in document["results"]
    }
    found = {
        (row["settings"][across["key"]], row["settings"][up["key"]]): value
        for row, value in zip(document["results"], wanted.values, strict=True)
    }
    values = [[found.get((x, y)) for x in columns] for y in rows]
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
        "xaxis": theme.axis(plain(axis_name(across["name"])))
        | {"type": "category", "showgrid": False},
        "yaxis": theme.axis(plain(axis_name(up["name"]))) | {"type": "category", "showgrid": False},
    }
    met = [[_met(found_rows.get((x, y))) for x in columns] for y in rows]
    layout["shapes"] = _border(met)
    return go.Figure(data=[trace], layout=layout)


def _met(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["summary"] is not None and meets(row["summary"])


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


def shown(document: Mapping[str, Any], metric: str) -> HeatValue:
    """``metric`` of every point of a sweep."""
    summaries = [row["summary"] for row in document["results"]]
    if metric == "ttft":
        return _ttft(summaries)
    if metric == "attainment":
        of_points = [each and each["infersim"]["verdict"]["attainment"] for each in summaries]
        return HeatValue("Within SLO (%)", [_times(100.0, value) for value in of_points])
    rates = [each and each["output_throughput"] for each in summaries]
    return HeatValue(METRIC["output_throughput"].head, [_times(1.0, value) for value in rates])


def _ttft(summaries: Sequence[Mapping[str, Any] | None]) -> HeatValue:
    at = slo_percentile([each for each in summaries if each is not None], "ttft")
    latencies = [None if each is None else latency_ms(each, "ttft", at) for each in summaries]
    drawn = [value for value in latencies if value is not None and isfinite(value)]
    unit, factor = time_scale(max(drawn, default=0.0) / 1e3)
    values = [_times(factor / 1e3, value) for value in latencies]
    return HeatValue(f"TTFT {rank(at / 100)} ({unit})", values, logarithmic=True)


def _times(factor: float, value: float | None) -> float | None:
    return factor * float(value) if value is not None and isfinite(value) else None


def _shade(value: float | None, metric: HeatValue) -> float | None:
    """What the colour goes by."""
    if value is None or (metric.logarithmic and value <= 0):
        return None
    return log10(value) if metric.logarithmic else value


def _labels(values: Sequence[float]) -> list[str]:
    """The values of an axis in four digits, or more where these do not tell them apart."""
    short = [show_load(value) for value in values]
    return short if len(set(short)) == len(short) else [written(value) for value in values]


def _short(value: float | None, columns: int) -> str:
    """The text of a field; in thousands where there is little room."""
    if value is None:
        return ""
    if abs(value) >= 1e4 and columns > MOST_LONG:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
