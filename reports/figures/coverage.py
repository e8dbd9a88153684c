"""Draws how many measurements lay in the bands of their predictions, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from scipy.stats import binomtest

from reports.figures.layout import height
from reports.frame import theme

NOMINAL = {"50 %": 0.5, "90 %": 0.9}
"""What bands are meant to hold."""


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
    line = {"color": theme.PAGE["muted"].light, "width": 1, "dash": "dot"}
    layout = theme.layout() | {
        "height": height(len(groups)),
        "xaxis": theme.axis("share in the band") | {"range": [0, 1.02], "tickformat": ".0%"},
        "yaxis": theme.axis(None)
        | {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [group.name for group in reversed(groups)],
            "dtick": 1,
            "fixedrange": True,
        },
        "hovermode": "closest",
        "shapes": [
            {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": at, "x1": at, "line": line}
            for at in NOMINAL.values()
        ],
    }
    return go.Figure(data=traces, layout=layout)


def _dots(
    band: str, groups: Sequence[Held], inside: Sequence[int], tone: theme.Tone, symbol: str
) -> dict[str, object]:
    shares = [many / group.rows for many, group in zip(inside, groups, strict=True)]
    ends = [
        binomtest(many, group.rows).proportion_ci()
        for many, group in zip(inside, groups, strict=True)
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{band} band",
        "x": shares,
        "y": [group.name for group in groups],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [end.high - share for end, share in zip(ends, shares, strict=True)],
            "arrayminus": [share - end.low for end, share in zip(ends, shares, strict=True)],
            "color": tone.light,
            "thickness": 1,
            "width": 0,
        },
        "marker": {"size": 9, "symbol": symbol, "color": tone.light},
        "customdata": [
            f"{many:,} of {group.rows:,}" for many, group in zip(inside, groups, strict=True)
        ],
        "hovertemplate": f"%{{y}}: %{{customdata}} in the {band} band<extra></extra>",
    }
