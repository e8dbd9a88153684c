"""Draws how many measurements lay in the bands of their predictions, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from scipy.stats import binomtest

from reports.figures.layout import height
from reports.frame import draw, theme

NOMINAL = {"50 %": 0.5, "90 %": 0.9}
"""The intended coverage of bands."""


class Held(NamedTuple):
    """A group of ``rows`` measurements, of which ``in50`` and ``in90`` were in the two bands."""

    name: str
    rows: int
    in50: int
    in90: int


def figure(groups: Sequence[Held]) -> go.Figure:
    """The share of each group in either band, with the 95 % interval that its number allows."""
    traces = []
    for band, tone, symbol in (("50 %", theme.SKY, "diamond"), ("90 %", theme.BLUE, "circle")):
        inside = [group.in50 if band == "50 %" else group.in90 for group in groups]
        traces.append(_dots(band, groups, inside, tone, symbol))
    return draw.assemble(
        traces,
        theme.axis("share in the band", range=[0, 1.02], tickformat=".0%"),
        draw.names(dtick=1, fixedrange=True),
        height=height(len(groups)),
        shapes=[draw.upright(at, "muted", 1, "dot") for at in NOMINAL.values()],
    )


def _dots(
    band: str, groups: Sequence[Held], inside: Sequence[int], tone: theme.Tone, symbol: str
) -> draw.Trace:
    shares = [many / group.rows for many, group in zip(inside, groups, strict=True)]
    ends = [
        binomtest(many, group.rows).proportion_ci()
        for many, group in zip(inside, groups, strict=True)
    ]
    return draw.points(
        shares,
        [group.name for group in groups],
        {"size": 9, "symbol": symbol, "color": tone.light},
        f"{band} band",
        f"%{{y}}: %{{customdata}} in the {band} band<extra></extra>",
        error_x=draw.spread(
            [share - end.low for end, share in zip(ends, shares, strict=True)],
            [end.high - share for end, share in zip(ends, shares, strict=True)],
            tone.light,
            1,
            width=0,
        ),
        customdata=[
            f"{many:,} of {group.rows:,}" for many, group in zip(inside, groups, strict=True)
        ],
    )
