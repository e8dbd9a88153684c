"""Draws what the cheapest fleets cost per hour: bars, with what they would cost at both ends of the
error band as whiskers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import label
from reports.frame import theme
from sim.planning.points.wording import fleet_text


def figure(document: Mapping[str, Any]) -> go.Figure:
    """The fleets of a plan by rank, the cheapest on top, in dollars per hour.

    A whisker ends where the fleet needs fewer replicas because iterations are faster than
    predicted, and more because they are slower; an end at which no number of replicas holds is left
    out.
    """
    fleets = document["fleets"]
    costs = [float(fleet["usd_per_hour"]) for fleet in fleets]
    ends = [fleet["error_band"]["usd_per_hour"] for fleet in fleets]
    lows = [
        min(cost, cost if low is None else low) for cost, (low, _) in zip(costs, ends, strict=True)
    ]
    highs = [
        max(cost, cost if high is None else high)
        for cost, (_, high) in zip(costs, ends, strict=True)
    ]
    first, rest = theme.RAMP[2].light, theme.PHASES["queue"].light  # whiskers stand out from both
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [
            label(f"{fleet['rank']}. {fleet_text(fleet['replicas'], fleet['layout'])}")
            for fleet in fleets
        ],
        "x": costs,
        "marker": {"color": [first if place == 0 else rest for place in range(len(fleets))]},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - cost for high, cost in zip(highs, costs, strict=True)],
            "arrayminus": [cost - low for low, cost in zip(lows, costs, strict=True)],
            "color": theme.PAGE["ink"].light,
            "thickness": 1.5,
        },
        "text": [f"${cost:,.2f}" for cost in costs],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textfont": {"color": theme.PAGE["ink"].light, "size": 12},
        "customdata": list(zip(lows, highs, strict=True)),
        "hovertemplate": "%{y}: $%{x:,.2f}/h ($%{customdata[0]:,.2f} to $%{customdata[1]:,.2f})"
        "<extra></extra>",
    }
    layout = theme.layout() | {
        "height": height(len(fleets), 30),
        "xaxis": theme.axis("cost (USD per hour)") | {"rangemode": "tozero"},
        "yaxis": theme.axis(None) | {"type": "category", "autorange": "reversed"},
        "hovermode": "closest",
    }
    return go.Figure(data=[trace], layout=layout)
