"""Draws a latency over the load of a sweep, at the percentile of the SLO: a line for each variant.

Seconds, on a logarithmic axis; the area within the SLO is shaded. Overloaded points are hollow:
with more requests they would be slower still.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.figures.layout import known, limit_line, times, within
from reports.figures.naming import MEASURED, plain
from reports.figures.series import MOST_LINES, Line, Style, limits, lines, styles
from reports.frame import theme
from sim.metrics.states import SloState, State
from sim.planning.points.wording import LoadOutcome, latency_ms, rank, slo_percentile, state_word


def figure(document: Mapping[str, Any], latency: str) -> go.Figure:
    """``latency`` (ttft, tpot) over the load of a sweep that has one."""
    key = document["load"]
    found = lines(document, key)[:MOST_LINES]
    rows = [row["summary"] for row in document["results"] if row["summary"] is not None]
    at = slo_percentile(rows, latency)
    looks = styles([line.rows[0]["settings"] for line in found])
    traces = [
        _trace(line, look, key, (latency, at)) for line, look in zip(found, looks, strict=True)
    ]
    allowed = limits([row for line in found for row in line.rows], latency, at)
    drawn = [1e3 * value for trace in traces for value in trace["y"]]
    axis = times(f"{latency.upper()} {rank(at / 100)}", [*drawn, *allowed])
    bottom = 10 ** axis["range"][0]
    shapes = [limit_line(limit / 1e3) for limit in allowed]
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({MEASURED[key.rpartition('.')[2]]})") | {"rangemode": "tozero"},
        "yaxis": axis,
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
        "shapes": within(allowed[0] / 1e3, bottom) if len(allowed) == 1 else shapes,
    }
    return go.Figure(data=traces, layout=layout)


def _trace(line: Line, look: Style, key: str, latency: tuple[str, float]) -> dict[str, Any]:
    found = [(row, latency_ms(row["summary"], *latency)) for row in line.rows]
    rows = [row for row, value in found if known(value)]
    verdicts = [row["summary"]["infersim"]["verdict"] for row in rows]
    states = [_said(verdict) for verdict in verdicts]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(line.label),
        "x": [row["settings"][key] for row in rows],
        "y": [value / 1e3 for _, value in found if value is not None and known(value)],
        "customdata": states,
        "line": {"color": look.color, "width": 2, "dash": look.dash},
        "marker": {
            "size": 7,
            "color": look.color,
            "symbol": [_symbol(verdict) for verdict in verdicts],
        },
        "hovertemplate": "%{x:.4~g}: %{y:.4~s}s, %{customdata}",
    }


def _said(verdict: Mapping[str, Any]) -> str:
    """The state of the fleet, and of its SLO if there is one."""
    slo = verdict["slo_state"]
    state = state_word(verdict)
    return state if slo is None else f"{state}, SLO {slo}"


def _symbol(verdict: Mapping[str, Any]) -> str:
    """Hollow if overloaded; else a diamond if the SLO is too close to call, a cross if missed."""
    if verdict["state"] == State.OVERLOADED:
        return "circle-open"
    return {LoadOutcome.OPEN: "diamond", SloState.MISSED: "x"}.get(verdict["slo_state"], "circle")
