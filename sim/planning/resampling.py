"""Estimates by bootstrap how sure the difference of two runs with the same requests is.

Requests that were served at the same time share their fate, so whole blocks of neighbours are
drawn, as long as the root of their number. Always the same draws.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sim.metrics.repetitions import CONFIDENCE
from sim.planning.paired import NOTHING, Difference
from sim.rng import stream

DRAWS = 500
"""Resamples: enough for the second digit of an interval."""

ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
"""Quantiles at which an interval ends."""

Floats = NDArray[np.float64]


def bootstrap(
    values: Floats, bases: Floats, rank: float | None, *, scale: float = 1.0
) -> Difference:
    """The difference of the means of pairs, or of their percentiles of that ``rank``.

    Values and bases are in order of arrival; the result is ``scale`` times as large.
    """
    n = len(values)
    if not n:
        return NOTHING
    mean, base = _apart(values, bases, rank), _of(bases, rank)
    relative = mean / base if base else None
    if n == 1:
        return Difference(scale * mean, None, None, relative, None, n)
    length = max(1, math.isqrt(n))
    random, within = stream(0, "bootstrap"), np.arange(length)
    drawn, ratios = np.empty(DRAWS), np.empty(DRAWS)
    for draw in range(DRAWS):
        starts = random.integers(0, n, -(-n // length))
        chosen = ((starts[:, None] + within) % n).ravel()[:n]
        drawn[draw] = _apart(values[chosen], bases[chosen], rank)
        ratios[draw] = drawn[draw] / (_of(bases[chosen], rank) or math.nan)
    low, high = np.quantile(drawn, ENDS)
    share = float(np.ptp(np.nanquantile(ratios, ENDS))) / 2 if relative is not None else None
    return Difference(scale * mean, scale * float(low), scale * float(high), relative, share, n)


def _apart(values: Floats, bases: Floats, rank: float | None) -> float:
    return _of(values - bases, None) if rank is None else _of(values, rank) - _of(bases, rank)


def _of(values: Floats, rank: float | None) -> float:
    return float(values.mean()) if rank is None else float(np.percentile(values, rank))
