"""Draws how much of each latency limit is used: a bar per limit, with a line at the limit.

A latency is the one at the percentile that the SLO asks for, in percent of its limit. Bars of
latencies far beyond their limit are cut, and say by how many times they are beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from reports.frame import draw, theme
from reports.frame.formats import NARROW_SPACE
from sim.units import TWICE, number

ROW, FRAME = 40, 62
"""Height (px) of a limit, and of the margins around them."""

LONGEST = 1.4
"""Where bars are cut, in limits."""


class LimitUse(NamedTuple):
    """A limit called ``title``: what is reached, in words, and as a share of the limit; ``tone`` is
    good, bad or warn."""

    title: str
    text: str
    share: float
    tone: str


def figure(limits: Sequence[LimitUse]) -> go.Figure:
    """The limits below each other, in the order given."""
    right = LONGEST if any(limit.share > 1 for limit in limits) else 1.08
    told = [_told(limit) for limit in limits]
    bars = draw.bars(
        [min(limit.share, LONGEST) for limit in limits],
        [limit.title for limit in limits],
        [theme.PAGE[limit.tone].light for limit in limits],
        "%{y}%{customdata}<extra></extra>",
        customdata=told,
        text=[f" {text} " for text in told],
        textposition=["outside" if limit.share < right / 2 else "inside" for limit in limits],
        insidetextanchor="end",
        constraintext="none",
        textangle=0,
        outsidetextfont={"color": theme.PAGE["muted"].light},
        insidetextfont={"color": theme.PAGE["surface"].light},
    )
    return draw.assemble(
        [bars],
        theme.axis("share of the limit", range=[0, right], tickformat=".0%"),
        draw.names(tickfont=theme.text("ink", 12), showgrid=False, fixedrange=True),
        height=FRAME + ROW * len(limits),
        bargap=0.35,
        margin={"t": 20},
        shapes=[draw.upright(1, dash="dash")],
        annotations=[draw.note("limit", 1, 1, yref="paper", yanchor="bottom")],
    )


def _told(limit: LimitUse) -> str:
    times = (
        f"{number(limit.share)}x"
        if limit.share >= TWICE
        else f"{100 * limit.share:.0f}{NARROW_SPACE}%"
    )
    return f"{limit.text}: {times}"
