"""Draws a latency over the load, at the share of requests that the SLO asks for, for all probes.

Latencies in milliseconds, or seconds where they are long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.profile.axes import legend
from sim.planning.wording import limit_name, rank

WIDE = 30.0
"""Largest over smallest latency from which on the axis is logarithmic."""

OUTCOMES = (
    ("holds", "good", "circle"),
    ("too close to call", "warn", "diamond"),
    ("fails", "bad", "x"),
)
"""Outcome of a load, with its colour and symbol."""


def figure(document: Mapping[str, Any], metric: str) -> go.Figure:
    """``metric`` (``ttft``, ``tpot``), at the percentile of the SLO, for every load that was
    simulated; the region within the SLO is shaded, the scenario's own load and the knee are
    marked."""
    key, limit = f"slo_{metric}_ms", document["limits_ms"].get(metric)
    probes = [probe for probe in document["probes"] if probe[key]]
    values = [probe[key] for probe in probes] or [1.0]
    wide = max(values) > WIDE * min(values)
    top = max([*values, limit or 0.0]) * (1.5 if wide else 1.08)
    low = min([*values, limit or values[0]]) / 1.5 if wide else 0.0
    axis = {"type": "log", "dtick": 1} if wide else {"range": [0, top]}
    loads = [probe["load"] for probe in document["probes"]]
    right = max(loads) * 1.04
    layout = theme.layout() | {
        "xaxis": theme.axis(f"load ({document['unit']})") | {"range": [0, right]},
        "yaxis": theme.axis(f"{metric.upper()} {rank(document['shares'][metric])} (ms)") | axis,
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    traces: list[dict[str, Any]] = []
    if limit is not None:
        traces.append(_region(document, limit, low))
    traces.append(_line(probes, key, metric))
    traces += [_points(probes, key, *outcome) for outcome in OUTCOMES]
    ends = (low or 0.0, top)
    if document["own"] is not None:
        traces.append(_mark(document["own"]["load"], ends, "own load", "dot"))
    if document["knee"] is not None:
        traces.append(_mark(document["knee"]["load"], ends, "knee", "dash"))
    return go.Figure(data=traces, layout=layout)


def _region(document: Mapping[str, Any], limit: float, low: float) -> dict[str, Any]:
    """Up to the highest load that holds and up to the limit."""
    right, bottom = document["load"], low or 0.0
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "within the SLO",
        "x": [0, 0, right, right],
        "y": [bottom, limit, limit, bottom],
        "fill": "toself",
        "fillcolor": theme.faint(theme.GREEN).light,
        "line": {"color": theme.GREEN.light, "width": 1},
        "hoverinfo": "skip",
    }


def _line(probes: list[Mapping[str, Any]], key: str, metric: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [probe["load"] for probe in probes],
        "y": [probe[key] for probe in probes],
        "line": {"color": theme.METRICS[metric].light, "width": 2},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _points(
    probes: list[Mapping[str, Any]], key: str, outcome: str, color: str, symbol: str
) -> dict[str, Any]:
    mine = [probe for probe in probes if probe["outcome"] == outcome]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [probe["load"] for probe in mine],
        "y": [probe[key] for probe in mine],
        "text": [
            f"{probe['runs']} runs"
            + _open(probe)
            + ("" if probe["holds"] else f", {limit_name(probe['breaks'])} breaks")
            for probe in mine
        ],
        "marker": {"size": 9, "symbol": symbol, "color": theme.PAGE[color].light},
        "hovertemplate": "%{x:.4~g}: %{y:,.4~g} ms, %{text}<extra></extra>",
    }


def _open(probe: Mapping[str, Any]) -> str:
    count = probe["requests_to_decide"]
    return "" if count is None else f", about {count:,} requests would decide"


def _mark(load: float, ends: tuple[float, float], name: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} {load:.3g}",
        "x": [load, load],
        "y": list(ends),
        "line": {"color": theme.PAGE["muted"].light, "width": 1.5, "dash": dash},
        "hoverinfo": "skip",
    }


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import highest_load

    main("find_curve", lambda document: figure(document, "ttft"), highest_load)
