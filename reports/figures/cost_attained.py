"""Draws variants of a comparison by what they cost and by how many requests are within the SLO.

Down and right is dearer and worse: what stands up and left of another variant is better in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.figures.naming import plain
from reports.frame import draw, theme
from sim.planning.answers.drawings import CostAttained
from sim.units import PER_OUTPUT_TOKENS

NEAR = 0.05
"""Share of an axis within which two names would lie on each other."""

TO_THE_LEFT = 0.8
"""From this share of the axis on a name stands to the left of its point."""


def figure(found: CostAttained) -> go.Figure:
    """A point for each variant."""
    names = [plain(point.label) for point in found.points]
    points = [(point.x, point.y) for point in found.points]
    lowest = min(share for _, share in points)
    right = TO_THE_LEFT * max(x for x, _ in points)
    trace = draw.points(
        [x for x, _ in points],
        [y for _, y in points],
        {"size": 9, "opacity": 0.7, "color": theme.BLUE.light},
        hover="%{customdata}<br>$%{x:,.4~g}, %{y:.2%}<extra></extra>",
        text=_texts(points, [plain(point.short) for point in found.points]),
        textposition=["top left" if x > right else "top center" for x, _ in points],
        customdata=names,
        cliponaxis=False,
    )
    pad = max(0.02, 0.1 * (1 - lowest))
    share = {"tickformat": ".0%", "range": [max(0.0, lowest - pad), 1 + pad]}
    return draw.assemble(
        [trace],
        theme.axis(PER_OUTPUT_TOKENS, rangemode="tozero"),
        theme.axis("requests within the SLO", **share),
    )


def _texts(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[str]:
    """The name of each point; of points that lie on each other the first has all names.

    >>> _texts([(1.0, 0.5), (1.01, 0.5), (3.0, 0.9)], ["#1", "#2", "#3"])
    [' #1, #2 ', '', ' #3 ']
    """
    widest = max(x for x, _ in points)
    texts = [""] * len(points)
    for at, (x, y) in enumerate(points):
        first = next(
            i
            for i, (left, low) in enumerate(points)
            if abs(x - left) <= NEAR * widest and abs(y - low) <= NEAR
        )
        texts[first] = (
            f"{texts[first].rstrip()}, {names[at]} " if texts[first] else f" {names[at]} "
        )
    return texts
