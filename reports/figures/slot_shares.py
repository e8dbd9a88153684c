"""Draws what the slots of several runs did with their time: a stacked bar of shares for each."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import label
from reports.figures.slots import HATCH, LABELS
from reports.frame import draw, theme
from reports.frame.formats import NARROW_SPACE
from sim.trails.slots import Phase

ROOM = 0.06
"""The share from which on a part has room for its number."""


def figure(runs: Mapping[str, Mapping[Phase, float]]) -> go.Figure:
    """The runs by their names, with the seconds that taken slots spent in each phase."""
    shares = [
        {phase: seconds / sum(spent.values()) for phase, seconds in spent.items()}
        for spent in runs.values()
    ]
    traces = []
    for phase, title in LABELS.items():
        values = [each.get(phase, 0.0) for each in shares]
        if any(values):
            traces.append(
                draw.bars(
                    [100 * value for value in values],
                    list(map(label, runs)),
                    theme.PHASES[phase].light,
                    f"{title}: %{{x:.3~g}}{NARROW_SPACE}%<extra></extra>",
                    name=title,
                    marker=HATCH if phase == "padding" else {},
                    text=[
                        f"{v:.0%}".replace("%", f"{NARROW_SPACE}%") if v > ROOM else ""
                        for v in values
                    ],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont=theme.text("surface" if phase in ("decode", "prefill") else "ink", 12),
                )
            )
    return draw.assemble(
        traces,
        theme.axis("share of the time of taken slots (%)", range=[0, 100]),
        draw.names(),
        barmode="stack",
        height=height(len(runs), 34) + 24,
        showlegend=True,
        legend={"traceorder": "normal"},
    )
