"""Draws how much of each latency limit is used: a bar per limit, with a line at the limit.

A latency is the one at the percentile that the SLO asks for, in percent of its limit. Bars of
latencies far beyond their limit are cut, and say by how many times they are beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.frame import theme
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
    ink = theme.PAGE["ink"].light
    right = LONGEST if any(limit.share > 1 for limit in limits) else 1.08
    layout = theme.layout() | {
        "height": FRAME + ROW * len(limits),
        "hovermode": "closest",
        "bargap": 0.35,
        "xaxis": theme.axis("share of the limit") | {"range": [0, right], "tickformat": ".0%"},
        "yaxis": theme.axis(None)
        | {
            "autorange": "reversed",
            "tickfont": {"color": ink, "size": 12},
            "showgrid": False,
            "fixedrange": True,
        },
    }
    layout["margin"] = layout["margin"] | {"t": 20}
    layout["shapes"] = [
        {
            "type": "line",
            **{"x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper"},
            "line": {"color": ink, "width": 1.5, "dash": "dash"},
        }
    ]
    layout["annotations"] = [_note(1, 1, "limit", {"yref": "paper", "yanchor": "bottom"})]
    layout["annotations"] += [
        _note(min(limit.share, LONGEST), limit.title, _told(limit), _side(limit, right))
        for limit in limits
    ]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [min(limit.share, LONGEST) for limit in limits],
        "y": [limit.title for limit in limits],
        "marker": {"color": [theme.PAGE[limit.tone].light for limit in limits]},
        "customdata": [_told(limit) for limit in limits],
        "hovertemplate": "%{y}%{customdata}<extra></extra>",
    }
    return go.Figure(data=[bars], layout=layout)


def _told(limit: LimitUse) -> str:
    times = (
        f"{number(limit.share)}x"
        if limit.share >= TWICE
        else f"{100 * limit.share:.0f}{NARROW_SPACE}%"
    )
    return f"{limit.text}: {times}"


def _side(limit: LimitUse, right: float) -> dict[str, Any]:
    """Behind the bar, or inside its end: where there is more room on an axis that ends at
    ``right``."""
    if limit.share < right / 2:
        return {"xanchor": "left", "xshift": 6}
    white = {"color": theme.PAGE["surface"].light, "size": 12}
    return {"xanchor": "right", "xshift": -6, "font": white}


def _note(x: float, y: float | str, text: str, look: dict[str, Any]) -> dict[str, Any]:
    font = {"color": theme.PAGE["muted"].light, "size": 12}
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": font, **look}
