"""Routes each request to the replica with the fewest unfinished requests."""

from __future__ import annotations

from collections.abc import Sequence

from sim.request import Request
from sim.routers.base import Router, Target


class LeastOutstanding(Router):
    """Counts waiting and running requests alike: counting only those that wait sends nearly all
    traffic to the first replica until its batch is full. Ties go to the lowest number."""

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The first of the least loaded."""
        best, fewest = 0, targets[0].outstanding
        for index, target in enumerate(targets):
            if target.outstanding < fewest:
                best, fewest = index, target.outstanding
        return best
