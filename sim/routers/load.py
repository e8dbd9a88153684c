"""Routers that look at how much the replicas have to do, or at nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from sim.request import Request
from sim.routers.base import Router, Target
from sim.routers.loads import Counted, Loads

BLOCK = 4096
"""Random numbers that are drawn at once: a NumPy call for each is slow."""


class LeastOutstanding(Router):
    """Counts waiting and running requests alike: counting only those that wait sends nearly all
    traffic to the first replica until its batch is full. Ties go to the lowest number."""

    name = "least-outstanding"
    about = "the one with the fewest unfinished requests"
    real = "llm-d's endpoint picker with its queue scorer, or Envoy's least_request"

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The first of the least loaded."""
        return least_outstanding(targets)


def least_outstanding(targets: Sequence[Target]) -> int:
    """The first of those with the fewest unfinished requests."""
    if (loads := Loads.of(targets)) is not None:
        return loads.idlest()
    best, fewest = 0, targets[0].outstanding
    for index, target in enumerate(targets):
        if (found := target.outstanding) < fewest:
            best, fewest = index, found
    return best


def most_outstanding(targets: Sequence[Target]) -> int:
    """The most unfinished requests that one of them has."""
    if (loads := Loads.of(targets)) is not None:
        return loads.most()
    return max([target.outstanding for target in targets])


class LeastKv(Router):
    """Looks at memory first: requests that wait hold none, so of equals the one with the fewest
    unfinished requests, and of those the first."""

    name = "least-kv"
    about = "the one whose KV cache is used least"
    real = "llm-d's endpoint picker with its scorer of KV cache utilisation"

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The emptiest cache."""
        places = _perhaps_emptiest(targets)
        loads = [(targets[at].kv_used, targets[at].outstanding) for at in places]
        return places[loads.index(min(loads))]


def _perhaps_emptiest(targets: Sequence[Target]) -> Sequence[int]:
    """The places of those that may have the emptiest cache: the others use more at least than one
    of them does."""
    if not isinstance(targets[0], Counted):
        return range(len(targets))
    least = [target.kv_least for target in cast("Sequence[Counted]", targets)]
    most = targets[least.index(min(least))].kv_used
    return [at for at, used in enumerate(least) if used <= most]


class PowerOfTwo(Router):
    """Asks two different replicas only and comes close to asking all of them. Fewer unfinished
    requests win, waiting and running alike; ties go to the lower number."""

    name = "power-of-two"
    about = "the better of two that are drawn at random"
    real = "SGLang's router, power_of_two"
    draws = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._uniforms = uniforms(rng)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The better of two, each pair with the same chance; the only one if there is one."""
        low, high = self.pair(len(targets))
        return high if targets[high].outstanding < targets[low].outstanding else low

    def pair(self, count: int) -> tuple[int, int]:
        """Two different ones of that many, the lower first; the only one twice."""
        if count == 1:
            return 0, 0
        low = int(next(self._uniforms) * count)
        high = int(next(self._uniforms) * (count - 1))
        return (low, high + 1) if high >= low else (high, low)


class RoundRobin(Router):
    """0, 1, ..., n-1, 0, ..."""

    name = "round-robin"
    about = "the replicas take turns"
    blind = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The replica after the last one chosen."""
        index = self._next % len(targets)  # there may be fewer than before
        self._next = index + 1
        return index


class Random(Router):
    """Each replica with the same chance, independently of all before."""

    name = "random"
    about = "one that is drawn at random"
    draws = blind = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._uniforms = uniforms(rng)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Drawn; nothing is asked of the replicas."""
        return int(next(self._uniforms) * len(targets))


def uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Endless numbers in [0, 1). ``int(u * n)`` of one is a fair choice among ``n`` (it is never
    ``n`` itself: the largest u is so far below 1 that the product is rounded down)."""
    while True:
        yield from rng.random(BLOCK).tolist()
