"""Draws what the cheapest fleets cost per hour: bars, with what they would cost at both ends of the
error band as whiskers."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import label
from reports.frame import draw, theme
from sim.planning.answers.drawings import FleetCosts


def figure(costs: FleetCosts) -> go.Figure:
    """The fleets of a plan by rank, the cheapest on top, in dollars per hour.

    A whisker ends where the fleet needs fewer replicas because iterations are faster than
    predicted, and more because they are slower; an end at which no number of replicas holds is left
    out.
    """
    fleets = costs.fleets
    lows = [min(each.usd, each.usd if each.fewest is None else each.fewest) for each in fleets]
    highs = [max(each.usd, each.usd if each.most is None else each.most) for each in fleets]
    first, rest = theme.RAMP[2].light, theme.PHASES["queue"].light  # whiskers stand out from both
    trace = draw.bars(
        [fleet.usd for fleet in fleets],
        [label(fleet.name) for fleet in fleets],
        [first if place == 0 else rest for place in range(len(fleets))],
        "%{y}: $%{x:,.2f}/h ($%{customdata[0]:,.2f} to $%{customdata[1]:,.2f})<extra></extra>",
        error_x=draw.spread(
            [fleet.usd - low for low, fleet in zip(lows, fleets, strict=True)],
            [high - fleet.usd for high, fleet in zip(highs, fleets, strict=True)],
            theme.PAGE["ink"].light,
        ),
        text=[f"${fleet.usd:,.2f}" for fleet in fleets],
        textposition="inside",
        insidetextanchor="start",
        textfont=theme.text("ink", 12),
        customdata=list(zip(lows, highs, strict=True)),
    )
    cost = theme.axis("cost (USD per hour)", rangemode="tozero")
    return draw.assemble([trace], cost, draw.names(), height=height(len(fleets), 30))
