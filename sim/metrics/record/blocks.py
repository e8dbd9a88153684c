"""Computes columns block by block, so that what is needed on the way takes no memory to speak of.

A run of a million requests has millions of plans, and an expression over a column of them holds
several columns more until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import BLOCK, PlanRows

ROWS = 1 << 18
"""Rows of a block."""

OBJECTS = 1 << 14
"""Rows of a block of which Python objects are made, each many times as large as a number."""


def blocks(rows: int, most: int | None = None) -> Iterator[slice]:
    """The blocks of that many rows, in order, of ``ROWS`` or ``most`` rows each.

    >>> list(blocks(300_000))
    [slice(0, 262144, None), slice(262144, 300000, None)]
    """
    size = min(ROWS, most or ROWS)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def column(rows: int, amount: Callable[[slice], NDArray[np.float64]]) -> NDArray[np.float64]:
    """``amount`` of each row, asked for block by block."""
    found = np.empty(rows)
    for block in blocks(rows, BLOCK):
        found[block] = amount(block)
    return found


def durations(plans: PlanRows) -> NDArray[np.float64]:
    """Seconds that each of ``plans`` took."""
    return column(len(plans), lambda block: plans[block]["end"] - plans[block]["start"])


def weighed(plans: PlanRows, name: str, weights: NDArray[np.float64]) -> float:
    """The sum of a column of ``plans``, each value times its weight; ``weights`` become those
    products."""
    for block in blocks(len(plans), BLOCK):
        weights[block] *= plans[block][name]
    return float(weights.sum())
