"""Draws how far each change moves one metric: bars on both sides of its value now.

The widest is on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import label, plain
from reports.frame import draw, theme
from sim.planning.answers.cells import MOST_ROWS, NOTHING
from sim.planning.answers.drawings import ChangeBar, Changes

ROOM = 34
"""Pixels of a row with two words next to its bars, or a label of two lines."""

THICK = 0.7
"""Share of a row that its bar fills; two bars to the same side have half of it each."""


LETTER, NARROW = 6, 200
"""Pixels of a letter next to a bar, and between the axes of a figure that shares a row."""

LEAST_ROOM, MOST_ROOM = 0.12, 0.35
"""Shares of a figure's width that are left on either side of the bars."""


BESIDE: Mapping[str, Any] = {
    "textposition": "outside",
    "constraintext": "none",
    "textfont": theme.text("muted", 10),
    "cliponaxis": False,
}
"""How words next to bars are drawn."""


def figure(changes: Changes) -> go.Figure:
    """Green is better, red is worse, grey is neither."""
    title, more, bars = changes
    drawn = [bar for own in rows(bars)[:MOST_ROWS] for bar in own]
    shape = [side for own in rows(bars)[:MOST_ROWS] for side in _sides(own)]
    trace = draw.bars(
        [100 * bar.change for bar in drawn],
        [label(bar.row) for bar in drawn],
        [_colour(bar, more) for bar in drawn],
        "%{customdata}: %{x:+.3~g} %<extra></extra>",
        offset=[offset for offset, _ in shape],
        width=[width for _, width in shape],
        text=[plain(bar.end) if abs(bar.change) >= NOTHING else "" for bar in drawn],
        customdata=[plain(bar.text) for bar in drawn],
        **BESIDE,
    )
    return draw.assemble(
        [trace],
        theme.axis(f"{title}, change (%)", **_span(drawn)),
        draw.names(),
        height=height(len({bar.row for bar in drawn}), _row(drawn, shape)),
        barmode="overlay",
        shapes=[draw.upright(0)],
    )


def rows(bars: Sequence[ChangeBar]) -> list[list[ChangeBar]]:
    """The bars row by row, the row with the widest one first."""
    found: dict[str, list[ChangeBar]] = {}
    for bar in bars:
        found.setdefault(bar.row, []).append(bar)
    return sorted(found.values(), key=lambda own: -max(abs(bar.change) for bar in own))


def _sides(own: Sequence[ChangeBar]) -> list[tuple[float, float]]:
    """Offset and width of the bars of a row: one behind the other would hide it."""
    same = len(own) > 1 and min(bar.change for bar in own) * max(bar.change for bar in own) >= 0
    if not same:
        return [(-THICK / 2, THICK)] * len(own)
    width = THICK / len(own)
    return [(width * index - THICK / 2, width) for index in range(len(own))]


def _row(drawn: Sequence[ChangeBar], sides: Sequence[tuple[float, float]]) -> int:
    """Pixels of a row: more if some words need them."""
    shared = any(bar.end and width < THICK for bar, (_, width) in zip(drawn, sides, strict=True))
    return ROOM if shared or any("<br>" in label(bar.row) for bar in drawn) else 24


def _span(drawn: Sequence[ChangeBar]) -> dict[str, Any]:
    """A range that leaves room for the words next to the bars, where three such figures share the
    width of a page; at least a percent wide."""
    low = min([0.0, *(100 * bar.change for bar in drawn)])
    high = max([0.0, *(100 * bar.change for bar in drawn)])
    left, right = (
        max([LEAST_ROOM, *(_words(bar) for bar in drawn if sign * bar.change >= NOTHING)])
        for sign in (-1, 1)
    )
    whole = max(high - low, 1.0) / (1 - left - right)
    return {"range": [low - left * whole, high + right * whole]}


def _words(bar: ChangeBar) -> float:
    """The share of a narrow figure's width that the word next to a bar takes."""
    return min(MOST_ROOM, (LETTER * len(bar.end) + 8) / NARROW)


def _colour(bar: ChangeBar, more: bool) -> str:
    if not bar.judged:
        return theme.GREY.light
    return (theme.GREEN if (bar.change > 0) == more else theme.VERMILLION).light
