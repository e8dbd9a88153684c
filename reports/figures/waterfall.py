"""Draws how one metric grows technique by technique: each bar begins where the last one ended."""

from __future__ import annotations

from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.layout import height
from reports.figures.naming import TITLES, label
from reports.frame import draw, theme
from reports.frame.scale import time_axis
from sim.planning.answers.drawings import Waterfall
from sim.planning.causes.ablate_words import SAME, value_text
from sim.units import time_scale


class WaterfallBar(NamedTuple):
    """From where to where; a ``whole`` one stands on the ground, others are what a step brings."""

    name: str
    start: float
    end: float
    tone: theme.Tone
    whole: bool


def bars(found: Waterfall) -> list[WaterfallBar]:
    """Baseline, steps and the whole of one figure; steps that do not run are left out, and what
    the next one brings is counted from before them."""
    made, at = [], found.baseline
    if at is not None:
        made.append(WaterfallBar("baseline", 0.0, at, theme.GREY, whole=True))
    for step in found.steps:
        value = step.value
        if value is None or at is None:
            continue
        better = (value >= at) == found.more
        tone = theme.GREEN if better else theme.VERMILLION
        made.append(WaterfallBar(f"+ {step.title}", at, value, tone, whole=False))
        at = value
    if found.full is not None:
        made.append(WaterfallBar("all together", 0.0, found.full, theme.BLUE, whole=True))
    return made


def figure(found: Waterfall) -> go.Figure:
    """The steps in the order asked for, and the whole at the end.

    Green is better, red is worse.
    """
    key, drawn = found.key, bars(found)
    highest = max([bar.end for bar in drawn], default=1.0) or 1.0
    axis, factor = _axis(key, found.unit, highest)
    labels = [label(bar.name) for bar in drawn]
    trace = draw.bars(
        [factor * (bar.end - bar.start) for bar in drawn],
        labels,
        [bar.tone.light for bar in drawn],
        "%{y}: %{customdata}<extra></extra>",
        base=[factor * bar.start for bar in drawn],
        customdata=[value_text(key, bar.end) for bar in drawn],
    )
    words = draw.points(
        [factor * max(bar.start, bar.end) for bar in drawn],
        labels,
        {},
        mode="text",
        text=[f" {_told(key, bar)}" for bar in drawn],
        textposition="middle right",
        cliponaxis=False,
    )
    room = axis | {"range": [0, 1.25 * factor * highest]}
    return draw.assemble([trace, words], room, draw.names(), height=height(len(drawn)), bargap=0.3)


def _axis(key: str, unit: str, highest: float) -> tuple[dict[str, Any], float]:
    """The axis of a metric, and what its values are multiplied with to be in the axis's unit."""
    title = TITLES[key]
    if unit == "ms":
        shown = time_scale(highest / 1e3)
        return time_axis(title, shown), shown.factor / 1e3
    return theme.axis(title if unit in title else f"{title} ({unit})"), 1.0


def _told(key: str, bar: WaterfallBar) -> str:
    """The value of a whole, the change of a step."""
    change = bar.end - bar.start
    if bar.whole:
        return value_text(key, bar.end)
    if abs(change) <= SAME * max(abs(bar.start), abs(bar.end)):
        return "no change"
    return f"{'+' if change >= 0 else '−'}{value_text(key, abs(change))}"
