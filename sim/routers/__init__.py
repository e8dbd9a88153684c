"""Which replica of a pool a request goes to; one file per policy, found by name."""

from __future__ import annotations

from collections.abc import Callable

from sim.errors import UsageError, did_you_mean
from sim.rng import stream
from sim.routers.base import Router, Target
from sim.routers.least_outstanding import LeastOutstanding
from sim.routers.power_of_two import PowerOfTwo
from sim.routers.random_choice import Random
from sim.routers.round_robin import RoundRobin

__all__ = [
    "LeastOutstanding",
    "PowerOfTwo",
    "Random",
    "RoundRobin",
    "Router",
    "Target",
    "make_router",
]

ROUTERS: dict[str, Callable[[int], Router]] = {
    "round-robin": lambda seed: RoundRobin(),
    "random": lambda seed: Random(stream(seed, "routing")),
    "least-outstanding": lambda seed: LeastOutstanding(),
    "power-of-two": lambda seed: PowerOfTwo(stream(seed, "routing")),
}
"""How to make each router from the seed of the scenario."""


def make_router(name: str, seed: int = 0) -> Router:
    """The router of that name; UsageError if there is none.

    What it draws comes from the stream "routing" of ``seed``, so the traffic is the same whatever
    the router.
    """
    if name not in ROUTERS:
        raise UsageError(
            f"unknown router {name!r}{did_you_mean(name, ROUTERS)}; known: {', '.join(ROUTERS)}"
        )
    return ROUTERS[name](seed)
