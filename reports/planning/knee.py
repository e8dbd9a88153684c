"""Up to which load do latencies stay low? One latency's p99 over the load, a line for each variant.

Milliseconds, on a logarithmic axis. Overloaded points are hollow: with more requests they would be
slower still. Run it: ``python -m reports.planning.knee [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain
from reports.planning.series import MOST_LINES, Line, limits, lines, style
from reports.profile.axes import legend, logarithmic

UNITS = {"rate": "requests/s", "concurrency": "users"}
"""What a load is counted in, by the last step of its key."""


def figure(document: Mapping[str, Any], latency: str) -> go.Figure:
    """The p99 of ``latency`` (ttft, tpot) over the load of a sweep that has one."""
    key = document["load"]
    found = lines(document, key)[:MOST_LINES]
    traces = [_trace(line, index, key, latency) for index, line in enumerate(found)]
    drawn = [value for trace in traces for value in trace["y"] if value]
    unit = UNITS[key.rpartition(".")[2]]
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({unit})") | {"rangemode": "tozero"},
        "yaxis": logarithmic(f"p99 {latency.upper()} (ms)", drawn or [1.0, 10.0]),
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
        "shapes": [_limit(value) for value in limits(document_rows(found), latency)],
    }
    return go.Figure(data=traces, layout=layout)


def document_rows(found: list[Line]) -> list[Mapping[str, Any]]:
    """The points of all lines."""
    return [row for line in found for row in line.rows]


def _trace(line: Line, index: int, key: str, latency: str) -> dict[str, Any]:
    colour, dash = style(index)
    rows = [row for row in line.rows if row["summary"][f"p99_{latency}_ms"] is not None]
    states = [row["summary"]["infersim"]["verdict"]["state"] for row in rows]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(line.label),
        "x": [row["settings"][key] for row in rows],
        "y": [row["summary"][f"p99_{latency}_ms"] for row in rows],
        "customdata": states,
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {
            "size": 7,
            "color": colour,
            "symbol": ["circle-open" if state == "overloaded" else "circle" for state in states],
        },
        "hovertemplate": "%{x:.4~g}: %{y:,.4~g} ms, %{customdata}",
    }


def _limit(milliseconds: float) -> dict[str, Any]:
    """A dashed line across the figure."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": milliseconds,
        "y1": milliseconds,
        "line": {"color": theme.PAGE["ink"].light, "width": 1.5, "dash": "dash"},
    }


if __name__ == "__main__":
    from reports.planning.demo import made_up_sweep, main

    main("knee", lambda document: figure(document, "ttft"), made_up_sweep)
