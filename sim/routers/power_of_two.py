"""Routes each request to the less loaded of two replicas that are drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.request import Request
from sim.routers.base import Router, Target
from sim.routers.draws import uniforms


class PowerOfTwo(Router):
    """Asks two different replicas only and comes close to asking all of them. Fewer unfinished
    requests win, waiting and running alike; ties go to the lower number."""

    draws = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._uniforms = uniforms(rng)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The better of two, each pair with the same chance; the only one if there is one."""
        count = len(targets)
        if count == 1:
            return 0
        low = int(next(self._uniforms) * count)
        high = int(next(self._uniforms) * (count - 1))
        if high >= low:
            high += 1
        else:
            low, high = high, low
        return high if targets[high].outstanding < targets[low].outstanding else low
