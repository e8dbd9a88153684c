"""Draws the slots of the batch over time: which request each serves, and what it does.

Above are the slots, numbered upwards, since each request takes the lowest free one; below are the
waiting requests, or their number where there are many. Colours are the phases of a request. Long
runs are shown in part (see ``slot_view``). ``shares`` compares what the slots of several runs did
with their time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from reports.figures.axes import height
from reports.figures.series import label
from reports.figures.slot_view import QueueView, SlotView, slot_view
from reports.frame import draw, theme
from reports.frame.formats import NARROW_SPACE
from sim.results.trail_files import Trail
from sim.trails.slots import Phase, SlotPart
from sim.units import SECONDS, Scale, show_time

LABELS: dict[Phase, str] = {
    "queue": "waits in the queue",
    "prefill": "prefill chunk",
    "decode": "decode",
    "stalled": "has a slot, others are prefilled",
    "padding": "done, still computed (padding)",
    "held": "done, slot held",
    "preempted": "preempted",
    "unknown": "waits or is prefilled (not recorded which)",
}
"""Phase -> what the legend calls it, in the order of a request's life."""

LARGE, SMALL, TINY = 26, 16, 10
"""Height of a row (px) with few rows, with more, and with many."""

FEW_ROWS, SOME_ROWS = 12, 28
"""Up to that many rows they are ``LARGE``; up to that many, ``SMALL``."""

HEAD, FOOT, BETWEEN = 60, 54, 34
"""Room (px) for the legend and a heading, for the time axis, and between the two panels."""

QUEUE = 110
"""Height (px) of the panel that counts those that wait."""

HATCH = {"pattern": {"shape": "/", "size": 5, "solidity": 0.35}}
"""How padding is drawn: computed, for no request."""

LEGEND = 24
"""How far (px) the legend is above the slots."""

SHARES = 16
"""Height (px) of the line above the slots that says how much of each batch decodes."""

LEGIBLE = 0.035
"""Share of the width from which a batch has room for a number above it, on a wide screen; the page
leaves out what would lie on another one."""

NAMED = 0.012
"""Share of the width from which a bar has room for the number of its request, per character."""


class SlotBar(NamedTuple):
    """One bar: a part of a stay, with where it stands and whose it is."""

    part: SlotPart
    in_slot: bool
    lane: int
    request: int


def figure(
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    batching: str = "continuous",
    trail: Trail | None = None,
    window: tuple[float, float] | None = None,
) -> go.Figure:
    """The slot chart of a run; without a request that ran it is empty and says so. Charts to be
    compared have the same ``window`` (s)."""
    view = slot_view(requests, timeseries, batching, trail, window)
    return draw.nothing("No request was served") if view is None else chart(view)


def chart(view: SlotView) -> go.Figure:
    """The slot chart of what ``slot_view`` chose."""
    bars = [
        SlotBar(part, stay.in_slot, stay.lane, number)
        for stay, number in zip(view.stays, view.ids, strict=True)
        for part in stay.parts
        if part.end > view.start and part.start < view.end
    ]
    pitch = _pitch(view.slots.drawn + view.lanes.drawn)
    named = pitch >= SMALL
    traces = [
        _trace([bar for bar in bars if bar.part.phase == phase], phase, view, named)
        for phase in LABELS
        if any(bar.part.phase == phase for bar in bars)
    ]
    if view.queue is not None:
        traces.append(_queue(view.queue, _unit(view)))
    return go.Figure(data=traces, layout=_layout(view, pitch))


def _queue(queue: QueueView, shown: Scale) -> dict[str, Any]:
    """How many wait, as an area."""
    return draw.line(
        (queue.times * shown.factor).tolist(),
        queue.number.tolist(),
        theme.PAGE["neutral"].light,
        LABELS["queue"],
        f"%{{y:,}} wait at %{{x:,.4~g}} {shown.unit}<extra></extra>",
        width=1,
        shape="hv",
        yaxis="y2",
        fill="tozeroy",
        fillcolor=theme.PHASES["queue"].light,
    )


SHORT = 1.0
"""Seconds below which a stretch is drawn in milliseconds."""


def _unit(view: SlotView) -> Scale:
    """The unit of the time axis."""
    short = view.end - view.start < SHORT and view.end < 10 * SHORT
    return Scale("ms", 1e3) if short else SECONDS


def _pitch(rows: int) -> int:
    if rows <= FEW_ROWS:
        return LARGE
    return SMALL if rows <= SOME_ROWS else TINY


def _trace(bars: list[SlotBar], phase: Phase, view: SlotView, named: bool) -> dict[str, Any]:
    """All bars of one phase; it stands in one panel only."""
    in_slot, factor = bars[0].in_slot, _unit(view).factor
    span = view.end - view.start
    starts = [max(bar.part.start, view.start) for bar in bars]
    ends = [min(bar.part.end, view.end) for bar in bars]
    texts = [
        str(bar.request)
        if named
        and phase in ("decode", "queue")
        and (end - start) > NAMED * span * len(str(bar.request))
        else ""
        for bar, start, end in zip(bars, starts, ends, strict=True)
    ]
    surface = {"color": theme.PAGE["surface"].light, "width": _border(phase, bars, span)}
    return draw.bars(
        [factor * (end - start) for start, end in zip(starts, ends, strict=True)],
        [bar.lane + 1 for bar in bars],
        _colours(phase, bars),
        f"request %{{customdata[0]}}: {LABELS[phase]}<br>%{{customdata[1]:.4f}} to "
        "%{customdata[2]:.4f} s (%{customdata[3]})<br>%{customdata[4]}<extra></extra>",
        marker={**(HATCH if phase == "padding" else {}), "line": surface},
        name=LABELS[phase],
        base=[factor * start for start in starts],
        yaxis="y" if in_slot else "y2",
        width=0.82,
        text=texts,
        textposition="inside",
        insidetextanchor="start",
        constraintext="none",
        textangle=0,
        textfont=theme.text("ink" if phase == "queue" else "surface", 10),
        customdata=[
            [
                *(bar.request, bar.part.start, bar.part.end),
                *(show_time(bar.part.end - bar.part.start), view.about.get(bar.request, "")),
            ]
            for bar in bars
        ],
    )


def _colours(phase: Phase, bars: list[SlotBar]) -> str | list[str]:
    """One colour, or of decoding two that alternate between neighbours in a slot."""
    tone = theme.PHASES[phase].light
    if phase != "decode":
        return tone
    order: dict[int, list[int]] = {}
    for bar in bars:
        seen = order.setdefault(bar.lane, [])
        if not seen or seen[-1] != bar.request:
            seen.append(bar.request)
    place = {(lane, number): at for lane, seen in order.items() for at, number in enumerate(seen)}
    return [theme.DECODE_NEXT.light if place[bar.lane, bar.request] % 2 else tone for bar in bars]


def _border(phase: Phase, bars: list[SlotBar], span: float) -> float:
    """A border sets neighbours apart, but would hide bars that are as thin as itself."""
    widths = sorted(bar.part.end - bar.part.start for bar in bars)
    wide = widths[len(widths) // 2] > 0.004 * span
    return 0.8 if phase in ("prefill", "queue") and wide else 0.0


def _layout(view: SlotView, pitch: int) -> dict[str, Any]:
    slots, lanes = view.slots.drawn, view.lanes.drawn
    below = QUEUE if view.queue is not None else pitch * lanes
    between = BETWEEN if below else 0
    plot = pitch * slots + below + between
    raised = SHARES if view.batches else 0
    shown = _unit(view)
    layout = theme.layout() | {
        "barmode": "overlay",
        "bargap": 0,
        "height": HEAD + raised + plot + FOOT,
        "showlegend": True,
        "margin": {"t": HEAD + raised, "b": FOOT},
        "legend": {
            "y": 1 + (LEGEND + raised) / plot,
            "itemsizing": "constant",
            "traceorder": "normal",
        },
        "xaxis": theme.axis(
            f"time since the start ({shown.unit})",
            range=[view.start * shown.factor, view.end * shown.factor],
            anchor="y2" if below else "y",
        ),
    }
    cut = below / plot
    layout["yaxis"] = _rows(slots) | {"domain": [cut + between / plot, 1] if below else [0, 1]}
    title = "slots; above each batch: the share that decodes"
    title = title if view.batches else "slots of the batch"
    layout["annotations"] = [_heading(title, 1) | {"yshift": raised}] if slots else []
    layout["annotations"] += _shares(view)
    through = {"xref": "x", "yref": "y domain", "layer": "above"}
    begins = [batch.start * shown.factor for batch in view.batches]
    layout["shapes"] = [draw.upright(at, "ink", 1, "dot", **through) for at in begins]
    if view.queue is not None:
        most = max(1, int(view.queue.number.max()))
        layout["yaxis2"] = theme.axis(
            None,
            domain=[0, cut],
            anchor="x",
            range=[0, 1.1 * most],
            fixedrange=True,
            tickformat=",d",
            nticks=4,
        )
        layout["annotations"] += [_heading(f"requests that wait (up to {most:,})", cut)]
    elif lanes:
        layout["yaxis2"] = _rows(lanes) | {"domain": [0, cut], "anchor": "x"}
        layout["annotations"] += [_heading("not in the batch", cut)]
    return layout


def _shares(view: SlotView) -> list[dict[str, Any]]:
    """The decoding share of each batch, above its right end; nothing above one that is too
    narrow."""
    span, shown = view.end - view.start, _unit(view)
    found = []
    for batch in view.batches:
        end = min(batch.end, view.end)
        width = (end - max(batch.start, view.start)) / span
        if width < LEGIBLE:
            continue
        text = f"{batch.decoding:.0%}".replace("%", f"{NARROW_SPACE}%")
        place = {"xref": "x", "yref": "paper", "xanchor": "right", "yanchor": "bottom"}
        found.append(draw.note(text, end * shown.factor, 1, "ink", 11, borderpad=1, **place))
    return found


def _heading(text: str, top: float) -> dict[str, Any]:
    """The name of a panel, on its upper left corner."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return draw.note(text, 0, top) | {"borderpad": 2, **place}


def _rows(count: int) -> dict[str, Any]:
    """An axis of ``count`` rows, the first on top."""
    step = next(step for step in (1, 5, 10, 20) if count / step <= FEW_ROWS)
    ticks = [*([1] if step > 1 else []), *range(step, count + 1, step)]
    ends = [count + 0.5, 0.5]
    return theme.axis(None, range=ends, fixedrange=True, showgrid=False, tickvals=ticks)


ROOM = 0.06
"""The share from which on a part has room for its number."""


def shares(runs: Mapping[str, Mapping[Phase, float]]) -> go.Figure:
    """The runs by their names, with the seconds that taken slots spent in each phase."""
    shares = [
        {phase: seconds / sum(spent.values()) for phase, seconds in spent.items()}
        for spent in runs.values()
    ]
    traces = []
    for phase, title in LABELS.items():
        values = [each.get(phase, 0.0) for each in shares]
        if any(values):
            traces.append(
                draw.bars(
                    [100 * value for value in values],
                    list(map(label, runs)),
                    theme.PHASES[phase].light,
                    f"{title}: %{{x:.3~g}}{NARROW_SPACE}%<extra></extra>",
                    name=title,
                    marker=HATCH if phase == "padding" else {},
                    text=[
                        f"{v:.0%}".replace("%", f"{NARROW_SPACE}%") if v > ROOM else ""
                        for v in values
                    ],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont=theme.text("surface" if phase in ("decode", "prefill") else "ink", 12),
                )
            )
    return draw.assemble(
        traces,
        theme.axis("share of the time of taken slots (%)", range=[0, 100]),
        draw.names(),
        barmode="stack",
        height=height(len(runs), 34) + 24,
        showlegend=True,
        legend={"traceorder": "normal"},
    )
