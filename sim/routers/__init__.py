"""Which replica of a pool a request goes to; one file per policy, found by name."""

from __future__ import annotations

from sim.errors import UsageError, did_you_mean
from sim.routers.base import Router, Target
from sim.routers.least_outstanding import LeastOutstanding
from sim.routers.round_robin import RoundRobin

__all__ = ["LeastOutstanding", "RoundRobin", "Router", "Target", "make_router"]

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-outstanding": LeastOutstanding,
}


def make_router(name: str) -> Router:
    """The router of that name; UsageError if there is none."""
    if name not in ROUTERS:
        raise UsageError(
            f"unknown router {name!r}{did_you_mean(name, ROUTERS)}; known: {', '.join(ROUTERS)}"
        )
    return ROUTERS[name]()
