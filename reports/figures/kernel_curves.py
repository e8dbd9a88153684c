"""Draws how an operator's time grows: the fitted form as lines, the measurements as points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import logarithmic
from reports.figures.kernel_names import AXES
from reports.frame import draw, theme

SEPARATOR = ", "

NOTHING = "nothing cached before"
"""A line of prompts whose label names no context."""


def shared(curves: Sequence[Mapping[str, Any]]) -> str:
    """The common part of the labels of all lines, for the caption."""
    parts = [curve["label"].split(SEPARATOR) for curve in curves]
    return SEPARATOR.join(part for part in parts[0] if all(part in other for other in parts))


def figure(curves: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The lines of one operator in one precision, at most as many as there are colours."""
    traces = []
    common = shared(curves).split(SEPARATOR)
    for curve, tone in zip(curves, theme.SERIES, strict=False):
        own = [part for part in curve["label"].split(SEPARATOR) if part not in common]
        name, hover = (
            SEPARATOR.join(own) or NOTHING,
            "%{x:,.0f}: %{y:.3~s}s predicted<extra></extra>",
        )
        traces.append(draw.line(curve["at"], curve["seconds"], tone.light, name, hover))
        if curve["measured"]:
            traces.append(_points(curve, tone))
    seconds = [second for curve in curves for second in curve["seconds"]]
    return draw.assemble(
        traces,
        logarithmic(AXES[curves[0]["variable"]], curves[0]["at"]),
        logarithmic(None, seconds, "s"),
        showlegend=len(curves) > 1,
    )


def _points(curve: Mapping[str, Any], tone: theme.Tone) -> draw.Trace:
    marker = {"size": 7, "color": tone.light, "symbol": "circle-open", "line": {"width": 1.5}}
    hover = "%{x:,.0f}: %{y:.3~s}s measured<extra></extra>"
    return draw.points(
        curve["measured_at"], curve["measured"], marker, hover=hover, showlegend=False
    )
