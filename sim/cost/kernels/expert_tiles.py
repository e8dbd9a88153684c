"""Computes how many tiles of rows the experts of a layer need, where routing is chance.

Each of ``tokens`` chooses an expert with the expert's own chance, independently of other tokens, so
that an expert multiplies a binomial number of rows. A kernel multiplies them in tiles of a height,
of which the last is padded: ``expected`` has the mean of ``ceil(rows / height)`` summed over the
experts, and with a height of infinity the experts that are touched at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.specs.popularity import Chances

Floats = NDArray[np.float64]

EXACT = 160
"""Rows up to which the binomial distribution is summed; of larger numbers, ``POINTS`` quantiles of
the normal one stand for it."""

POINTS = 32


def expected(tokens: Floats, found: Chances, heights: Sequence[float]) -> list[Floats]:
    """For each height the expected number of tiles of all experts, at each number of ``tokens``.

    ``found.chance`` may have a row of chances for each number of tokens.

    >>> from sim.specs.popularity import chances
    >>> tokens = np.array([1.0, 2.0, 16.0, 64.0])
    >>> touched, tiles = expected(tokens, chances(128, 8), (math.inf, 16))
    >>> touched.round(2).tolist(), tiles.round(2).tolist()
    ([8.0, 15.5, 82.42, 125.94], [8.0, 15.5, 82.42, 125.94])
    """
    count = np.asarray(tokens, dtype=np.float64).round()[:, None]
    chance = np.clip(np.broadcast_to(found.chance, (len(count), len(found.number))), 0, 1 - 1e-12)
    count = np.broadcast_to(count, chance.shape)
    mean = count * chance
    deviation = np.sqrt(mean * (1 - chance))
    few = mean + 6 * deviation <= EXACT
    totals = [np.zeros(chance.shape) for _ in heights]
    _summed(totals, heights, few, count, chance)
    _sampled(totals, heights, ~few, count, mean, deviation)
    return [(total * found.number).sum(axis=1) for total in totals]


def _summed(
    totals: list[Floats],
    heights: Sequence[float],
    chosen: NDArray[np.bool_],
    count: Floats,
    chance: Floats,
) -> None:
    """Fills in the ``chosen`` places by the sum over the binomial distribution."""
    if not chosen.any():
        return
    n, p = count[chosen], chance[chosen]
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, n.max() + 1)))])  # of factorials
    hit, miss = np.log(np.maximum(p, 1e-300)), np.log1p(-p)
    whole = logs[n.astype(int)]
    sums = [np.zeros(len(n)) for _ in heights]
    for rows in range(1, int(min(n.max(), EXACT)) + 1):
        left = np.maximum(n - rows, 0.0)
        log = whole - logs[rows] - logs[left.astype(int)] + rows * hit + left * miss
        weight = np.where(rows <= n, np.exp(log), 0.0)
        for at, height in enumerate(heights):
            sums[at] += max(1, math.ceil(rows / height)) * weight
    for total, found in zip(totals, sums, strict=True):
        total[chosen] = found


def _sampled(
    totals: list[Floats],
    heights: Sequence[float],
    chosen: NDArray[np.bool_],
    count: Floats,
    mean: Floats,
    deviation: Floats,
) -> None:
    """Fills in the ``chosen`` places by quantiles of the normal distribution."""
    if not chosen.any():
        return
    from statistics import NormalDist  # noqa: PLC0415 - slow to import

    normal = NormalDist()
    at = np.array([normal.inv_cdf((i + 0.5) / POINTS) for i in range(POINTS)])
    rows = mean[chosen][:, None] + deviation[chosen][:, None] * at
    rows = np.clip(rows.round(), 1.0, count[chosen][:, None])
    for total, height in zip(totals, heights, strict=True):
        total[chosen] = np.maximum(np.ceil(rows / height), 1.0).mean(axis=1)
