"""Draws what fleets cost over the load: steps, with and without a replica to spare."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.frame import draw, theme
from sim.planning.answers.drawings import CostOverLoad


def figure(drawn: CostOverLoad) -> go.Figure:
    """Dollars per hour over requests per second, a colour for each layout, dashed where a replica
    more than needed is there."""
    names = list(dict.fromkeys(line.name for line in drawn.lines))
    traces = []
    for line in drawn.lines:
        tone = theme.GPUS[names.index(line.name) % len(theme.GPUS)]
        spare = " and one to spare" if line.spare else ""
        traces.append(
            draw.line(
                list(line.loads),
                list(line.usd),
                tone.light,
                f"{line.name}{spare}",
                hover=f"{line.name}{spare}: $%{{y:,.2f}}/h up to %{{x:.3g}}/s<extra></extra>",
                width=1.5 if line.spare else 2.5,
                dash="dash" if line.spare else "solid",
                shape="vh",
                legendgroup=line.name,
                showlegend=not line.spare,
            )
        )
    return draw.assemble(
        traces,
        theme.axis("load (requests/s)"),
        theme.axis("cost (USD per hour)", rangemode="tozero"),
        showlegend=True,
    )
