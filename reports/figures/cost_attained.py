"""Draws variants of a comparison by what they cost and by how many requests are within the SLO.

Down and right is dearer and worse: what stands up and left of another variant is better in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports.figures import variants
from reports.figures.axes import legend
from reports.figures.naming import plain
from reports.figures.series import styles
from reports.frame import theme
from sim.units import PER_OUTPUT_TOKENS

COST, ATTAINED = "cost.usd_per_million_output_tokens", "verdict.attainment"
"""The figures of both axes."""


def figure(document: Mapping[str, Any]) -> go.Figure | None:
    """A point for each variant, as ``differences`` names them; None unless two have both
    figures."""
    means = {entry["key"]: entry["means"] for entry in document["figures"]}
    if COST not in means or ATTAINED not in means:
        return None
    pairs = list(zip(means[COST], means[ATTAINED], strict=True))
    known = [at for at, pair in enumerate(pairs) if None not in pair]
    if len(known) < 2 or len(known) > variants.MOST_ROWS:
        return None
    labels, looks = variants.names(document), styles([{} for _ in known])
    traces = []
    for at, look in zip(known, looks, strict=True):
        name = plain(labels[at].replace("<br>", " "))
        hollow = look.dash != "solid"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [pairs[at][0]],
                "y": [pairs[at][1]],
                "marker": {
                    "size": 11,
                    "color": look.color,
                    "symbol": "circle-open" if hollow else "circle",
                },
                "cliponaxis": False,
                "hovertemplate": f"{name}<br>$%{{x:,.4~g}}, %{{y:.2%}}<extra></extra>",
            }
        )
    pad = max(0.02, 0.1 * (1 - min(pairs[at][1] for at in known)))
    lowest = max(0.0, min(pairs[at][1] for at in known) - pad)
    layout = theme.layout() | {
        "xaxis": theme.axis(PER_OUTPUT_TOKENS) | {"rangemode": "tozero"},
        "yaxis": theme.axis("requests within the SLO")
        | {"tickformat": ".0%", "range": [lowest, 1 + pad]},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)
