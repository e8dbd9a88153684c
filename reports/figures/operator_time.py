"""Draws the time of each operator by what bound it: stacked bars, the longest on top."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

from reports.frame import draw, theme
from sim.metrics.terms.definitions import bound_name

ROW, FRAME = 26, 96
"""Height (px) of an operator, and of what stands around them."""

NOT_APART = "not distinguished"
"""The bound of operators of which nothing else is known."""

HOST = "host"


def figure(shares: Mapping[str, float], operators: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """The ``shares`` (0..1) of the busy time, by operator.

    ``operators`` says how many seconds each was bound by what (``infersim.operators`` of a
    summary); one that is not in it has a bar of one colour. Without shares the figure is empty.
    """
    names = sorted(shares, key=lambda name: shares[name])
    split = {name: _split(name, shares[name], operators) for name in names}
    bounds = [
        bound for bound in (*theme.BOUNDS, NOT_APART) if any(bound in s for s in split.values())
    ]
    return draw.assemble(
        [_bars(bound, names, split) for bound in bounds],
        theme.axis("share of the busy time", tickformat=".0%", rangemode="tozero", fixedrange=True),
        draw.rows(
            [escape(name) for name in names],
            11,
            range=[-0.5, max(1, len(names)) - 0.5],
            tickfont=theme.text("muted", 11),
        ),
        barmode="stack",
        bargap=0.3,
        height=FRAME + ROW * len(names),
        margin={"t": 34},
        showlegend=True,
        legend={"traceorder": "normal"},
    )


def _split(
    name: str, share: float, operators: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The share of one operator by what bound it; the parts add up to it."""
    if name == HOST:
        return {HOST: share}
    if name not in operators:
        return {NOT_APART: share}
    seconds = {bound: operators[name][bound] for bound in theme.BOUNDS if bound != HOST}
    total = sum(seconds.values())
    return {bound: share * part / total for bound, part in seconds.items() if part}


def _bars(bound: str, names: list[str], split: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    tone = theme.BOUNDS.get(bound, theme.GREY)
    rows = [number for number, name in enumerate(names) if bound in split[name]]
    return draw.bars(
        [split[names[row]][bound] for row in rows],
        rows,
        tone.light,
        f"{bound_name(bound)}: %{{x:.2%}} of the busy time<extra></extra>",
        name=bound_name(bound),
        marker={"line": {"color": theme.PAGE["surface"].light, "width": 0.5}},
    )
