"""Draws observed and predicted latencies as two cumulative distributions.

Takes seconds and shows milliseconds, or seconds where the values are long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from reports.figures.axes import labelled
from reports.figures.latency_cdf import POINTS
from reports.frame import draw, theme
from reports.frame.decimate import ranks
from reports.frame.scale import time_axis
from sim.units import Scale, time_scale

Floats = npt.NDArray[np.float64]

WIDE = 25.0
"""The largest over the median value from which on an axis is logarithmic."""


class LatencySample:
    """Values in ascending order, each seen ``weights`` times."""

    def __init__(self, values: Floats, weights: Floats | None = None) -> None:
        self.values = values
        self.weights = np.ones(len(values)) if weights is None else weights

    def __len__(self) -> int:
        return len(self.values)

    def median(self) -> float:
        """The middle one."""
        reached = np.cumsum(self.weights)
        return float(self.values[np.searchsorted(reached, reached[-1] / 2)])


def figure(title: str, observed: LatencySample, predicted: LatencySample) -> go.Figure:
    """The observed and predicted distribution of the latency called ``title``; a side without
    values has no curve."""
    sides = {"observed": observed, "predicted": predicted}
    known = {name: sample for name, sample in sides.items() if len(sample)}
    longest = max((float(sample.values[-1]) for sample in known.values()), default=0.0)
    shown = time_scale(longest)
    wide = any(longest > WIDE * sample.median() > 0 for sample in known.values())
    above = [float(each) for s in known.values() for each in s.values[s.values > 0][:1]]
    log = labelled(min(above, default=1.0) * shown.factor, (longest or 1.0) * 1.15 * shown.factor)
    ends = {"range": [0, longest * shown.factor * 1.05 or 1]}
    shares = {"range": [0, 1.02], "tickformat": ".0%", "dtick": 0.25, "fixedrange": True}
    return draw.assemble(
        [_curve(name, sample, shown) for name, sample in known.items()],
        time_axis(title, shown) | (log if wide else ends),
        theme.axis("share", **shares),
        meta={"log": log},
        showlegend=True,
    )


def _curve(name: str, sample: LatencySample, shown: Scale) -> dict[str, Any]:
    drawn = ranks(len(sample), POINTS)
    shares = np.cumsum(sample.weights) / sample.weights.sum()
    x = np.concatenate([sample.values[:1], sample.values[drawn]]) * shown.factor
    y = np.concatenate([[0.0], shares[drawn]])
    return draw.line(
        x.astype(np.float32),
        y.astype(np.float32),
        name=name,
        hover=f"%{{y:.1%}} take at most %{{x:,.4~g}} {shown.unit}",
        shape="hv",
        **theme.side(name),
    )
