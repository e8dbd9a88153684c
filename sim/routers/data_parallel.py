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
    busy = float(max(in_flight, waiting + running))
    if not waiting:
        return busy
    return busy + WAITING_WEIGHT * waiting * max(0.0, kv_used - FULLNESS)


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
        self._statistics: list[tuple[int, int, float]] = []  # waiting, running, share of the cache

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """The lowest score."""
        count = len(targets)
        if request.queued >= self._taken + INTERVAL or len(self._statistics) != count:
            self._taken = request.queued
            self._statistics = [_statistics(target) for target in targets]
        best, least = 0, math.inf
        for turn in range(count):
            index = (self._start + turn) % count
            found = score(targets[index].outstanding, *self._statistics[index])
            if found < least:
                best, least = index, found
        waiting, running, used = self._statistics[best]
        self._statistics[best] = waiting + 1, running, used
        self._start = (self._start + 1) % count
        return best


def _statistics(target: Target) -> tuple[int, int, float]:
    waiting = target.queued
    return waiting, target.outstanding - waiting, target.kv_used
