"""Provides the routers, which choose the replica of a pool that a request goes to.

Found by name or as ``package.module:Class``. A router is asked once for each request, when it
arrives, and answers with the index of a replica; it is not asked while there is only one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path

from sim.errors import InfersimError, UsageError
from sim.registry import Registry
from sim.request import Request
from sim.rng import stream
from sim.routers.affinity import PrefixAffinity, SessionAffinity
from sim.routers.base import Router, Target
from sim.routers.data_parallel import DataParallelScore
from sim.routers.load import (
    BLOCK,
    LeastKv,
    LeastOutstanding,
    PowerOfTwo,
    Random,
    RoundRobin,
    uniforms,
)
from sim.routers.weighted import WEIGHTED

__all__ = [
    "AFFINE",
    "BLOCK",
    "ROUTERS",
    "WEIGHTED",
    "DataParallelScore",
    "LeastKv",
    "LeastOutstanding",
    "PowerOfTwo",
    "PrefixAffinity",
    "Random",
    "RoundRobin",
    "Router",
    "SessionAffinity",
    "Target",
    "make_router",
    "router_class",
    "uniforms",
]

ROUTERS: Registry[Router] = Registry(
    "router",
    Router,
    RoundRobin,
    Random,
    LeastOutstanding,
    PowerOfTwo,
    LeastKv,
    SessionAffinity,
    PrefixAffinity,
    DataParallelScore,
    package=__name__,
)

AFFINE = (SessionAffinity.name, PrefixAffinity.name)
"""The routers that look for what is cached."""


def make_router(
    name: str,
    seed: int = 0,
    folders: Sequence[Path] = (),
    purpose: str = "routing",
    *,
    weighted: bool = False,
) -> Router:
    """The router of that name; UsageError if there is none. ``weighted``: it heeds the weights of
    replicas, which only those in ``WEIGHTED`` and a user's own do.

    A name with a colon is imported: a subclass of ``Router``, looked for in ``folders`` first. What
    a router draws comes from the stream ``purpose`` of ``seed``, so the traffic is the same
    whatever the router.
    """
    kind = router_class(name, folders)
    if weighted:
        kind = WEIGHTED.get(name, kind)
    try:
        router = kind(stream(seed, purpose)) if kind.draws else kind()  # type: ignore[call-arg]
    except TypeError as error:
        if name in ROUTERS:
            raise
        raise UsageError(f"router {name!r} cannot be made ({error})") from None
    return router if name in ROUTERS else _Checked(name, router)


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
