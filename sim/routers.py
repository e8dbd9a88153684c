"""Provides the routers, which choose the replica of a pool that a request goes to.

Found by name or as ``package.module:Class``. A router is asked once for each request, when it
arrives, and answers with the index of a replica; it is not asked while there is only one.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from sim.errors import InfersimError, UsageError
from sim.registry import Registry
from sim.request import Request
from sim.rng import stream

__all__ = [
    "ROUTERS",
    "LeastOutstanding",
    "PowerOfTwo",
    "Random",
    "RoundRobin",
    "Router",
    "Target",
    "make_router",
    "router_class",
]

BLOCK = 4096
"""Random numbers that are drawn at once: a NumPy call for each is slow."""


class Target(Protocol):
    """A replica as a router sees it when a request arrives. All but ``outstanding`` is worked out
    when it is asked for, so that a router pays for what it looks at."""

    @property
    def outstanding(self) -> int:
        """Requests sent there and not finished, waiting *and* running."""

    @property
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of those; takes time in proportion to their number."""

    @property
    def kv_used(self) -> float:
        """Share of the KV cache that is taken, 0 to 1."""


class Router(ABC):
    """Chooses a replica for each request as it arrives."""

    name: ClassVar[str] = ""
    """What ``router`` calls it."""

    about: ClassVar[str] = ""
    """Which replica it takes, in a few words."""

    draws: ClassVar[bool] = False
    """Whether it draws random numbers: it is then made with a ``numpy.random.Generator`` that
    belongs to the seed of the run, else without arguments."""

    @abstractmethod
    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Index into ``targets``. Of the request, a real router could know ``prompt_tokens`` and
        ``traffic_class``, but not ``output_tokens``."""


class LeastOutstanding(Router):
    """Counts waiting and running requests alike: counting only those that wait sends nearly all
    traffic to the first replica until its batch is full. Ties go to the lowest number."""

    name = "least-outstanding"
    about = "the one with the fewest unfinished requests"

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The first of the least loaded."""
        best, fewest = 0, targets[0].outstanding
        for index, target in enumerate(targets):
            if target.outstanding < fewest:
                best, fewest = index, target.outstanding
        return best


class PowerOfTwo(Router):
    """Asks two different replicas only and comes close to asking all of them. Fewer unfinished
    requests win, waiting and running alike; ties go to the lower number."""

    name = "power-of-two"
    about = "the better of two that are drawn at random"
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


class RoundRobin(Router):
    """0, 1, ..., n-1, 0, ..."""

    name = "round-robin"
    about = "the replicas take turns"

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The replica after the last one chosen."""
        index = self._next
        self._next = (index + 1) % len(targets)
        return index


class Random(Router):
    """Each replica with the same chance, independently of all before."""

    name = "random"
    about = "one that is drawn at random"
    draws = True

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


ROUTERS: Registry[Router] = Registry(
    "router", Router, RoundRobin, Random, LeastOutstanding, PowerOfTwo
)


def make_router(name: str, seed: int = 0, folders: Sequence[Path] = ()) -> Router:
    """The router of that name; UsageError if there is none.

    A name with a colon is imported: a subclass of ``Router``, looked for in ``folders`` first. What
    a router draws comes from the stream "routing" of ``seed``, so the traffic is the same whatever
    the router.
    """
    kind = router_class(name, folders)
    try:
        router = kind(stream(seed, "routing")) if kind.draws else kind()  # type: ignore[call-arg]
    except TypeError as error:
        if kind in ROUTERS.values():
            raise
        raise UsageError(f"router {name!r} cannot be made ({error})") from None
    return router if kind in ROUTERS.values() else _Checked(name, router)


def router_class(name: str, folders: Sequence[Path] = ()) -> type[Router]:
    """The class of the router of that name, as for ``make_router``."""
    return ROUTERS.find(name, folders)


class _Checked(Router):
    """A user's own router whose answers are checked."""

    def __init__(self, name: str, router: Router) -> None:
        self._name = name
        self._router = router

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The router's choice; InfersimError if it is no replica."""
        chosen = self._router.choose(request, targets)
        try:
            index = operator.index(chosen)
        except TypeError:
            index = -1
        if not 0 <= index < len(targets):
            raise InfersimError(
                f"router {self._name!r} chose {chosen!r} for request {request.id}; expected the "
                f"index of a replica, 0 to {len(targets) - 1}"
            )
        return index
