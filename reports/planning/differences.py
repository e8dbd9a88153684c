"""How far are variants from the first one? Relative differences of one figure with intervals.

Percent of the base's value; the line at 0 is the base. Run it: ``python -m
reports.planning.differences [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain

MOST_ROWS = 24
"""Variants that one figure shows."""


def figure(document: Mapping[str, Any], key: str) -> go.Figure:
    """The differences of the figure called ``key`` (of the document's ``figures``).

    Green is better than the base, red is worse, grey cannot be told from it.
    """
    found = next(entry for entry in document["figures"] if entry["key"] == key)
    rows = [
        (plain(variant["label"]), apart)
        for variant, apart in zip(document["variants"], found["differences"], strict=True)
        if apart is not None and apart["relative"] is not None
    ][:MOST_ROWS]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [100 * apart["relative"] for _, apart in rows],
        "y": [label for label, _ in rows],
        "marker": {"size": 9, "color": [_colour(apart, found["better"]) for _, apart in rows]},
        "error_x": {
            "type": "data",
            "array": [100 * (apart["relative_half_width"] or 0.0) for _, apart in rows],
            "color": theme.GREY.light,
            "thickness": 1.5,
            "width": 4,
        },
        "hovertemplate": "%{x:+.3~g} % ± %{error_x.array:.2~g}<extra></extra>",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(f"{found['title']}, difference (%)"),
        "yaxis": theme.axis(None) | {"type": "category", "autorange": "reversed"},
        "hovermode": "closest",
        "shapes": [
            {
                "type": "line",
                "yref": "paper",
                "x0": 0,
                "x1": 0,
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.PAGE["ink"].light, "width": 1.5},
            }
        ],
    }
    return go.Figure(data=[trace], layout=layout)


def _colour(apart: Mapping[str, Any], better: str) -> str:
    if not apart["certain"]:
        return theme.GREY.light
    good = (apart["mean"] > 0) == (better == "higher")
    return (theme.GREEN if good else theme.VERMILLION).light


if __name__ == "__main__":
    from reports.planning.demo import made_up_comparison, main

    main("differences", lambda document: figure(document, "p99_ttft_ms"), made_up_comparison)
