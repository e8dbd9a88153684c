"""Draws which numbers of replicas that prefill and that decode hold a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.frame import draw, theme
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
            draw.points(
                [one.prefill for one in mine],
                [one.decode for one in mine],
                {"size": 13, "symbol": symbol, "color": theme.PAGE[tone].light},
                outcome,
                "%{x} prefill, %{y} decode: $%{customdata:,.2f}/h, %{text} within the SLO"
                f"<extra>{outcome}</extra>",
                text=["" if one.share is None else share(one.share) for one in mine],
                textposition="top center",
                customdata=[one.usd for one in mine],
                cliponaxis=False,
            )
        )
    return draw.assemble(
        traces,
        _axis("replicas that prefill", [one.prefill for one in tried]),
        _axis("replicas that decode", [one.decode for one in tried]),
        showlegend=True,
    )


def _axis(title: str, counts: Sequence[int]) -> dict[str, Any]:
    """Whole numbers, with room for labels."""
    low, high = min(counts), max(counts)
    return theme.axis(title, dtick=max(1, (high - low) // 8), range=[low - 0.6, high + 0.7])
