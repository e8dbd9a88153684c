"""Routes requests to the replicas in turn, whatever they are doing."""

from __future__ import annotations

from collections.abc import Sequence

from sim.request import Request
from sim.routers.base import Router, Target


class RoundRobin(Router):
    """0, 1, ..., n-1, 0, ..."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The replica after the last one chosen."""
        index = self._next
        self._next = (index + 1) % len(targets)
        return index
