"""Splits the latency of fast and slow requests into its parts, drawn as stacked bars.

Requests are sorted by a latency and cut into bands of percentiles; each band has the mean of every
part over its requests. Since the parts of each request add up to its latency, the means of a band
add up to the band's mean latency, exactly. Seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from reports.frame import draw, theme
from reports.frame.draw import time_axis
from sim.units import Scale, time_scale

Floats = npt.NDArray[np.float64]
Of = Literal["ttft", "e2el"]

PROMPT_PARTS = ("front_end", "queue", "prefill", "prefill_delay", "prefill_preempted")
AFTER_PARTS = ("decode", "decode_delay", "decode_preempted")

PARTS: Mapping[Of, tuple[str, ...]] = {
    "ttft": (*PROMPT_PARTS, "transfer"),
    "e2el": (*PROMPT_PARTS, *AFTER_PARTS, "transfer"),
}
"""Latency -> the parts that add up to it, in order of time; ``<part>_s`` is the column."""

TITLES: Mapping[str, str] = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "delayed by others' prefill",
    "prefill_preempted": "preempted before the first token",
    "decode": "decode",
    "decode_delay": "decode delayed by prefill",
    "decode_preempted": "preempted while decoding",
    "transfer": "KV transfer",
}
"""Part -> what it is called."""

EDGES = (0, 10, 25, 50, 75, 90, 95, 99, 100)
"""Percentiles between which the bands lie."""


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands that have requests, from fast to slow.

    ``parts[name][i]`` is the mean of a part over the ``counts[i]`` requests of band ``i``,
    ``whole[i]`` that of the latency; ``mean`` has the mean of each part over all of them.
    """

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    parts: dict[str, Floats]
    whole: Floats
    mean: dict[str, float]


def bands(requests: pd.DataFrame, of: Of) -> Bands | None:
    """The bands of ``of`` over completed requests after the warm-up.

    None where no request has parts: none was completed, or parts were not recorded.
    """
    columns = [f"{name}_s" for name in PARTS[of]]
    if not set(columns) <= set(requests.columns):
        return None
    counted = (requests["status"] == "completed") & ~requests["warmup"].astype(bool)
    rows = requests.loc[counted, [f"{of}_s", *columns]].to_numpy(float)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return None
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    edges = [round(len(rows) * percentile / 100) for percentile in EDGES]
    taken = [i for i in range(len(EDGES) - 1) if edges[i + 1] > edges[i]]
    means = np.array([rows[edges[i] : edges[i + 1]].mean(axis=0) for i in taken])
    return Bands(
        labels=tuple(f"p{EDGES[i]}–{EDGES[i + 1]}" for i in taken),
        counts=tuple(edges[i + 1] - edges[i] for i in taken),
        parts={name: means[:, column] for column, name in enumerate(PARTS[of], start=1)},
        whole=means[:, 0],
        mean=dict(zip(PARTS[of], rows[:, 1:].mean(axis=0).tolist(), strict=True)),
    )


def figure(found: Bands | None, of: Of) -> go.Figure:
    """The parts of ``of`` band by band, from fast to slow; of none, empty and says so."""
    if found is None:
        return draw.nothing("The parts of latencies were not recorded")
    longest = float(found.whole.max())
    shown = time_scale(longest)
    traces = [_bars(name, found, shown) for name in found.parts if (found.parts[name] > 0).any()]
    top = _top(found.whole, len(traces)) * shown.factor
    return draw.assemble(
        traces,
        theme.axis(
            f"percentiles of {of.upper()}, fast to slow",
            type="category",
            showgrid=False,
            fixedrange=True,
        ),
        time_axis(f"mean {of.upper()}", shown, range=[0, top], fixedrange=True),
        barmode="stack",
        bargap=0.25,
        showlegend=True,
        legend=LEGEND,
    )


LEGEND = {
    **{"orientation": "v", "x": 0.01, "y": 1.0, "xanchor": "left", "yanchor": "top"},
    **{"traceorder": "reversed", "font": {"size": 11}},
}
"""The parts as they lie on each other, over the lowest bars: latencies grow to the right."""

LINE, PLOT = 19, 235
"""Height (px) of a line of the legend, and of the plot that it stands in."""

UNDER = 4
"""Bars, from the left, that end below the legend."""


def _top(whole: Floats, names: int) -> float:
    """The end of the axis, so that the legend of ``names`` lines is above the bars ``UNDER`` it."""
    free = max(0.25, 1 - LINE * (names + 0.5) / PLOT)
    return float(max(1.05 * whole.max(), whole[:UNDER].max() / free)) or 1.0


def _bars(name: str, found: Bands, shown: Scale) -> dict[str, Any]:
    unit, factor = shown
    values = found.parts[name]
    rows = zip((values * factor).tolist(), (values / found.whole).tolist(), strict=True)
    return {
        "type": "bar",
        "name": TITLES[name],
        "x": list(found.labels),
        "y": (values * factor).tolist(),
        "customdata": [
            [label, count, f"{value:,.4g} {unit}", share]
            for label, count, (value, share) in zip(found.labels, found.counts, rows, strict=True)
        ],
        "marker": {
            "color": theme.LATENCY_PARTS[name].light,
            "line": {"color": theme.PAGE["surface"].light, "width": 0.5},
        },
        "hovertemplate": (
            f"{TITLES[name]}: %{{customdata[2]}} (%{{customdata[3]:.1%}})<br>mean of "
            "%{customdata[1]:,d} requests, %{customdata[0]}<extra></extra>"
        ),
    }
