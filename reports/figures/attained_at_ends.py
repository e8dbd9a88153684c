"""Draws what decides a verdict: the share of requests within the SLO at both ends of each input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import label, plain
from reports.figures.tornado import BESIDE, ROOM, THICK
from reports.frame import draw, theme
from reports.frame.formats import NARROW_SPACE
from sim.metrics.states import SloState
from sim.planning.answers.drawings import AttainedAtEnds, EndsBar
from sim.units import show_share

NOTHING = 0.02
"""Bars that are a smaller part of the room for words next to them have none."""


def figure(attained: AttainedAtEnds) -> go.Figure:
    """Bars from the share of the run to that at each end; the target is a dashed line."""
    now, target, drawn = attained
    shares = [100 * share for share in (now, target, *(bar.share for bar in drawn))]
    low, high = min(shares), max(shares)
    room = max(0.2 * (high - low), 0.02)
    shape = [_side([b for b in drawn if b.row == bar.row], bar, now) for bar in drawn]
    trace = draw.bars(
        [100 * (bar.share - now) for bar in drawn],
        [label(bar.row) for bar in drawn],
        [_colour(bar) for bar in drawn],
        "%{customdata[0]}: %{customdata[1]} within the SLO<extra></extra>",
        base=[100 * now] * len(drawn),
        offset=[offset for offset, _ in shape],
        width=[width for _, width in shape],
        text=[plain(_beside(bar, now, room)) for bar in drawn],
        customdata=[
            [plain(f"{bar.row} {bar.text}".strip()), show_share(bar.share, target)] for bar in drawn
        ],
        **BESIDE,
    )
    wanted = f"wanted: {show_share(target).replace('%', f'{NARROW_SPACE}%')}"
    return draw.assemble(
        [trace],
        theme.axis("Requests within the SLO (%)", range=[low - room, high + room / 2]),
        draw.names(),
        height=height(len({bar.row for bar in drawn}), ROOM) + 12,
        barmode="overlay",
        shapes=[draw.upright(100 * now), draw.upright(100 * target, dash="dash")],
        annotations=[draw.note(wanted, 100 * target, 1.0, size=10, yref="paper", yanchor="bottom")],
    )


def _side(own: Sequence[EndsBar], bar: EndsBar, now: float) -> tuple[float, float]:
    """Offset and width of a bar: those to the same side share the row, or one would hide the
    other."""
    moves = [each.share - now for each in own]
    if len(own) == 1 or min(moves) * max(moves) < 0:
        return -THICK / 2, THICK
    width = THICK / len(own)
    return width * own.index(bar) - THICK / 2, width


def _beside(bar: EndsBar, now: float, room: float) -> str:
    """Which end it is, and the verdict where that is another one; nothing next to no bar."""
    if 100 * abs(bar.share - now) < NOTHING * room:
        return ""
    return ": ".join(text for text in (bar.text, bar.flips) if text)


def _colour(bar: EndsBar) -> str:
    tone: Mapping[str, theme.Tone] = {
        SloState.MET: theme.GREEN,
        SloState.MISSED: theme.VERMILLION,
        SloState.OPEN: theme.ORANGE,
    }
    return tone.get(bar.flips, theme.GREY).light
