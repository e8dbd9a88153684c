"""Routers for fleets whose replicas have weights: of twice the weight, twice the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from sim.request import Request
from sim.routers.base import Router, Target
from sim.routers.load import LeastOutstanding, PowerOfTwo, Random, RoundRobin, uniforms


class WeightedLeastOutstanding(LeastOutstanding):
    """Unfinished requests, this one included, over the weight: as Envoy's least request, and as
    ``least-outstanding`` where all weights are equal."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The first of the least loaded."""
        loads = [(target.outstanding + 1) / target.weight for target in targets]
        return loads.index(min(loads))


class WeightedPowerOfTwo(PowerOfTwo):
    """The router that takes the better of two drawn replicas, each pair with the same chance."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The better of two."""
        low, high = self.pair(len(targets))
        one, other = targets[low], targets[high]
        better = (other.outstanding + 1) / other.weight < (one.outstanding + 1) / one.weight
        return high if better else low


class WeightedRoundRobin(RoundRobin):
    """Smooth, as nginx: each replica gains its weight, and the one with most is chosen and gives
    back what all gained."""

    def __init__(self) -> None:
        super().__init__()
        self._gained: dict[Target, float] = {}

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The replica whose turn it is; one that was absent starts over."""
        gained = {target: self._gained.get(target, 0.0) + target.weight for target in targets}
        most = max(gained.values())
        index = next(at for at, target in enumerate(targets) if gained[target] == most)
        gained[targets[index]] -= sum(target.weight for target in targets)
        self._gained = gained
        return index


class WeightedRandom(Random):
    """Each replica with a chance in proportion to its weight."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._chances = uniforms(rng)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Drawn; nothing is asked of the replicas."""
        ends = list(accumulate(target.weight for target in targets))
        drawn = next(self._chances) * ends[-1]
        return next((at for at, end in enumerate(ends) if drawn < end), len(ends) - 1)


WEIGHTED: Mapping[str, type[Router]] = {
    kind.name: kind
    for kind in (WeightedLeastOutstanding, WeightedPowerOfTwo, WeightedRoundRobin, WeightedRandom)
}
"""The routers that heed weights, by the names that they have without."""
