"""Draws the points of a sweep by two metrics, with the Pareto front of those that none beats.

``speed``: output tokens per second of a GPU against those that a user sees (1 over the median
TPOT); more of both is better. ``cost``: USD per 1M tokens (prompt + output) against TTFT at the
percentile of the SLO; less of both is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from reports.figures.layout import times
from reports.figures.naming import plain
from reports.figures.series import Style, styles
from reports.frame import draw, theme
from sim.planning.answers.drawings import Trade, TradeGroup
from sim.units import PER_TOKENS

X: Mapping[str, str] = {"speed": "output tokens/s of a user", "cost": PER_TOKENS}
HOVER: Mapping[str, str] = {
    "speed": "%{x:,.4~g} tokens/s of a user, %{y:,.4~g} of a GPU",
    "cost": "$%{x:,.4~g}, %{y:.4~s}s",
}


def figure(trade: Trade) -> go.Figure:
    """Every point, in the colour of its group."""
    looks = styles([group.settings for group in trade.groups])
    points = [point for group in trade.groups for point in group.points]
    traces = [_front(trade)] if len(points) > 1 else []
    pairs = zip(trade.groups, looks, strict=True)
    traces += [_trace(group, look, trade.kind) for group, look in pairs if group.points]
    axis = theme.axis("output tokens/s of a GPU", rangemode="tozero")
    return draw.assemble(
        traces,
        theme.axis(X[trade.kind], rangemode="tozero"),
        times(trade.title, [at.y for at in points]) if trade.kind == "cost" else axis,
        showlegend=len(traces) > 1,
    )


def _factor(kind: str) -> float:
    """The factor of values: latencies are drawn in seconds."""
    return 1e-3 if kind == "cost" else 1.0


def _front(trade: Trade) -> draw.Trace:
    x, y = [at.x for at in trade.front], [_factor(trade.kind) * at.y for at in trade.front]
    return front(x, y, "hv" if trade.kind == "cost" else "vh")


def front(x: Sequence[float], y: Sequence[float], shape: str) -> draw.Trace:
    """The line that joins the points that none beats."""
    ink = theme.PAGE["ink"].light
    return draw.line(x, y, ink, "Pareto front", shape=shape, width=1.5, dash="dot")


def _trace(group: TradeGroup, look: Style, kind: str) -> draw.Trace:
    short = [at.short for at in group.points]
    words = beside(short) if any(short) else {}
    return draw.points(
        [at.x for at in group.points],
        [_factor(kind) * at.y for at in group.points],
        {"size": 10, "color": look.color, "symbol": look.symbol},
        plain(group.label),
        f"%{{customdata}}<br>{HOVER[kind]}<extra></extra>",
        customdata=[plain(at.label) for at in group.points],
        **words,
    )


def beside(texts: Sequence[str]) -> dict[str, object]:
    """Words below points."""
    look = {"textposition": "bottom center", "textfont": theme.text("muted", 11)}
    return {"text": list(texts), **look}
