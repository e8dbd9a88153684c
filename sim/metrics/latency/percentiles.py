"""Computes mean, spread and percentiles of latencies. Seconds in, milliseconds out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.metrics.latency.gaps import Gaps

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


def describe_gaps(gaps: Gaps, name: str) -> dict[str, float | None]:
    """Statistics of every gap that every sequence saw, with the keys of ``describe``."""
    if not len(gaps):
        return _named(name, None, None, [None] * len(PERCENTILES))
    return _named(name, gaps.mean(), gaps.std(), list(gaps.percentiles(PERCENTILES)))


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
