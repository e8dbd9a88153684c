"""Computes mean, spread and percentiles of latencies. Seconds in, milliseconds out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.metrics.latency.gaps import Gaps

Floats = NDArray[np.float64]

PERCENTILES = (50, 90, 95, 99)


def percentiles(values: Floats, ranks: Sequence[float]) -> list[float]:
    """The percentiles ``ranks`` of ``values``, interpolated linearly: to the bit those of
    ``numpy.percentile``, which imports numpy's masked arrays, a fiftieth of the time of a start.

    >>> percentiles(np.array([4.0, 1.0, 2.0]), [50, 75])
    [2.0, 3.0]
    """
    last = len(values) - 1
    places = last * (np.asarray(ranks) / 100)
    below = places.astype(np.intp)
    above = np.minimum(below + 1, last)
    ordered = np.partition(values, sorted({*below.tolist(), *above.tolist()}))
    low, high, part = ordered[below], ordered[above], places - below
    step = high - low
    found: list[float] = np.where(part < 0.5, low + step * part, high - step * (1 - part)).tolist()
    return found


def percentile(values: Floats, rank: float) -> float:
    """The percentile ``rank`` of ``values``, as ``percentiles`` has it."""
    return percentiles(values, [rank])[0]


def describe(seconds: Floats, name: str) -> dict[str, float | None]:
    """``mean_NAME_ms``, ``median_...``, ``std_...``, ``p50_...`` to ``p99_...``; None where empty.

    Percentiles interpolate linearly; the standard deviation has ddof 0.
    """
    if not len(seconds):
        return _named(name, None, None, [None] * len(PERCENTILES))
    return _named(name, seconds.mean(), seconds.std(), [*percentiles(seconds, PERCENTILES)])


def describe_gaps(gaps: Gaps, name: str) -> dict[str, float | None]:
    """Statistics of every gap that every sequence saw, with the keys of ``describe``."""
    if not len(gaps.first):
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
