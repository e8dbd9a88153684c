"""Draws the cumulative distribution of the gaps between tokens (ITL).

The gaps of a whole run are too many for a table, so the run directory has their distribution at
exact points (``charts.json``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from reports.figures.latency_cdf import MARKS, LatencyCurve, distribution, empty

TITLE = "ITL"


def figure(
    curve: Mapping[str, Sequence[float]] | None, percentiles: Mapping[int, float | None]
) -> go.Figure:
    """The distribution of the gaps: ``curve`` has ``ms``, ascending, and ``share``.

    ``percentiles`` has the gap (ms) at each of ``MARKS``, as the summary states it. Without any
    gap the figure is empty and says so.
    """
    marks = [percentiles[mark] for mark in MARKS]
    if curve is None or None in marks:
        return empty(TITLE)
    x = np.asarray(curve["ms"], dtype=float) / 1e3
    y = np.asarray(curve["share"], dtype=float)
    drawn = LatencyCurve(np.append(x[:1], x), np.append(0.0, y), "linear", "gaps")
    return distribution("itl", TITLE, drawn, np.asarray(marks, dtype=float) / 1e3)


def stated(summary: Mapping[str, Any]) -> dict[int, float | None]:
    """The percentiles of a summary, as ``figure`` takes them."""
    return {mark: summary[f"p{mark}_itl_ms"] for mark in MARKS}
