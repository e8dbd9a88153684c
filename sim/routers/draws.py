"""Draws random numbers for routers one at a time, out of blocks: a NumPy call for each is slow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 4096


def uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Endless numbers in [0, 1). ``int(u * n)`` of one is a fair choice among ``n`` (it is never
    ``n`` itself: the largest u is so far below 1 that the product is rounded down)."""
    while True:
        yield from rng.random(BLOCK).tolist()
