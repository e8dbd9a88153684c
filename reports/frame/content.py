"""Defines the parts that pages are made of, as plain data for the templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    import plotly.graph_objects as go

MICROSECONDS = re.compile(r"(?<=\d )us\b")
"""Their unit as terminals write it."""


class Plot(NamedTuple):
    """A figure on the page; ``spec`` is Plotly JSON, None when there is nothing to draw."""

    name: str
    title: str
    definition: str | None
    caption: str
    spec: Markup | None
    log_axis: bool | None = None  # whether its time axis is logarithmic; None: no choice offered
    kind: str = ""  # what the style calls its size; the name without
    shares: bool = False  # whether its stacked bars can be shown as shares of the whole


class Share(NamedTuple):
    """One part of a stacked bar, in percent of the whole."""

    name: str
    percent: float
    text: str
    color: str  # the key of ``theme.BOUNDS`` whose colour it has


def to_json(figure: go.Figure) -> Markup:
    """Plotly JSON that cannot end, or open a comment in, the script element it stands in."""
    text = MICROSECONDS.sub("\u00b5s", str(figure.to_json()))
    return Markup(text.replace("<", "\\u003c"))
