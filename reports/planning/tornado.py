"""How far does each change move one figure? Bars to both sides of what it is now, widest on top.

Run it: ``python -m reports.planning.tornado [RESULT_JSON]`` with the result of a diagnosis or of a
study of sensitivity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain

MOST_ROWS = 24
"""Changes that one figure shows."""


class Bar(NamedTuple):
    """``change`` is relative: 0.1 is a tenth more. ``side`` groups bars of one row."""

    row: str
    change: float
    text: str


def figure(title: str, more: bool, bars: Sequence[Bar]) -> go.Figure:
    """The changes of the figure called ``title``, of which ``more`` is better or not.

    Green is better, red is worse.
    """
    widest: dict[str, float] = {}
    for bar in bars:
        widest[bar.row] = max(widest.get(bar.row, 0.0), abs(bar.change))
    rows = sorted(widest, key=lambda row: -widest[row])[:MOST_ROWS]
    drawn = [bar for row in rows for bar in bars if bar.row == row]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [plain(bar.row) for bar in drawn],
        "x": [100 * bar.change for bar in drawn],
        "marker": {"color": [_colour(bar.change, more) for bar in drawn]},
        "customdata": [plain(bar.text) for bar in drawn],
        "hovertemplate": "%{customdata}: %{x:+.3~g} %<extra></extra>",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(f"{title}, change (%)"),
        "yaxis": theme.axis(None) | {"type": "category", "autorange": "reversed"},
        "barmode": "overlay",
        "hovermode": "closest",
        "shapes": [
            {
                "type": "line",
                "yref": "paper",
                "x0": 0,
                "x1": 0,
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.PAGE["ink"].light, "width": 1.5},
            }
        ],
    }
    return go.Figure(data=[trace], layout=layout)


def of_trials(document: Mapping[str, Any], key: str) -> list[Bar]:
    """The bars of a diagnosis."""
    return [
        Bar(trial["title"], trial["changes"][key], trial["title"])
        for trial in document["trials"]
        if trial["changes"].get(key) is not None
    ]


def of_inputs(document: Mapping[str, Any], key: str) -> list[Bar]:
    """The bars of a study of sensitivity, two for each input."""
    return [
        Bar(entry["title"], end["changes"][key], f"{entry['title']} {end['text']}")
        for entry in document["inputs"]
        for end in (entry["low"], entry["high"])
        if end is not None and end["changes"].get(key) is not None
    ]


def _colour(change: float, more: bool) -> str:
    return (theme.GREEN if (change > 0) == more else theme.VERMILLION).light


def _of(document: Mapping[str, Any]) -> go.Figure:
    bars = of_trials if document["kind"] == "diagnosis" else of_inputs
    return figure("TTFT p99", False, bars(document, "p99_ttft_ms"))


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import diagnosis

    main("tornado", _of, diagnosis)
