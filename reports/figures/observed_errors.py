"""Draws all errors of a prediction: a dot for each metric, and the predicted error band."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.frame import draw, theme
from sim.planning.answers.validated import ErrorRow

LEAST = 0.06
"""The axis reaches at least that far to each side."""


def figure(rows: Sequence[tuple[str, ErrorRow]], band: float | None) -> go.Figure:
    """``rows`` are metrics by name; ``band`` is shaded."""
    errors = [row.error for _, row in rows]
    far = 0.0 if band is None else 1 / (1 - min(band, 0.9)) - 1  # the wider side of the band
    reach = 1.1 * max(LEAST, far, *(abs(error) for error in errors))
    traces = []
    for name, inside, symbol in (
        ("within the band", True, "circle"),
        ("outside the band", False, "x"),
    ):
        mine = [(title, row) for title, row in rows if (row.within_band is not False) == inside]
        traces.append(_dots(name, mine, symbol, theme.BLUE if inside else theme.VERMILLION))
    return draw.assemble(
        [trace for trace in traces if trace["x"]],
        theme.axis("error", range=[-reach, reach], tickformat="+.0%"),
        draw.names(
            dtick=1,
            fixedrange=True,
            categoryorder="array",
            categoryarray=[title for title, _ in rows],
        ),
        shapes=_band(band),
    )


def _dots(
    name: str, rows: Sequence[tuple[str, ErrorRow]], symbol: str, tone: theme.Tone
) -> draw.Trace:
    errors, titles = [row.error for _, row in rows], [title for title, _ in rows]
    marker = {"size": 8, "symbol": symbol, "color": tone.light}
    return draw.points(errors, titles, marker, name, "%{y}: %{x:+.1%}")


def _band(band: float | None) -> list[draw.Trace]:
    """The predicted band, and the line at no error."""
    zero = draw.upright(0, "muted", 1, layer="below")
    if band is None:
        return [zero]
    # the band is around the predicted value, an error is relative to the observed one
    low, high = 1 / (1 + band) - 1, 1 / (1 - min(band, 0.9)) - 1
    place = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "x0": low, "x1": high}
    return [draw.wash(theme.PAGE["neutral-soft"].light, **place), zero]
