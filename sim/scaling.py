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

ROUNDING = 1e-9
"""Of a ratio that is meant to be a whole number."""

TOLERANCE = 0.1
"""HPA does nothing while the metric is so close to its target."""

KV_SATURATED, QUEUE_SATURATED = 0.80, 5.0
KV_SPARE, QUEUE_SPARE = 0.1, 3.0
PEAKS_OVER = 60.0
"""llm-d's variant autoscaler: a replica is saturated at such a share of its KV cache or with so
many requests waiting, peaks of a minute; one more is started where the others have less than that
to spare on average."""

STABLE_OVER, PANIC_OVER, PANIC_AT = 180.0, 60.0, 2.0
UP_RATE = DOWN_RATE = 2.0
"""AIBrix's KPA, after Knative's: windows of its averages (s), how many times the replicas that
are ready must be wanted to panic, and by which factor a decision changes their number at most.
Its APA averages over the shorter window and has the same factors, and HPA's tolerance
(``podautoscaler/context`` and ``podautoscaler/algorithm`` of vllm-project/aibrix)."""

ENGINE_START = 34.0
WARM_COMPILE = 5.0
GRAPHS = 17.0
PEER_CHECK = 60.0
"""Parts of a start: of the engine, compilation from a cache, CUDA graphs (vLLM issue 20264, a small
model), and for several GPUs whether they reach each other (vLLM issue 19824)."""


class Reading(NamedTuple):
    """The state of one replica: requests that wait, requests in the batch, share of KV taken."""

    queue: float
    running: float
    kv: float


class Rule(ABC):
    """Says how many replicas there should be."""

    @abstractmethod
    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas wanted: of ``current`` ones, those that start included, ``ready`` have
        metrics; ``rate`` requests/s arrived in the last minute, and ``held`` wait at the gateway,
        since no replica serves."""


class Step(NamedTuple):
    """One of Kubernetes' scaling policies: in ``period`` s the number changes by at most
    ``replicas``, or by ``percent`` of what there was; the other of the two is None."""

    replicas: int | None
    percent: float | None
    period: float

    def most(self, before: int) -> int:
        """Replicas after a period that began with ``before``, scaling up.

        >>> Step(4, None, 15.0).most(6), Step(None, 50.0, 15.0).most(5)
        (10, 8)
        """
        if self.replicas is not None:
            return before + self.replicas
        assert self.percent is not None
        return math.ceil(before * (1 + self.percent / 100) - ROUNDING)

    def fewest(self, before: int) -> int:
        """The fewest replicas after scaling down: what is taken off is rounded up.

        >>> Step(None, 10.0, 60.0).fewest(72)
        64
        """
        if self.replicas is not None:
            return before - self.replicas
        assert self.percent is not None
        return math.floor(before * (1 - self.percent / 100) + ROUNDING)


UP = (Step(None, 100.0, 15.0), Step(4, None, 15.0))
DOWN = (Step(None, 100.0, 15.0),)
"""Kubernetes' defaults."""


class Stabiliser:
    """Kubernetes' behaviour: up at once, down to the most that was wanted within ``window``; in
    either direction by as much as the step allows that allows most (``selectPolicy: Max``)."""

    def __init__(
        self,
        window: float,
        low: int,
        high: int,
        *,
        up: Sequence[Step] = UP,
        down: Sequence[Step] = DOWN,
    ) -> None:
        self._window, self._low, self._high, self._up, self._down = window, low, high, up, down
        self._longest = max(step.period for step in (*up, *down))
        self._wanted: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()

    def settle(self, now: float, current: int, wanted: int) -> int:
        """The number to have, of the number that is ``wanted``."""
        wanted = min(max(wanted, self._low), self._high)
        recent, changes = self._wanted, self._changes
        recent.append((now, wanted))
        while recent[0][0] < now - self._window:
            recent.popleft()
        while changes and changes[0][0] <= now - self._longest:
            changes.popleft()
        if wanted > current:
            most = max(step.most(self._before(now, current, step)) for step in self._up)
            found = max(current, min(wanted, most))
        else:
            found = min(current, max(count for _, count in recent))
            if found < current:
                least = min(step.fewest(self._before(now, current, step)) for step in self._down)
                found = min(current, max(found, least))
        if found != current:
            changes.append((now, found - current))
        return found

    def _before(self, now: float, current: int, step: Step) -> int:
        """Replicas when the period of ``step`` that ends now began."""
        return current - sum(count for at, count in self._changes if at > now - step.period)


class Hpa(Rule):
    """Kubernetes' HorizontalPodAutoscaler for a metric of its pods: ceil(ready x average / target).

    Replicas without metrics count as idle where the others want more, and as on target where they
    want less; if that turns the direction, or comes within the tolerance, nothing happens
    (``calcPlainMetricReplicas`` of Kubernetes' replica calculator).
    """

    def __init__(self, metric: str, target: float, stabiliser: Stabiliser) -> None:
        self._metric, self._target, self._stabiliser = metric, target, stabiliser

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
        return self._stabiliser.settle(now, current, self._wanted(current, ready))

    def _wanted(self, current: int, ready: Sequence[Reading]) -> int:
        if not ready:
            return current
        target, missing = self._target, current - len(ready)
        total: float = sum(getattr(sample, self._metric) for sample in ready)
        alone = total / (target * len(ready))
        ratio = alone
        if missing:
            ratio = (total + (missing * target if alone < 1 else 0.0)) / (target * current)
        if abs(ratio - 1) <= TOLERANCE or (alone > 1) != (ratio > 1):
            return current
        return math.ceil(ratio * current - ROUNDING)


class Keda(Rule):
    """KEDA's rule, which gives Kubernetes the sum of the metric as an external one, with a target
    for each replica: ceil(sum / target), however many replicas have no metrics yet. Kubernetes
    leaves a fleet of no replicas alone; ``Activation`` brings it back."""

    def __init__(self, metric: str, target: float, stabiliser: Stabiliser) -> None:
        self._metric, self._target, self._stabiliser = metric, target, stabiliser

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
        if not current:
            return 0
        wanted = _total(self._metric, ready, held) / self._target
        if abs(wanted / current - 1) <= TOLERANCE:
            wanted = current
        return self._stabiliser.settle(now, current, math.ceil(wanted - ROUNDING))


class Activation:
    """KEDA's way to no replicas and back: every ``polling`` s it looks whether there is anything to
    do. If so, one replica is started where there is none; after more than ``cooldown`` s without,
    all are stopped (``scale_scaledobjects.go`` of kedacore/keda)."""

    def __init__(self, polling: float, cooldown: float) -> None:
        self.polling, self._cooldown = polling, cooldown
        self._active = 0.0  # when there last was something to do

    def desired(self, now: float, current: int, *, active: bool) -> int:
        """Replicas to have, of ``current`` ones.

        >>> rule = Activation(30.0, 300.0)
        >>> [rule.desired(at, 1, active=at < 30) for at in (0.0, 30.0, 300.0, 330.0)]
        [1, 1, 1, 0]
        >>> rule.desired(360.0, 0, active=True)
        1
        """
        if active:
            self._active = now
            return max(current, 1)
        return 0 if now > self._active + self._cooldown else current


def _total(metric: str, ready: Sequence[Reading], held: int) -> float:
    """The sum of ``metric`` over replicas, and what is ``held`` before them; nothing of that has KV
    memory."""
    found: float = sum(getattr(sample, metric) for sample in ready)
    return found if metric == "kv" else found + held


class Cooled:
    """The most replicas that were wanted within ``cooldown`` s, from ``low`` to ``high``."""

    def __init__(self, low: int, high: int, cooldown: float) -> None:
        self._low, self._high, self._cooldown = low, high, cooldown
        self._wanted: deque[tuple[float, int]] = deque()

    def settle(self, now: float, wanted: int) -> int:
        """The number to have, of the number that is ``wanted``."""
        recent = self._wanted
        recent.append((now, min(max(wanted, self._low), self._high)))
        while recent[0][0] < now - self._cooldown:
            recent.popleft()
        return max(count for _, count in recent)


class Kpa(Rule):
    """AIBrix's KPA, after Knative's: ceil(sum / target) of the average over a long window, and over
    a short one if that is more, while it wants twice as many replicas as are ready; nothing is
    stopped in such a panic, nor what was wanted within ``cooldown`` s."""

    def __init__(self, metric: str, target: float, low: int, high: int, cooldown: float) -> None:
        self._metric, self._target = metric, target
        self._cooled = Cooled(low, high, cooldown)
        self._sums: deque[tuple[float, float]] = deque()
        self._panicked = -math.inf  # when it last had reason to
        self._most = 0  # wanted since the panic began

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
        sums, serving = self._sums, len(ready)
        sums.append((now, _total(self._metric, ready, held)))
        while sums[0][0] <= now - STABLE_OVER:
            sums.popleft()
        stable, panic = self._needed(now, STABLE_OVER), self._needed(now, PANIC_OVER)
        if panic / max(serving, 1) >= PANIC_AT:
            self._panicked = now
        elif now > self._panicked + STABLE_OVER:
            self._most = 0
        wanted = self._bounded(stable, serving)
        if now <= self._panicked + STABLE_OVER:
            wanted = self._most = max(self._most, wanted, self._bounded(panic, serving))
        return self._cooled.settle(now, wanted)

    def _needed(self, now: float, window: float) -> int:
        """Replicas for the average over ``window`` s."""
        seen = [total for at, total in self._sums if at > now - window]
        return math.ceil(sum(seen) / len(seen) / self._target - ROUNDING)

    @staticmethod
    def _bounded(wanted: int, serving: int) -> int:
        most, fewest = max(1, math.ceil(UP_RATE * serving)), math.floor(serving / DOWN_RATE)
        return min(max(wanted, fewest), most)


class Apa(Rule):
    """AIBrix's APA: ceil(replicas x average / target), the average of replicas and of a minute,
    where it is more than the tolerance off the target. While some start, they count as idle where
    more is wanted and as on target where less is, and never turn the direction; nothing is stopped
    that was wanted within ``cooldown`` s."""

    def __init__(self, metric: str, target: float, low: int, high: int, cooldown: float) -> None:
        self._metric, self._target = metric, target
        self._cooled = Cooled(low, high, cooldown)
        self._means: deque[tuple[float, float]] = deque()

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
        means = self._means
        if ready:
            means.append((now, _total(self._metric, ready, held) / len(ready)))
        while means and means[0][0] <= now - PANIC_OVER:
            means.popleft()
        if not means:
            return current
        ratio = sum(mean for _, mean in means) / len(means) / self._target
        return self._cooled.settle(now, self._wanted(current, len(ready), ratio))

    @staticmethod
    def _wanted(current: int, serving: int, ratio: float) -> int:
        plain, missing = math.ceil(current * ratio - ROUNDING), current - serving
        if ratio > 1 + TOLERANCE:
            idle = math.ceil(serving * ratio - ROUNDING)
            most = math.ceil(UP_RATE * current)
            return min(plain, most, max(current, idle)) if missing else min(plain, most)
        if ratio < 1 - TOLERANCE:
            fewest = math.floor(current / DOWN_RATE)
            on_target = math.ceil(serving * ratio + missing - ROUNDING)
            return max(plain, fewest, min(current, on_target) if missing else 0)
        return current


class ByRate(Rule):
    """The replicas that the rate of arrivals needs, each of which holds ``held`` requests/s."""

    def __init__(self, held: float, stabiliser: Stabiliser) -> None:
        self._held, self._stabiliser = held, stabiliser

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
        return self._stabiliser.settle(now, current, math.ceil(rate / self._held - ROUNDING))


class SaturationRule(Rule):
    """llm-d's variant autoscaler for replicas that are alike: one more or one less at a time, and
    none while one starts."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._seen: deque[tuple[float, Sequence[Reading]]] = deque()

    def desired(
        self, now: float, current: int, ready: Sequence[Reading], rate: float, held: int = 0
    ) -> int:
        """The replicas that are wanted now."""
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
        """Whether ``peaks`` that are this many times as high leave too little to spare."""
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
