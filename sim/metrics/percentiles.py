"""Mean, spread and percentiles of latencies, the ITL of leaps included. Seconds in, milliseconds
out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERCENTILES = (50, 90, 95, 99)


def describe(seconds: Floats, name: str) -> dict[str, float | None]:
    """``mean_NAME_ms``, ``median_...``, ``std_...``, ``p50_...`` to ``p99_...``; None where empty.

    Percentiles interpolate linearly as ``numpy.percentile``; the standard deviation has ddof 0.
    """
    if not len(seconds):
        return _named(name, None, None, [None] * len(PERCENTILES))
    ranks = np.percentile(seconds, PERCENTILES)
    return _named(name, seconds.mean(), seconds.std(), list(ranks))


def describe_weighted(seconds: Floats, weights: Floats, name: str) -> dict[str, float | None]:
    """As ``describe`` for values that occur ``weights`` times each (whole numbers, some may be
    0)."""
    total = float(weights.sum())
    if total == 0:
        return _named(name, None, None, [None] * len(PERCENTILES))
    mean = float((seconds * weights).sum()) / total
    spread = float(np.sqrt(((seconds - mean) ** 2 * weights).sum() / total))
    order = np.argsort(seconds)
    values, reached = seconds[order], np.cumsum(weights[order])
    ranks: list[float | None] = []
    for percentile in PERCENTILES:
        place = percentile / 100 * (total - 1)
        low = np.floor(place)
        below, above = np.searchsorted(reached, [low, min(low + 1, total - 1)], side="right")
        ranks.append(float(values[below] + (values[above] - values[below]) * (place - low)))
    return _named(name, mean, spread, ranks)


def expand_gaps(plans: NDArray[np.void], long_gaps: NDArray[np.void]) -> tuple[Floats, Floats]:
    """Every inter-token gap of a run, as (seconds, how many sequences saw it).

    Each iteration of a plan gives one gap to each sequence that decodes in it. In the first one the
    stalled sequences are left out: their longer gaps are in ``long_gaps``.
    """
    plans = plans[plans["decode"] > 0]
    counts = plans["iterations"].astype(np.int64)
    first = np.cumsum(counts) - counts  # where each plan's iterations begin
    step = np.arange(int(counts.sum())) - np.repeat(first, counts)
    seconds = np.repeat(plans["gap"], counts) + np.repeat(plans["slope"], counts) * step
    weights = np.repeat(plans["decode"].astype(np.float64), counts)
    weights[first] -= plans["stalled"]
    return (
        np.concatenate([seconds, long_gaps["gap"]]),
        np.concatenate([weights, long_gaps["count"].astype(np.float64)]),
    )


def _named(
    name: str, mean: float | None, spread: float | None, ranks: list[float | None]
) -> dict[str, float | None]:
    by_rank = dict(zip(PERCENTILES, ranks, strict=True))
    figures = {"mean": mean, "median": by_rank[50], "std": spread}
    figures |= {f"p{rank}": value for rank, value in by_rank.items()}
    return {
        f"{figure}_{name}_ms": None if value is None else float(value) * 1e3
        for figure, value in figures.items()
    }
