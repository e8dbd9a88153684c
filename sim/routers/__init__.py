"""Provides the routers, which choose the replica of a pool that a request goes to.

One file per policy, found by name or as ``package.module:Class``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path

from sim.errors import InfersimError, UsageError, did_you_mean
from sim.own import load_class
from sim.request import Request
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
    "router_class",
]

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "random": Random,
    "least-outstanding": LeastOutstanding,
    "power-of-two": PowerOfTwo,
}


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
    if ":" in name:
        own: type[Router] = load_class(name, Router, "router", folders)
        return own
    if name not in ROUTERS:
        raise UsageError(
            f"unknown router {name!r}{did_you_mean(name, ROUTERS)}; known: {', '.join(ROUTERS)}, "
            "or package.module:Class"
        )
    return ROUTERS[name]


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
