"""Draws the figures of decisions: bars in rows, and points over two axes.

The records are those of ``sim.planning.answers.drawings``. What is better is green, what is worse
red, what is neither grey; shapes say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.axes import MANY, ROW_HEIGHT, height, labelled, times
from reports.figures.heat import heat
from reports.figures.series import Style, label, plain, styles
from reports.frame import draw, theme
from reports.frame.draw import time_axis
from reports.frame.page import typeset
from sim.metrics.states import SloState, State
from sim.planning.answers.drawings import (
    BarChart,
    ChartAxis,
    ChartBar,
    ChartPoint,
    Grid,
    Mark,
    PointChart,
    Series,
)
from sim.planning.points.wording import LoadOutcome
from sim.units import time_scale

POLICY = "policy "
"""Before the name of a batching policy, in the tone of its bar."""

TONES: Mapping[str, theme.Tone] = {
    **theme.METRICS,
    **theme.MEMORY,
    **theme.BOUNDS,
    **theme.LATENCY_PARTS,
    **{f"gpu {place}": tone for place, tone in enumerate(theme.GPUS)},
    "": theme.GREY,
    "good": theme.GREEN,
    "warn": theme.ORANGE,
    "bad": theme.VERMILLION,
    "all": theme.BLUE,
    "half": theme.SKY,
    "front": theme.PAGE["ink"],
    "first": theme.RAMP[2],
    "others": theme.PHASES["queue"],  # whiskers stand out from both
}
"""What a colour stands for -> colour."""


def chart(found: BarChart | PointChart | Grid) -> go.Figure:
    """The figure of a record."""
    if isinstance(found, BarChart):
        return bars(found)
    return points(found) if isinstance(found, PointChart) else heat(found)


def _tone(name: str) -> theme.Tone:
    return theme.policy(name.removeprefix(POLICY)) if name.startswith(POLICY) else TONES[name]


def _shown(text: str) -> str:
    """``text`` line by line, as Plotly shows it and pages write it."""
    return "<br>".join(str(typeset(plain(line))) for line in text.split("\n"))


class Scaled(NamedTuple):
    """An axis, what values are multiplied with to be in its unit, and how the pointer shows them,
    behind the name of a value."""

    axis: dict[str, Any]
    factor: float
    told: str


def _scaled(axis: ChartAxis, values: Sequence[float]) -> Scaled:
    """The axis of these values, with its ends."""
    title, most = plain(axis.title), max(values, default=0.0)
    if axis.logarithmic and axis.kind == "ms":
        return Scaled(times(title, values), 1e-3, ":.4~s}s")
    if axis.logarithmic:
        ends = min(1.0, *values) / 1.333, max(1.0, *values) * 1.333
        ticks = labelled(*ends, "{:,.10g}x".format, MANY)
        return Scaled(theme.axis(title) | ticks, 1.0, ":,.4~g}x")
    shown = time_scale(most / 1e3)
    low, high = axis.ends or (0.0, 1.05 * most or 1.0)
    if axis.kind == "ms":
        factor = shown.factor / 1e3
        ends = factor * low, factor * high
        return Scaled(time_axis(title, shown, range=ends), factor, f":,.4~g}} {shown.unit}")
    made = theme.axis(title, range=(low, high))
    if axis.kind == "share":
        ticks = _up_to_all(low) if axis.ends is not None and high > 1 >= most else {}
        return Scaled(made | {"tickformat": ".4~p"} | ticks, 1.0, ":.5~p}")
    if axis.kind == "count":
        made["dtick"] = max(1, int(high - low) // 8)
    return Scaled(made, 1.0, ":,.4~g}")


def _up_to_all(low: float) -> dict[str, Any]:
    """Labels from ``low`` up to 100 %, beyond which no share is.

    >>> [round(each, 3) for each in _up_to_all(0.977)["tickvals"]]
    [0.98, 0.985, 0.99, 0.995, 1.0]
    """
    unit = 10.0 ** floor(log10(1 - low))
    step = next(unit * each for each in (0.1, 0.2, 0.25, 0.5, 1, 2) if (1 - low) / unit / each <= 5)
    return {"tickvals": [1 - step * n for n in reversed(range(int((1 - low) / step) + 1))]}


THICK = 0.7
"""Share of a row that its bar fills; bars that begin alike and go the same way share it."""

LETTER, NARROW = 6, 150
"""Pixels of a letter next to a bar, and between both ends of an axis on a telephone, or in a figure
that shares a row on paper."""

MARGIN, MOST_ROOM = 0.04, 0.35
"""Shares of a figure's width that are left behind the bars, and at most for words before them."""

LEAST = 1e-3
"""The least difference between both ends of an axis."""

LINE_HEIGHT, TWO_WORDS, NAME_HEIGHT = 15, 34, 20
"""Pixels that each further line of a label takes, a row with two words, and the name of a part."""

SMALL: Mapping[str, Any] = {"textfont": theme.text("muted", 11), "cliponaxis": False}
BESIDE: Mapping[str, Any] = {**SMALL, "textposition": "outside", "constraintext": "none"}
"""How words are drawn next to dots and bars."""

OPEN = 0.125
"""Share of a bar that an arrow is long at least, behind an end that may be anywhere above it."""


def bars(found: BarChart) -> go.Figure:
    """The bars on an axis that may be as short as ``NARROW``."""
    log, ends = found.axis.logarithmic, [mark.at for mark in found.marks]
    dots, named = found.dots or log, [mark for mark in found.marks if mark.name]
    for bar in found.bars:
        ends += [bar.end] if dots else [bar.start, bar.end]
        if bar.interval is not None and not log:
            low, high = bar.interval
            ends += [low, bar.end + OPEN * abs(bar.end) if high is None else high]
    ends = ends or [0.0]
    axis, factor, _ = _scaled(found.axis, ends)
    low, high = axis["range"] if log else (factor * min(ends), factor * max(ends))
    span, right = _with_room(found.bars, low, high, factor)
    parts: dict[str, list[ChartBar]] = {}
    for bar in found.bars:
        parts.setdefault(bar.part, []).append(bar)
    places = dict(zip(found.bars, _places(found.bars), strict=True))
    labels = list(dict.fromkeys(map(_named, found.bars)))
    return draw.assemble(
        [_dots(own, factor) if dots else _bars(own, places, factor) for own in parts.values()],
        axis | {"range": span},
        _names(labels) | ({} if dots else {"showgrid": False}),  # words stand next to bars
        margin={"r": right},
        height=height(len(labels), _row(labels, places))
        + LINE_HEIGHT * bool(named)
        + NAME_HEIGHT * (len(parts) if len(parts) > 1 else 0),
        barmode="overlay",
        showlegend=len(parts) > 1,
        legend={"traceorder": "normal"},
        shapes=[draw.upright(factor * mark.at, dash=mark.dash) for mark in found.marks],
        annotations=[
            draw.note(
                _shown(mark.name), factor * mark.at, 1.0, size=10, yref="paper", yanchor="bottom"
            )
            for mark in named
        ]
        + [draw.arrow(factor * bar.end, span[1], _named(bar)) for bar in found.bars if _open(bar)],
    )


def _named(bar: ChartBar) -> str:
    """The label of a bar's row. Words of a bar with an interval, which the interval would cross
    next to it, are a line of the label."""
    named = label(bar.row)
    return f"{named}<br>{_shown(bar.words)}" if bar.words and bar.interval else named


def _open(bar: ChartBar) -> bool:
    """Whether the end of ``bar`` may be anywhere above it."""
    return bar.interval is not None and bar.interval[1] is None


def _with_room(
    bars: Sequence[ChartBar], low: float, high: float, factor: float
) -> tuple[tuple[float, float], int]:
    """The ends of an axis, and pixels behind it, that leave room for the words next to the bars;
    bars that stand on the ground have none below it."""
    left, behind = MARGIN * (low != 0), float(theme.RIGHT)
    for bar in bars:
        if bar.words and bar.interval is None:
            words = LETTER * len(bar.words) + 8
            if bar.end < bar.start:
                left = max(left, min(MOST_ROOM, words / NARROW))
            else:
                short = (high - factor * bar.end) / max(high - low, LEAST)
                behind = max(behind, words - NARROW * max(0.0, short))
    whole = max(high - low, LEAST) / (1 - left - MARGIN)
    return (low - left * whole, high + MARGIN * whole), ceil(behind)


def _places(bars: Sequence[ChartBar]) -> list[tuple[float, float]]:
    """Offset and width of each bar in its row: one would hide another that begins alike and goes
    the same way."""
    ways = [(bar.row, bar.start, bar.end < bar.start) for bar in bars]
    places = []
    for index, way in enumerate(ways):
        width = THICK / ways.count(way)
        places.append((width * ways[:index].count(way) - THICK / 2, width))
    return places


def _row(labels: Sequence[str], places: Mapping[ChartBar, tuple[float, float]]) -> int:
    """Pixels of a row."""
    lines = max((each.count("<br>") for each in labels), default=0)
    shared = any(bar.words and width < THICK for bar, (_, width) in places.items())
    return max(ROW_HEIGHT + LINE_HEIGHT * lines, TWO_WORDS * shared)


def _bars(
    bars: Sequence[ChartBar], places: Mapping[ChartBar, tuple[float, float]], factor: float
) -> draw.Trace:
    return draw.bars(
        [factor * (bar.end - bar.start) for bar in bars],
        [_named(bar) for bar in bars],
        _colours(bars),
        HOVER,
        base=[factor * bar.start for bar in bars],
        offset=[places[bar][0] for bar in bars],
        width=[places[bar][1] for bar in bars],
        marker={"line": _edges(bars)},
        **_said(bars, factor),
        **BESIDE,
    )


def _dots(bars: Sequence[ChartBar], factor: float) -> draw.Trace:
    return draw.points(
        [factor * bar.end for bar in bars],
        [_named(bar) for bar in bars],
        {
            "size": 10,
            "color": _colours(bars),
            "line": _edges(bars),
            "symbol": [SHAPES.get(bar.tone, "circle") for bar in bars],
        },
        hover=HOVER,
        **_said(bars, factor),
        textposition="middle right",
        **SMALL,
    )


HOVER = "%{customdata}<extra></extra>"

SHAPES: Mapping[str, str] = {"": "diamond", "warn": "diamond", "bad": "x", "half": "square"}
"""How dots differ for readers who do not see colours."""


def _colours(bars: Sequence[ChartBar]) -> list[str]:
    tones = [(_tone(bar.tone), bar.pale) for bar in bars]
    return [(theme.faint(tone) if pale else tone).light for tone, pale in tones]


def _edges(bars: Sequence[ChartBar]) -> dict[str, Any]:
    return {"color": [_tone(bar.tone).light for bar in bars], "width": 1}


def _said(bars: Sequence[ChartBar], factor: float) -> dict[str, Any]:
    """The words on bars, in the legend, next to them and under the pointer, and the intervals at
    their ends, if they have any."""
    said: dict[str, Any] = {
        "name": bars[0].part,
        "text": [
            f" {_shown(bar.words)} " * (bar.interval is None and bool(bar.words)) for bar in bars
        ],
        "customdata": [_shown(bar.text) for bar in bars],
    }
    if any(bar.interval for bar in bars):
        ends = [bar.interval or (bar.end, bar.end) for bar in bars]
        pairs = list(zip(bars, ends, strict=True))
        less = [factor * abs(low - bar.end) for bar, (low, _) in pairs]
        more = [
            factor * abs((bar.end if high is None else high) - bar.end) for bar, (_, high) in pairs
        ]
        said["error_x"] = draw.spread(less, more, theme.PAGE["ink"].light)
    return said


def _names(labels: Sequence[str]) -> dict[str, Any]:
    """An axis of rows, the first one on top. Ticks are at names: at positions, Plotly would take 1
    for the row that is called "1"."""
    ticks = {"tickmode": "array", "tickvals": list(labels), "ticktext": list(labels)}
    ends = [max(len(labels), 1) - 0.4, -0.6]
    return theme.axis(None, type="category", range=ends, **ticks)


SYMBOLS: Mapping[str | None, str] = {
    State.OVERLOADED: "circle-open",
    SloState.MISSED: "x",
    LoadOutcome.FAILS: "x",
    LoadOutcome.OPEN: "diamond",
}
"""State of a point -> its shape, where it is not that of its series."""

BELOW, WHOLE = "triangle-down", 0.03
"""The shape of points that are below the axis, and at which share of its height they are drawn."""

TO_THE_LEFT, TO_THE_RIGHT = 0.8, 0.2
"""From which share of the axis on words stand to the left of their point, and up to which they do
not."""

WORDS_ACROSS, WORDS_UP = 0.15, 0.07
"""Shares of both axes that the words of a point take."""


def points(found: PointChart) -> go.Figure:
    """The series in their order, with marks, and green where a limit is kept."""
    every = [point for each in found.series for point in each.points]
    ends: tuple[list[float], list[float]] = [at.x for at in every], [at.y for at in every]
    for mark in found.marks:
        (ends[0] if mark.upright else ends[1]).append(mark.at)
    x, y = _scaled(found.x, ends[0]), _scaled(found.y, ends[1])
    looks = iter(styles([each.settings for each in found.series if each.tone is None]))
    told = (
        f"{plain(found.x.title)}: %{{x{x.told}<br>{plain(found.y.title)}: %{{customdata[1]{y.told}"
    )
    traces = []
    for each in found.series:
        look = Style(_tone(each.tone).light, each.dash) if each.tone is not None else next(looks)
        if each.points:
            traces.append(_series(each, look, x.axis["range"], y, told))
    shapes = [_mark(mark, y.factor) for mark in found.marks]
    if found.within is not None:
        shapes.insert(0, _region(*found.within, y))
    named = [each for each in (*traces, *shapes) if each.get("name")]
    return draw.assemble(traces, x.axis, y.axis, shapes=shapes, showlegend=len(named) > 1)


def _mark(mark: Mark, factor: float) -> draw.Trace:
    named: draw.Trace = {"name": _shown(mark.name), "showlegend": True} if mark.name else {}
    if mark.upright:
        return draw.upright(mark.at, "muted", dash=mark.dash, **named)
    return draw.across(factor * mark.at, dash=mark.dash, **named)


def _region(right: float | None, limit: float, y: Scaled) -> draw.Trace:
    """Up to the highest ``x``, if there is one, and up to the limit."""
    bottom = 10 ** y.axis["range"][0] if y.axis.get("type") == "log" else y.axis["range"][0]
    ends = {"x0": 0, "x1": right, "xref": "x"} if right else {"x0": 0, "x1": 1, "xref": "paper"}
    named = {"name": "within the SLO", "showlegend": True}
    green = theme.faint(theme.GREEN).light
    return draw.wash(green, y0=bottom, y1=y.factor * limit, **ends, **named)


def _series(each: Series, look: Style, across: Sequence[float], y: Scaled, told: str) -> draw.Trace:
    """The points of a series, those below the axis on it, and the line through them."""
    log, values = y.axis.get("type") == "log", [y.factor * at.y for at in each.points]
    bottom, top = (0.0, 0.0) if log else y.axis["range"]
    bottom += WHOLE * (top - bottom) if any(value < bottom for value in values) else 0.0
    symbols = [
        SYMBOLS.get(at.state, look.symbol) if value >= bottom else BELOW
        for at, value in zip(each.points, values, strict=True)
    ]
    drawn = [at.x for at in each.points], [max(bottom, value) for value in values]
    marker = {"size": 9, "color": look.color, "symbol": symbols}
    more: dict[str, Any] = {
        "customdata": [
            [_shown(at.text), value] for at, value in zip(each.points, values, strict=True)
        ],
        "showlegend": bool(each.name),
        "cliponaxis": False,
    }
    if any(at.words for at in each.points):
        kept, room = each.points, " "
        if each.look == "line":  # the points that lie on it are drawn over its words
            kept, room = _apart(each, drawn[1], across, y), "\u00a0" * 3
        shown = [_shown(at.words) if at in kept else "" for at in each.points]
        more["text"] = [f"{room}{words}{room}" if words else "" for words in shown]
        more["textposition"] = [_side(each, at.x, across) for at in each.points]
        more["textfont"] = theme.text("muted", 11)
    if any(at.interval for at in each.points):
        more["error_y"] = _interval(each.points, drawn[1], y.factor, bottom, look.color)
    hover = f"%{{customdata[0]}}<br>{told}" if any(at.text for at in each.points) else ""
    hover += "" if each.name or not hover else "<extra></extra>"
    name = plain(each.name)
    if each.look == "points":
        return draw.points(*drawn, marker, name, hover, **more)
    more |= {"dash": look.dash, "shape": each.steps}
    more |= {"mode": "lines+text"} if "text" in more else {}
    more |= {"mode": "lines+markers", "marker": marker} if each.look == "both" else {}
    return draw.line(*drawn, look.color, name, hover, **more)


def _side(each: Series, x: float, across: Sequence[float]) -> str:
    """Where the words of a point stand. No point lies on the better side of a front: below it where
    less is better, above it where more is (its steps)."""
    share = (x - across[0]) / (across[1] - across[0])
    if each.steps == "vh":
        return "top left" if share > TO_THE_LEFT else "top right"
    if each.steps == "hv":
        return "bottom right" if share < TO_THE_RIGHT else "bottom left"
    return "bottom left" if share > TO_THE_LEFT else "bottom center"


def _apart(
    each: Series, values: Sequence[float], across: Sequence[float], y: Scaled
) -> tuple[ChartPoint, ...]:
    """The points of a line, from one end to the other, whose words are not on those before them."""
    log = y.axis.get("type") == "log"
    kept: list[tuple[float, float, ChartPoint]] = []
    for at, value in zip(each.points, values, strict=True):
        x, up = at.x / (across[1] - across[0]), log10(value) if log else value
        up /= y.axis["range"][1] - y.axis["range"][0]
        if all(abs(x - a) > WORDS_ACROSS or abs(up - b) > WORDS_UP for a, b, _ in kept):
            kept.append((x, up, at))
    return tuple(at for *_, at in kept)


def _interval(
    points: Sequence[ChartPoint], drawn: Sequence[float], factor: float, bottom: float, color: str
) -> dict[str, Any]:
    """Where points may be, as far as that is on the axis."""
    ends = [at.interval or (at.y, at.y) for at in points]
    pairs = list(zip(drawn, ends, strict=True))
    less = [at - max(bottom, min(at, factor * low)) for at, (low, _) in pairs]
    return draw.spread(less, [max(0.0, factor * high - at) for at, (_, high) in pairs], color)
