"""Decides how many replicas a pool should have, by the published rules of autoscalers.

A rule sees what each replica does and how many there are, and knows no event loop. Times in
seconds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sim.specs.deployment import Deployment

TOLERANCE = 0.1
"""HPA does nothing while the metric is so close to its target."""

UP_PERIOD, UP_SHARE, UP_COUNT = 15.0, 1.0, 4
"""HPA adds at most all of what there was, or four, whichever is more, in each such period."""

KV_SATURATED, QUEUE_SATURATED = 0.80, 5.0
KV_SPARE, QUEUE_SPARE = 0.1, 3.0
PEAKS_OVER = 60.0
"""llm-d's variant autoscaler: a replica is saturated at such a share of its KV cache or with so
many requests waiting, peaks of a minute; one more is started where the others have less than that
to spare on average."""

ENGINE_START = 34.0
WARM_COMPILE = 5.0
GRAPHS = 17.0
PEER_CHECK = 60.0
"""Parts of a start: of the engine, compilation from a cache, CUDA graphs (vLLM issue 20264, a small
model), and for several GPUs whether they reach each other (vLLM issue 19824)."""


class Reading(NamedTuple):
    """What one replica does: requests that wait, requests in the batch, share of KV taken."""

    queue: float
    running: float
    kv: float


class Rule(ABC):
    """Says how many replicas there should be."""

    @abstractmethod
    def desired(self, now: float, current: int, ready: Sequence[Reading], rate: float) -> int:
        """Of ``current`` replicas, those that start included, ``ready`` are serving; ``rate``
        requests/s arrived in the last minute."""


class Stabiliser:
    """Kubernetes' default behaviour: up at once, but by no more than ``UP_SHARE`` or ``UP_COUNT``
    in a period; down to the most that was wanted within ``window``."""

    def __init__(self, window: float, low: int, high: int) -> None:
        self._window, self._low, self._high = window, low, high
        self._wanted: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def settle(self, now: float, current: int, wanted: int) -> int:
        """The number to have, of the number that is ``wanted``."""
        wanted = min(max(wanted, self._low), self._high)
        recent, added = self._wanted, self._added
        recent.append((now, wanted))
        while recent[0][0] < now - self._window:
            recent.popleft()
        while added and added[0][0] <= now - UP_PERIOD:
            added.popleft()
        if wanted > current:
            before = current - sum(count for _, count in added)
            most = max(before + UP_COUNT, math.ceil(before * (1 + UP_SHARE)))
            found = max(current, min(wanted, most))
            added.append((now, found - current))
            return found
        return min(current, max(count for _, count in recent))


class Hpa(Rule):
    """Kubernetes' HorizontalPodAutoscaler for an average value of one metric: ceil(current x
    metric / target), replicas that are not ready counting as idle."""

    def __init__(self, metric: str, target: float, stabiliser: Stabiliser) -> None:
        self._metric, self._target, self._stabiliser = metric, target, stabiliser

    def desired(self, now: float, current: int, ready: Sequence[Reading], rate: float) -> int:
        """As ``Rule``."""
        total = sum(getattr(sample, self._metric) for sample in ready)
        ratio = total / (self._target * current)
        wanted = current
        if abs(ratio - 1) > TOLERANCE:
            wanted = math.ceil(ratio * current - 1e-9)  # rounding of the ratio
        return self._stabiliser.settle(now, current, wanted)


class ByRate(Rule):
    """As many as the rate of arrivals needs, each of which holds ``held`` requests/s."""

    def __init__(self, held: float, stabiliser: Stabiliser) -> None:
        self._held, self._stabiliser = held, stabiliser

    def desired(self, now: float, current: int, ready: Sequence[Reading], rate: float) -> int:
        """As ``Rule``."""
        return self._stabiliser.settle(now, current, math.ceil(rate / self._held - 1e-9))


class SaturationRule(Rule):
    """llm-d's variant autoscaler for replicas that are alike: one more or one less at a time, and
    none while one starts."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._seen: deque[tuple[float, Sequence[Reading]]] = deque()

    def desired(self, now: float, current: int, ready: Sequence[Reading], rate: float) -> int:
        """As ``Rule``."""
        seen = self._seen
        if seen and len(seen[-1][1]) != len(ready):
            seen.clear()
        seen.append((now, ready))
        while seen[0][0] < now - PEAKS_OVER:
            seen.popleft()
        if current > len(ready):
            return current
        peaks = [
            Reading(*(max(each) for each in zip(*samples, strict=True)))
            for samples in zip(*(all_of for _, all_of in seen), strict=True)
        ]
        fine = [p for p in peaks if p.kv < KV_SATURATED and p.queue < QUEUE_SATURATED]
        if not fine or self._short(fine, 1.0):
            return min(current + 1, self._high)
        fewer = current > max(self._low, 1) and len(fine) == current
        if fewer and not self._short(fine, current / (current - 1)):
            return current - 1
        return current

    @staticmethod
    def _short(peaks: Sequence[Reading], more: float) -> bool:
        """Whether ``peaks`` that are so many times as high leave too little to spare."""
        kv = sum(KV_SATURATED - p.kv * more for p in peaks) / len(peaks)
        queue = sum(QUEUE_SATURATED - p.queue * more for p in peaks) / len(peaks)
        return kv < KV_SPARE or queue < QUEUE_SPARE


def cold_start(deployment: Deployment, boot: float, read_bandwidth: float) -> float:
    """Seconds until a new replica serves: boot of the node, start of the engine, its weights at
    ``read_bandwidth`` (bytes/s), the check of its peers, compilation from a cache, CUDA graphs."""
    layout = deployment.layout
    weights = deployment.weight_bytes() * layout.gpus
    peers = PEER_CHECK if layout.gpus > 1 else 0.0
    return boot + ENGINE_START + weights / read_bandwidth + peers + WARM_COMPILE + GRAPHS
