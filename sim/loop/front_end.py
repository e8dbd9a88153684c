"""Lets requests pass the front ends of engines that handle them one after the other."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush, heapreplace


class Threads:
    """The threads of the front ends of a fleet, one for each replica that takes requests.

    A request keeps one of them busy for ``handling`` seconds, and the next that finds none free
    waits, in order of arrival. It goes on to the router from the beginning of that time, so that
    what it waits for is the handling of others.
    """

    def __init__(self, handling: float, count: int) -> None:
        self._handling = handling
        self._free = [-math.inf] * count  # a heap of the times at which each is free

    def begins(self, sent: float) -> float:
        """When one is free for a request that is sent then, if none is handled before it."""
        return max(sent, self._free[0])

    def take(self, sent: float) -> None:
        """A request that is sent then is handled."""
        heapreplace(self._free, self.begins(sent) + self._handling)

    def resize(self, count: int) -> None:
        """There are so many from now on: of those that go, the ones that are busy longest; their
        requests go on all the same."""
        free = self._free
        for _ in range(count - len(free)):
            heappush(free, -math.inf)
        if count < len(free):
            free[:] = [heappop(free) for _ in range(count)]
            heapify(free)
