"""Draws published measurements against the bands of their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from scipy.stats import binomtest

from reports.figures.charts import chart
from reports.frame import draw, theme
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar, Mark

NOMINAL = {"50 %": 0.5, "90 %": 0.9}
"""The intended coverage of bands."""


class Held(NamedTuple):
    """A group of ``rows`` measurements, of which ``in50`` and ``in90`` were in the two bands."""

    name: str
    rows: int
    in50: int
    in90: int


def coverage(groups: Sequence[Held]) -> go.Figure:
    """The share of each group in either band, with the 95 % interval that its number allows."""
    bars = []
    for band, tone in (("50 %", "half"), ("90 %", "all")):
        for group in groups:
            inside = group.in50 if band == "50 %" else group.in90
            ends = binomtest(inside, group.rows).proportion_ci()
            text = f"{group.name}: {inside:,} of {group.rows:,} in the {band} band"
            dot = ChartBar(group.name, inside / group.rows, text, tone=tone, part=f"{band} band")
            bars.append(dot._replace(interval=(float(ends.low), float(ends.high))))
    marks = tuple(Mark(at, dash="dot") for at in NOMINAL.values())
    return chart(BarChart(ChartAxis("share in the band", "share"), tuple(bars), marks, dots=True))


FARTHEST = 16.0
"""Ratios beyond it are drawn at the edge; the pointer shows what they are."""

FAR = {f"1/{n}": 1 / n for n in (16, 8, 4, 2)} | {str(n): float(n) for n in (1, 2, 4, 8, 16)}
NEAR = {f"{n:g}": n for n in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)}
"""Ticks of an axis: label -> ratio."""


def ratios(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """``rows`` are predicted rows of a scored table, with bands, of one quantity."""
    ordered = sorted(rows, key=lambda row: _ratio(row, row["measured"]))
    places = [100 * (place + 0.5) / len(ordered) for place in range(len(ordered))]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for place, row in zip(places, ordered, strict=True):
        low, high = (_drawn(_ratio(row, end)) for end in row["band90"])
        xs += [place, place, None]
        ys += [low, high, None]
    grid = theme.PAGE["grid"].light
    traces = [draw.line(xs, ys, grid, "90 % band")]
    for name, inside, tone in (("in the band", True, theme.BLUE),
                               ("outside", False, theme.VERMILLION)):  # fmt: skip
        mine = [
            (place, row)
            for place, row in zip(places, ordered, strict=True)
            if is_inside(row) == inside
        ]
        traces.append(_ratio_dots(name, mine, tone))
    ends = [y for y in ys if y is not None]
    ticks = NEAR if ends and min(ends) > 1 / 3 and max(ends) < 3 else FAR
    labels = {"tickvals": list(ticks.values()), "ticktext": list(ticks)}
    return draw.assemble(
        traces,
        theme.axis("measurements, sorted (%)", range=[0, 100]),
        theme.axis("measured over predicted", type="log", **labels),
    )


def is_inside(row: Mapping[str, Any]) -> bool:
    """Whether the measurement was in the 90 % band."""
    low, high = row["band90"]
    return bool(low <= row["measured"] <= high)


def _ratio(row: Mapping[str, Any], value: float) -> float:
    return float(value / row["predicted"])


def _drawn(ratio: float) -> float:
    return min(max(ratio, 1 / FARTHEST), FARTHEST)


def _ratio_dots(
    name: str, placed: Sequence[tuple[float, Mapping[str, Any]]], tone: theme.Tone
) -> dict[str, Any]:
    return draw.points(
        [place for place, _ in placed],
        [_drawn(_ratio(row, row["measured"])) for _, row in placed],
        {"size": 4, "color": tone.light},
        name,
        "%{customdata}<extra></extra>",
        customdata=[
            f"{row['source']}:{row['line']}, {row['engine']}, {row['gpu']}, {row['model']}: "
            f"{_ratio(row, row['measured']):.2g}"
            for _, row in placed
        ],
    )
