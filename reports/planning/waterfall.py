"""Draws how one metric grows technique by technique: each bar begins where the last one ended.

Run it: ``python -m reports.planning.waterfall [RESULT_JSON]`` with the result of an ablation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports import theme
from reports.planning.layout import IN_SECONDS
from reports.planning.naming import label
from reports.planning.study import TITLES
from sim.planning.ablate_words import SAME, value_text


class Bar(NamedTuple):
    """From where to where; a ``whole`` one stands on the ground, others are what a step brings."""

    name: str
    start: float
    end: float
    tone: theme.Tone
    whole: bool


def bars(entry: Mapping[str, Any]) -> list[Bar]:
    """Baseline, steps and the whole of one figure; steps that do not run are left out, and what
    the next one brings is counted from before them."""
    made, at = [], entry["baseline"]
    if at is not None:
        made.append(Bar("baseline", 0.0, at, theme.GREY, whole=True))
    for step in entry["steps"]:
        value = step["value"]
        if value is None or at is None:
            continue
        better = (value >= at) == entry["more"]
        tone = theme.GREEN if better else theme.VERMILLION
        made.append(Bar(f"+ {step['title']}", at, value, tone, whole=False))
        at = value
    if entry["full"] is not None:
        made.append(Bar("all together", 0.0, entry["full"], theme.BLUE, whole=True))
    return made


def figure(document: Mapping[str, Any], key: str) -> go.Figure:
    """The steps of the figure called ``key`` in the order asked for, and the whole at the end.

    Green is better, red is worse.
    """
    entry = next(each for each in document["figures"] if each["key"] == key)
    drawn = bars(entry)
    highest = max([bar.end for bar in drawn], default=1.0) or 1.0
    seconds = entry["unit"] == "ms" and highest >= IN_SECONDS
    scale, unit = (1e-3, "s") if seconds else (1.0, entry["unit"])
    trace = {
        "type": "bar",
        "x": [label(bar.name) for bar in drawn],
        "y": [scale * (bar.end - bar.start) for bar in drawn],
        "base": [scale * bar.start for bar in drawn],
        "marker": {"color": [bar.tone.light for bar in drawn]},
        "customdata": [value_text(key, bar.end) for bar in drawn],
        "hovertemplate": "%{x}: %{customdata}<extra></extra>",
    }
    words = {
        "type": "scatter",
        "mode": "text",
        "x": [label(bar.name) for bar in drawn],
        "y": [scale * max(bar.start, bar.end) for bar in drawn],
        "text": [_told(key, bar) for bar in drawn],
        "textposition": "top center",
        "textfont": {"color": theme.PAGE["ink"].light, "size": 12},
        "hoverinfo": "skip",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(None) | {"type": "category"},
        "yaxis": theme.axis(_axis(key, unit)) | {"range": [0, 1.1 * scale * highest]},
        "bargap": 0.3,
    }
    return go.Figure(data=[trace, words], layout=layout)


def _axis(key: str, unit: str) -> str:
    title = TITLES[key]
    return title if unit in title else f"{title} ({unit})"


def _told(key: str, bar: Bar) -> str:
    """The value of a whole, the change of a step."""
    change = bar.end - bar.start
    if bar.whole:
        return value_text(key, bar.end)
    if abs(change) <= SAME * max(abs(bar.start), abs(bar.end)):
        return "no change"
    return f"{'+' if change >= 0 else '−'}{value_text(key, abs(change))}"


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up_studies import ablation

    main("waterfall", lambda document: figure(document, "output_throughput"), ablation)
