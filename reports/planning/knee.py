"""Up to which load do latencies stay low? One latency's p99 over the load, a line for each variant.

Seconds, on a logarithmic axis; what is within the SLO is shaded. Overloaded points are hollow: with
more requests they would be slower still. Run it: ``python -m reports.planning.knee
[RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.layout import known, limit_line, times, within
from reports.planning.naming import plain
from reports.planning.series import MOST_LINES, Line, Style, limits, lines, styles
from reports.profile.axes import legend

UNITS = {"rate": "requests/s", "concurrency": "users"}
"""What a load is counted in, by the last step of its key."""


def figure(document: Mapping[str, Any], latency: str) -> go.Figure:
    """The p99 of ``latency`` (ttft, tpot) over the load of a sweep that has one."""
    key = document["load"]
    found = lines(document, key)[:MOST_LINES]
    looks = styles([line.rows[0]["settings"] for line in found])
    traces = [_trace(line, look, key, latency) for line, look in zip(found, looks, strict=True)]
    allowed = limits([row for line in found for row in line.rows], latency)
    drawn = [1e3 * value for trace in traces for value in trace["y"]]
    axis = times(f"{latency.upper()} p99", [*drawn, *allowed])
    bottom = 10 ** axis["range"][0]
    shapes = [limit_line(limit / 1e3) for limit in allowed]
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({UNITS[key.rpartition('.')[2]]})") | {"rangemode": "tozero"},
        "yaxis": axis,
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
        "shapes": within(allowed[0] / 1e3, bottom) if len(allowed) == 1 else shapes,
    }
    return go.Figure(data=traces, layout=layout)


def _trace(line: Line, look: Style, key: str, latency: str) -> dict[str, Any]:
    name = f"p99_{latency}_ms"
    rows = [row for row in line.rows if known(row["summary"][name])]
    states = [row["summary"]["infersim"]["verdict"]["state"] for row in rows]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(line.label),
        "x": [row["settings"][key] for row in rows],
        "y": [row["summary"][name] / 1e3 for row in rows],
        "customdata": states,
        "line": {"color": look.color, "width": 2, "dash": look.dash},
        "marker": {
            "size": 7,
            "color": look.color,
            "symbol": ["circle-open" if state == "overloaded" else "circle" for state in states],
        },
        "hovertemplate": "%{x:.4~g}: %{y:.4~s}s, %{customdata}",
    }


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import load_sweep

    main("knee", lambda document: figure(document, "ttft"), load_sweep)
