"""Routers that look at everything, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.request import Request
from sim.routers import Router, Target

Seen = tuple[int, int, int, float]
SEEN: list[list[Seen]] = []
"""What ``Noting`` saw of the replicas, request by request."""


def seen(target: Target) -> Seen:
    """All that a router can see of a replica."""
    return target.outstanding, target.queued, target.queued_prompt_tokens, target.kv_used


class Nosy(Router):
    """Where a request goes depends on every digit of what is seen."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Any change of any number is likely to change it."""
        return hash(tuple(map(seen, targets))) % len(targets)


class Noting(Router):
    """Each replica in turn; notes what it sees."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The replica after the last one."""
        SEEN.append([seen(target) for target in targets])
        return request.id % len(targets)


class Drawing(Router):
    """Any replica."""

    draws = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Drawn."""
        return int(self._rng.integers(len(targets)))


class Wrong(Router):
    """A replica that is not there."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """One too many."""
        return len(targets)
