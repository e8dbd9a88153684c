"""Provides the builders of which figures are made: traces, axes, lines, notes, units.

What all figures share is in the template of ``theme``, so that a builder adds data and colours
alone. Traces without a hover are passed over by the pointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.frame import theme
from sim.units import HOURS, MINUTES, SECONDS, Scale

Trace = dict[str, Any]
Values = Any
"""A sequence of numbers or names, or an array."""


def assemble(
    traces: Sequence[Trace], x: Mapping[str, Any], y: Mapping[str, Any], **layout: Any
) -> go.Figure:
    """The figure of ``traces`` over both axes, and of what else its ``layout`` says. A legend of
    points alone has marks of its own size, however small the figure's are."""
    told = [*traces, *layout.get("shapes", ())]
    named = [each.get("mode") for each in told if each.get("name") and each.get("showlegend", True)]
    if named and set(named) == {"markers"}:
        layout["legend"] = {"itemsizing": "constant", **layout.get("legend", {})}
    return go.Figure(data=traces, layout=theme.layout() | {"xaxis": x, "yaxis": y, **layout})


def nothing(text: str, **axes: Mapping[str, Any]) -> go.Figure:
    """A figure without data that says so; its axes are hidden unless they are given."""
    word = note(text, 0.5, 0.5, size=12, xref="paper", yref="paper", xanchor=None, yanchor=None)
    hidden = {"visible": False}
    return assemble([], axes.get("x", hidden), axes.get("y", hidden), annotations=[word])


def line(
    x: Values, y: Values, color: str, name: str | None = None, hover: str = "", **look: Any
) -> Trace:
    """A line through points; ``look`` has its ``width`` (2), ``dash`` and ``shape``, and anything
    else that the trace has."""
    traced = {"color": color, "width": 2}
    traced |= {key: look.pop(key) for key in ("width", "dash", "shape") if key in look}
    return _scatter("lines", x, y, name, hover) | {"line": traced, **look}


def points(
    x: Values,
    y: Values,
    marker: Mapping[str, Any],
    name: str | None = None,
    hover: str = "",
    **more: Any,
) -> Trace:
    """Points, with ``text`` next to them if there is any."""
    mode = "markers+text" if "textposition" in more else "markers"
    return _scatter(mode, x, y, name, hover) | {"marker": marker, **more}


def _scatter(mode: str, x: Values, y: Values, name: str | None, hover: str) -> Trace:
    pointer = {"hovertemplate": hover} if hover else {"hoverinfo": "skip"}
    named = {} if name is None else {"name": name}
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **named, **pointer}


def bars(x: Values, y: Values, color: Any, hover: str, **more: Any) -> Trace:
    """Bars that lie, one for each row ``y``."""
    look = {"color": color, **more.pop("marker", {})}
    trace = {"type": "bar", "orientation": "h", "x": x, "y": y, "marker": look}
    return trace | {"hovertemplate": hover, **more}


def spread(less: Values, more: Values, color: str, thickness: float = 1.5, **look: Any) -> Trace:
    """The bars of an interval that reaches so far to both sides of each value."""
    both = {"type": "data", "symmetric": False, "arrayminus": less, "array": more}
    return both | {"color": color, "thickness": thickness, **look}


def names(**more: Any) -> dict[str, Any]:
    """An axis of rows that have names, the first on top."""
    return theme.axis(None, type="category", autorange="reversed", **more)


def upright(
    at: float, tone: str = "ink", width: float = 1.5, dash: str | None = None, **more: Any
) -> Trace:
    """A line from the bottom of the figure to its top."""
    return _straight(
        {"yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}, tone, width, dash, more
    )


def across(
    at: float, tone: str = "ink", width: float = 1.5, dash: str | None = None, **more: Any
) -> Trace:
    """A line from the left end of the figure to its right one."""
    return _straight(
        {"xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at}, tone, width, dash, more
    )


def _straight(
    ends: Trace, tone: str, width: float, dash: str | None, more: Mapping[str, Any]
) -> Trace:
    look = {"color": theme.PAGE[tone].light, "width": width}
    return {"type": "line", **ends, "line": look | ({"dash": dash} if dash else {}), **more}


def wash(color: str, **place: Any) -> Trace:
    """A shaded part of the figure, behind its data."""
    return {"type": "rect", "layer": "below", "line": {"width": 0}, "fillcolor": color, **place}


def note(
    text: str, x: Any, y: Any, tone: str = "muted", size: int | None = 12, **more: Any
) -> Trace:
    """Words at a place of the figure."""
    font = {"color": theme.PAGE[tone].light} | ({"size": size} if size else {})
    placed = {"text": text, "x": x, "y": y, "showarrow": False, "font": font, **more}
    return {key: value for key, value in placed.items() if value is not None}


def arrow(start: float, end: float, row: Any, tone: str = "ink", width: float = 1.5) -> Trace:
    """An arrow along a row of the figure, from one value to another."""
    axes = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y"}
    look = {"arrowhead": 2, "arrowwidth": width, "arrowcolor": theme.PAGE[tone].light}
    return {"x": end, "y": row, "ax": start, "ay": row, "text": "", **axes, **look}


RUN_IN_MINUTES, RUN_IN_HOURS = 600.0, 36_000.0
"""Duration of a run (s) from which on its time axis is in minutes, in hours: a reader looks for
moments on it."""


def run_scale(duration_s: float) -> Scale:
    """The unit for the time since the start of a run of ``duration_s``.

    >>> run_scale(599.0).unit, run_scale(7_200.0).unit, run_scale(86_400.0).unit
    ('s', 'min', 'h')
    """
    if duration_s < RUN_IN_MINUTES:
        return SECONDS
    return MINUTES if duration_s < RUN_IN_HOURS else HOURS


def time_axis(title: str, shown: Scale, **more: Any) -> dict[str, Any]:
    """An axis of latencies with the unit in its title."""
    return theme.axis(f"{title} ({shown.unit})", **more)


def run_axis(shown: Scale, title: str = "time since the start") -> dict[str, Any]:
    """An axis of the time since the start of a run, with the unit behind each label."""
    return theme.axis(title) | {"ticksuffix": f" {shown.unit}", "hoverformat": ",.4~g"}
