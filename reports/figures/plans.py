"""Draws the fleets of a plan: what they cost, at which latency, at which load, in which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import height
from reports.figures.series import Style, label, styles
from reports.figures.sweeps import beside, front
from reports.frame import draw, theme
from reports.frame.draw import time_axis
from sim.planning.answers.drawings import (
    CostAndLatency,
    CostOverLoad,
    FleetCosts,
    SplitRatios,
    TradeGroup,
)
from sim.planning.points.wording import LoadOutcome, share
from sim.units import milliseconds, time_scale


def fleet_costs(costs: FleetCosts) -> go.Figure:
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


def cost_and_latency(drawn: CostAndLatency) -> go.Figure:
    """Every fleet that holds: dollars per hour against a latency at the percentile of the SLO,
    under the rate with its headroom."""
    points, limit = [point for group in drawn.groups for point in group.points], drawn.limit
    shown = time_scale(max([*(point.y for point in points), limit or 0.0]) / 1e3)
    factor = shown.factor / 1e3
    best = drawn.front
    traces = [front([each.x for each in best], [factor * each.y for each in best], "hv")]
    looks = styles([group.settings for group in drawn.groups])
    traces += [
        _fleets(group, factor, look) for group, look in zip(drawn.groups, looks, strict=True)
    ]
    if limit is not None and points:
        right = 1.04 * max(point.x for point in points)
        name, muted = f"limit {milliseconds(limit)}", theme.PAGE["muted"].light
        ends = [0, right], [factor * limit] * 2
        traces.append(draw.line(*ends, muted, name, width=1.5, dash="dash"))
    return draw.assemble(
        traces,
        theme.axis("cost (USD per hour)", rangemode="tozero"),
        time_axis(drawn.title, shown, rangemode="tozero"),
        showlegend=True,
    )


def _fleets(group: TradeGroup, factor: float, look: Style) -> draw.Trace:
    """The fleets of one GPU and format; milliseconds are multiplied with ``factor``."""
    return draw.points(
        [point.x for point in group.points],
        [factor * point.y for point in group.points],
        {"size": 11, "color": look.color, "symbol": look.symbol},
        group.label,
        "%{hovertext}: $%{x:,.2f}/h, %{customdata}<extra></extra>",
        **beside([point.short for point in group.points]),
        hovertext=[point.label for point in group.points],
        customdata=[milliseconds(point.y) for point in group.points],
    )


def cost_over_load(drawn: CostOverLoad) -> go.Figure:
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


LOOKS = {
    LoadOutcome.HOLDS: ("good", "circle"),
    LoadOutcome.OPEN: ("warn", "diamond"),
    LoadOutcome.FAILS: ("bad", "x"),
}
"""Colour and symbol of each outcome."""


def split_ratios(ratios: SplitRatios) -> go.Figure:
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
