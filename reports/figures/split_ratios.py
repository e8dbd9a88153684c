"""Draws which numbers of replicas that prefill and that decode hold a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import legend
from reports.frame import theme
from sim.planning.answers.drawings import SplitRatios
from sim.planning.points.wording import LoadOutcome, share

LOOKS = {
    LoadOutcome.HOLDS: ("good", "circle"),
    LoadOutcome.OPEN: ("warn", "diamond"),
    LoadOutcome.FAILS: ("bad", "x"),
}
"""Colour and symbol of each outcome."""


def figure(ratios: SplitRatios) -> go.Figure:
    """A point for each fleet that was simulated, with its share of requests within the SLO."""
    traces, tried = [], ratios.tried
    for outcome, (tone, symbol) in LOOKS.items():
        mine = [one for one in tried if one.outcome == outcome]
        if not mine:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": outcome,
                "x": [one.prefill for one in mine],
                "y": [one.decode for one in mine],
                "text": ["" if one.share is None else share(one.share) for one in mine],
                "textposition": "top center",
                "marker": {"size": 13, "symbol": symbol, "color": theme.PAGE[tone].light},
                "customdata": [one.usd for one in mine],
                "cliponaxis": False,
                "hovertemplate": "%{x} prefill, %{y} decode: $%{customdata:,.2f}/h, %{text} within "
                f"the SLO<extra>{outcome}</extra>",
            }
        )
    layout = theme.layout() | {
        "xaxis": _axis("replicas that prefill", [one.prefill for one in tried]),
        "yaxis": _axis("replicas that decode", [one.decode for one in tried]),
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(),
    }
    return go.Figure(data=traces, layout=layout)


def _axis(title: str, counts: Sequence[int]) -> dict[str, Any]:
    """Whole numbers, with room for labels."""
    low, high = min(counts), max(counts)
    return theme.axis(title) | {
        "dtick": max(1, (high - low) // 8),
        "range": [low - 0.6, high + 0.7],
    }
