"""Computes by how much two variants differ, and how sure that is, from paired differences.

Two runs under the same seed meet the same traffic, so that their difference varies less than either
of them. Student's t on the differences of the pairs, which assumes that they are about normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sim.metrics.repetitions import CONFIDENCE


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
        other where that is not known; without any interval, whether the values differ."""
        if self.mean is None:
            return False
        if self.relative is not None and self.relative_half_width is not None:
            return abs(self.relative) > self.relative_half_width
        if self.low is None or self.high is None:
            return self.mean != 0
        return not self.low <= 0 <= self.high

    def document(self) -> dict[str, float | int | bool | None]:
        """As plain data."""
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
