"""What does throughput cost in latency? Every point of a sweep by its tokens per second and p99.

Run it: ``python -m reports.planning.tradeoff [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain
from reports.planning.series import style
from reports.profile.axes import legend, logarithmic

MOST_COLOURS = len(theme.SERIES)


def figure(document: Mapping[str, Any]) -> go.Figure:
    """Output tokens per second (across) and p99 TTFT in ms (up) of every point with both.

    Points are coloured by the first axis, if it has few values.
    """
    first = document["axes"][0]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["results"]:
        summary = row["summary"]
        if summary is not None and summary["output_throughput"] and summary["p99_ttft_ms"]:
            value = str(row["settings"][first["key"]])
            groups.setdefault(value, []).append(row)
    if len(groups) > MOST_COLOURS:
        groups = {"": [row for rows in groups.values() for row in rows]}
    traces = [
        _trace(f"{first['name']}={value}" if value else "", rows, style(index)[0])
        for index, (value, rows) in enumerate(groups.items())
    ]
    drawn = [value for trace in traces for value in trace["y"]]
    layout = theme.layout() | {
        "xaxis": theme.axis("output tokens/s") | {"rangemode": "tozero"},
        "yaxis": logarithmic("p99 TTFT (ms)", drawn or [1.0, 10.0]),
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


def _trace(name: str, rows: list[Mapping[str, Any]], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": [row["summary"]["output_throughput"] for row in rows],
        "y": [row["summary"]["p99_ttft_ms"] for row in rows],
        "customdata": [plain(row["label"]) for row in rows],
        "marker": {"size": 8, "color": colour},
        "hovertemplate": "%{customdata}<br>%{x:,.4~g} tokens/s, %{y:,.4~g} ms<extra></extra>",
    }


if __name__ == "__main__":
    from reports.planning.demo import made_up_grid, main

    main("tradeoff", figure, made_up_grid)
