"""Routes each request to a random replica, whatever it is doing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.request import Request
from sim.routers.base import Router, Target
from sim.routers.draws import uniforms


class Random(Router):
    """Each replica with the same chance, independently of all before."""

    draws = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._uniforms = uniforms(rng)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Drawn; nothing is asked of the replicas."""
        return int(next(self._uniforms) * len(targets))
