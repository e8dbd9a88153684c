"""Computes by how much two variants differ, and how sure that is, from paired differences.

Two runs under the same seed meet the same traffic, so that their difference varies less than either
of them. ``difference`` is of pairs of runs: Student's t, which assumes that the differences are
about normal. ``bootstrap`` is of the requests of one pair: those that were served at the same time
share their fate, so whole blocks of neighbours are drawn, as long as the root of their number.
Always the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from sim.metrics.repetitions import CONFIDENCE
from sim.rng import stream


@dataclass(frozen=True)
class Difference:
    """The mean of ``value - base`` over pairs with its interval, and the same relative to the base.

    ``low`` and ``high`` are None with fewer than two pairs, everything with none; what is relative
    also where the base is 0. The relative difference is the ratio of the means, less one: its
    interval is its own, narrower than that of the difference where a slow base means a slow value.
    """

    mean: float | None
    low: float | None
    high: float | None
    relative: float | None
    relative_half_width: float | None
    pairs: int

    @property
    def certain(self) -> bool:
        """Whether there is a difference: 0 is outside the interval of the relative one, or of the
        other where that is not known; without any interval, whether the values differ. Ratios are
        judged by their logarithms, so that one variant differs from another as surely as that from
        it."""
        if self.mean is None:
            return False
        if self.relative is not None and self.relative_half_width is not None:
            ratio = 1 + self.relative
            apart = ratio * math.log(ratio) if ratio > 0 else self.relative
            return abs(apart) > self.relative_half_width
        if self.low is None or self.high is None:
            return self.mean != 0
        return not self.low <= 0 <= self.high

    def document(self) -> dict[str, float | int | bool | None]:
        """The difference as plain data."""
        return {**asdict(self), "certain": self.certain}


NOTHING = Difference(None, None, None, None, None, 0)
"""Of no pair at all."""


def difference(values: Sequence[float | None], bases: Sequence[float | None]) -> Difference:
    """The mean difference of pairs, both of which are defined, with its 95 % interval.

    >>> found = difference([3.0, 5.0, None], [2.0, 2.0, 1.0])
    >>> found.mean, found.pairs, round(found.high, 2)
    (2.0, 2, 14.71)
    >>> twice = difference([2.0, 20.0], [1.0, 10.0])
    >>> twice.relative, twice.relative_half_width
    (1.0, 0.0)
    """
    pairs = [
        (value, base)
        for value, base in zip(values, bases, strict=True)
        if value is not None and base is not None
    ]
    n = len(pairs)
    if not n:
        return NOTHING
    apart = [value - base for value, base in pairs]
    mean, base = math.fsum(apart) / n, math.fsum(base for _, base in pairs) / n
    relative = mean / base if base else None
    if n == 1:
        return Difference(mean, None, None, relative, None, n)
    half = _half_width([each - mean for each in apart])
    share = None
    if relative is not None:  # the ratio estimator: what the ratio leaves unexplained
        share = _half_width([(v - b - relative * b) / base for v, b in pairs])
    return Difference(mean, mean - half, mean + half, relative, share, n)


def _half_width(residuals: Sequence[float]) -> float:
    """Half the interval of a mean, from what is left of each of its values."""
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to import

    n = len(residuals)
    variance = math.fsum(each**2 for each in residuals) / (n - 1)
    return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / n)


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
    base = _of(bases, rank)
    mean = _apart(values, bases, rank, base)
    relative = mean / base if base else None
    if n == 1:
        return Difference(scale * mean, None, None, relative, None, n)
    length = max(1, math.isqrt(n))
    random, within = stream(0, "bootstrap"), np.arange(length)
    drawn, ratios = np.empty(DRAWS), np.empty(DRAWS)
    for draw in range(DRAWS):
        starts = random.integers(0, n, -(-n // length))
        chosen = ((starts[:, None] + within) % n).ravel()[:n]
        below = _of(bases[chosen], rank)
        drawn[draw] = _apart(values[chosen], bases[chosen], rank, below)
        ratios[draw] = drawn[draw] / (below or math.nan)
    low, high = np.quantile(drawn, ENDS)
    share = float(np.ptp(np.nanquantile(ratios, ENDS))) / 2 if relative is not None else None
    return Difference(scale * mean, scale * float(low), scale * float(high), relative, share, n)


def _apart(values: Floats, bases: Floats, rank: float | None, base: float) -> float:
    """How far apart they are; ``base`` is what the bases come to."""
    return _of(values - bases, None) if rank is None else _of(values, rank) - base


def _of(values: Floats, rank: float | None) -> float:
    return float(values.mean()) if rank is None else float(np.percentile(values, rank))
