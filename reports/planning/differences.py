"""How do variants compare in one figure? Their means, and how far each is from the base.

Relative differences in percent of the base's value, with intervals; the line at 0 is the base. Run
it: ``python -m reports.planning.differences [RESULT_JSON]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.layout import height, times, zero
from reports.planning.naming import label
from reports.planning.series import styles

MOST_ROWS = 24
"""Variants that one figure shows."""

WIDE = 30.0
"""Largest over smallest latency from which on means are drawn on a logarithmic axis."""


def means(document: Mapping[str, Any], key: str) -> go.Figure:
    """The mean of the figure called ``key`` of every variant that has one, in its own colour."""
    found = _entry(document, key)
    looks = styles([variant["settings"] for variant in document["variants"]])
    rows = [
        (label(variant["label"]), value, look)
        for variant, value, look in zip(document["variants"], found["means"], looks, strict=True)
        if value is not None
    ][:MOST_ROWS]
    values = [value for _, value, _ in rows]
    wide = found["unit"] == "ms" and min(values, default=1) > 0 < len(values)
    wide = wide and max(values) > WIDE * min(values)
    unit = "s" if wide else found["unit"]
    shown = [value / 1e3 for value in values] if wide else values
    shape: dict[str, Any] = {
        "y": [name for name, _, _ in rows],
        "x": shown,
        "hovertemplate": f"%{{y}}: %{{x:,.4~g}} {unit}<extra></extra>",
    }
    colours = [look.color for _, _, look in rows]
    if wide:  # a bar on a logarithmic axis would begin nowhere
        shape |= {"type": "scatter", "mode": "markers", "marker": {"size": 13, "color": colours}}
    else:
        shape |= {"type": "bar", "orientation": "h", "width": 0.6, "marker": {"color": colours}}
    title = f"{found['title']} ({found['unit']})"
    axis = times(found["title"], values) if wide else theme.axis(title) | {"rangemode": "tozero"}
    layout = _layout(len(rows)) | {"xaxis": axis}
    return go.Figure(data=[shape], layout=layout)


def figure(document: Mapping[str, Any], key: str) -> go.Figure:
    """The differences of the figure called ``key`` (of the document's ``figures``).

    Green is better than the base, red is worse, grey cannot be told from it.
    """
    found = _entry(document, key)
    rows = [
        (label(variant["label"]), apart)
        for variant, apart in zip(document["variants"], found["differences"], strict=True)
        if apart is not None and apart["relative"] is not None
    ][:MOST_ROWS]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [100 * apart["relative"] for _, apart in rows],
        "y": [name for name, _ in rows],
        "marker": {"size": 9, "color": [_colour(apart, found["better"]) for _, apart in rows]},
        "error_x": {
            "type": "data",
            "array": [100 * (apart["relative_half_width"] or 0.0) for _, apart in rows],
            "color": theme.GREY.light,
            "thickness": 1.5,
            "width": 4,
        },
        "hovertemplate": "%{y}: %{x:+.3~g} % ± %{error_x.array:.2~g}<extra></extra>",
    }
    axis = theme.axis(f"{found['title']}, difference (%)")
    layout = _layout(len(rows)) | {"xaxis": axis, "shapes": [zero()]}
    return go.Figure(data=[trace], layout=layout)


def _entry(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = next(each for each in document["figures"] if each["key"] == key)
    return entry


def _layout(rows: int) -> dict[str, Any]:
    upwards = {"type": "category", "range": [max(rows, 1) - 0.4, -0.6]}  # the first one on top
    return theme.layout() | {
        "height": height(rows),
        "yaxis": theme.axis(None) | upwards,
        "hovermode": "closest",
    }


def _colour(apart: Mapping[str, Any], better: str | None) -> str:
    if not apart["certain"] or better is None:
        return theme.GREY.light
    good = (apart["mean"] > 0) == (better == "higher")
    return (theme.GREEN if good else theme.VERMILLION).light


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import comparison

    main("differences", lambda document: figure(document, "p99_ttft_ms"), comparison)
