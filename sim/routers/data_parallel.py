"""Balances as vLLM does between the data ranks of an engine: by requests, more for full caches.

After ``DPLBAsyncMPClient`` and ``DPCoordinatorProc`` of vLLM 0.32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.request import Request
from sim.routers.base import Router, Target

FULLNESS, WAITING_WEIGHT = 0.5, 6.0
"""Share of a KV cache from which on requests that wait for it count more, and by how much for each
share of it."""

INTERVAL = 0.1
"""Seconds between two statistics (``min_stats_update_interval_ms``)."""


def score(in_flight: int, waiting: int, running: int, kv_used: float) -> float:
    """How much a rank has to do, for a client with ``in_flight`` requests there, the only one.

    >>> score(5, 2, 3, 0.4), score(5, 2, 3, 0.75), score(9, 2, 3, 0.75)
    (5.0, 8.0, 12.0)
    """
    return max(in_flight, waiting + running) + _for_memory(waiting, kv_used)


def _for_memory(waiting: int, kv_used: float) -> float:
    """The part of the score for requests that wait while the cache fills up."""
    return WAITING_WEIGHT * waiting * max(0.0, kv_used - FULLNESS)


class DataParallelScore(Router):
    """Chooses a replica as vLLM chooses a data rank within one engine. It knows its own unfinished
    requests exactly; those that wait and run, and the KV use, are what they were when a request
    last came ``INTERVAL`` or more after the statistics before, with the requests since then as
    waiting. Of equals the first from a place that moves by one each time."""

    name = "data-parallel-score"
    about = "vLLM's score of data ranks: unfinished requests, more for those that wait for memory"

    def __init__(self) -> None:
        self._start = 0
        self._taken = -math.inf  # when the statistics were
        # of each replica the requests that wait, all of its requests, the share of its cache that
        # is taken, and what its score has for that
        self._waiting: list[int] = []
        self._requests: list[int] = []
        self._used: list[float] = []
        self._for_memory: list[float] = []

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The lowest score."""
        count, in_flight = len(targets), [target.outstanding for target in targets]
        if request.queued >= self._taken + INTERVAL or len(self._waiting) != count:
            self._taken = request.queued
            self._waiting = [target.queued for target in targets]
            self._requests = in_flight.copy()
            self._used = [target.kv_used for target in targets]
            self._for_memory = list(map(_for_memory, self._waiting, self._used))
        known = zip(in_flight, self._requests, self._for_memory, strict=True)
        scores = [(sent if sent > had else had) + waits for sent, had, waits in known]
        start = self._start % count
        scores = scores[start:] + scores[:start]
        best = (scores.index(min(scores)) + start) % count
        self._waiting[best] += 1
        self._requests[best] += 1
        self._for_memory[best] = _for_memory(self._waiting[best], self._used[best])
        self._start = (start + 1) % count
        return best
