"""The label of a latency limit in a distribution stands where no line strikes it through."""

from __future__ import annotations

import numpy as np
import pytest

from reports.figures.latency_cdf import LABEL, LatencyCurve, distribution

HALF = LABEL[1]


def label_of(
    values: np.ndarray, limit: float, target: float | None
) -> tuple[float, tuple[float, float]]:
    """The height of the label, and what the curve covers along it."""
    x = np.sort(values)
    y = np.arange(1, len(x) + 1) / len(x)
    marks = np.percentile(x, (50, 90, 99))
    curve = LatencyCurve(np.concatenate([x[:1], x]), np.concatenate([[0.0], y]), "hv", "requests")
    drawn = distribution("ttft", "TTFT", curve, marks, limit, target)
    (label,) = [t for t in drawn.data if t.text and " limit " in t.text[1]]
    at, right = float(label.x[1]), label.textposition == "middle right"
    factor = at / limit
    longest = max(limit, x[-1]) * factor
    if drawn.layout.xaxis.type == "log":
        width = np.log(longest / (factor * x[0])) * LABEL[0]
        ends = (at, at * np.exp(width)) if right else (at * np.exp(-width), at)
    else:
        width = LABEL[0] * longest
        ends = (at, at + width) if right else (at - width, at)
    low, high = (float((x * factor <= end).mean()) for end in ends)
    return float(label.y[1]), (low, high)


@pytest.mark.parametrize("target", [None, 0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("limit", [0.05, 1.0, 6.0, 20.0, 39.0, 60.0])
@pytest.mark.parametrize("kind", ["even", "late", "wide"])
def test_nothing_strikes_the_label_through(kind: str, limit: float, target: float | None) -> None:
    """``late``: an overload, in which nearly all requests are beyond the limit."""
    share = np.linspace(0.001, 1, 1000)
    values = {"even": 40 * share, "late": 40 * share**0.3, "wide": np.exp(7 * share - 3.3)}[kind]
    height, (low, high) = label_of(values, limit, target)
    assert 0 < height < 1
    if target is not None:
        assert abs(height - target) >= 0.9 * HALF
    if high - low < 0.75:  # else there is no room that the curve does not cross
        assert height + 0.9 * HALF <= low or height - 0.9 * HALF >= high
