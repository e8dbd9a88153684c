"""Which latencies are promised, and did a run keep them? Seconds; shares of requests, 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.metrics.precision import inflation, wilson
from sim.metrics.run_record import RunRecord
from sim.scenario import Scenario
from sim.units import show_time

METRICS = ("ttft", "tpot", "e2el")
"""What a promise can be about: one value for each request."""


@dataclass(frozen=True)
class Promise:
    """At least ``share`` of the requests keep every one of ``limits`` (metric -> seconds)."""

    limits: Mapping[str, float]
    share: float

    @property
    def text(self) -> str:
        """As people say it: ``99% within ttft 500 ms and tpot 40 ms``."""
        told = " and ".join(f"{name} {show_time(limit)}" for name, limit in self.limits.items())
        return f"{100 * self.share:.6g}% within {told}"


def slo_promise(scenario: Scenario) -> Promise | None:
    """What the scenario's ``slo`` promises; None if it promises nothing."""
    slo = scenario.slo
    limits = {
        name: limit for name, limit in (("ttft", slo.ttft), ("tpot", slo.tpot)) if limit is not None
    }
    return Promise(limits, slo.attainment) if limits else None


def limits_ms(promises: Sequence[Promise]) -> dict[str, float]:
    """The tightest limit of each metric, in milliseconds, whatever share is promised."""
    limits: dict[str, float] = {}
    for promise in promises:
        for name, limit in promise.limits.items():
            limits[name] = min(1e3 * limit, limits.get(name, math.inf))
    return limits


@dataclass(frozen=True)
class Seen:
    """How one run kept a promise: which of the judged requests ``kept`` it, in order of arrival.

    ``pressure`` has, for each limit, the latency at the promised share over the limit: above 1 it
    is broken.
    """

    kept: NDArray[np.bool_]
    pressure: Mapping[str, float]


def look(run: RunRecord, promise: Promise) -> Seen:
    """How ``run`` kept ``promise``: warm-up left out, whatever was not completed counted as broken.

    Requests of one output token have no TPOT, and keep any limit of it.
    """
    judged = ~run.warmup
    latencies = {"ttft": run.ttft, "tpot": run.tpot, "e2el": run.e2el}
    kept = run.completed.copy()
    pressure = {}
    for name, limit in promise.limits.items():
        latency = latencies[name]
        kept &= np.isnan(latency) | (latency <= limit)
        pressure[name] = _at_share(latency, run.completed, judged, promise.share) / limit
    return Seen(kept[judged], pressure)


def _at_share(
    latency: NDArray[np.float64],
    completed: NDArray[np.bool_],
    judged: NDArray[np.bool_],
    share: float,
) -> float:
    """The latency that this share of the judged requests keeps; infinite if too few were served."""
    values = np.where(completed, latency, np.inf)[judged]
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return 0.0
    return float(values[min(len(values) - 1, math.ceil(share * len(values)) - 1)])


@dataclass(frozen=True)
class Attained:
    """How runs together kept a promise: the share, and its 95 % interval (Wilson)."""

    promise: Promise
    share: float
    low: float
    high: float
    pressure: Mapping[str, float]

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, sure or not."""
        return self.share >= self.promise.share

    @property
    def sure(self) -> bool:
        """Whether the interval leaves no doubt whether the promise is kept."""
        return self.low >= self.promise.share or self.high < self.promise.share

    @property
    def tightest(self) -> str:
        """The limit that is broken most, or comes closest to it."""
        return max(self.pressure, key=lambda name: self.pressure[name])


def pooled(promise: Promise, runs: Sequence[Seen]) -> Attained:
    """What independent runs say together.

    Neighbouring requests share a queue, and the requests of a run its luck: batch means over all
    runs say how many independent requests they are worth.
    """
    kept = np.concatenate([run.kept for run in runs])
    share = float(kept.mean()) if len(kept) else 0.0
    low, high = wilson(share, len(kept) / inflation(kept) if len(kept) else 0.0)
    pressure = {
        name: float(np.mean([run.pressure[name] for run in runs])) for name in promise.limits
    }
    return Attained(promise, share, low, high, pressure)
