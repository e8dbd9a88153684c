"""Approximates when a benchmark's client sent its requests, where the result does not state it.

The client of ``vllm bench serve`` draws the gaps between requests from a gamma law of mean
1/rate and shape ``burstiness`` (1: Poisson), scaled so that the last of n requests is sent n/rate
after the start, and has at most ``concurrency`` requests in flight. Which gaps it drew is
unknown, since other draws from the same generator come before them. Seconds.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from calibrate.recordings.recording import Floats


def sent_times(
    latencies: Floats, rate: float, burstiness: float, concurrency: int | None, seed: int
) -> Floats:
    """When requests were sent that took ``latencies`` (0: failed), in the order of sending.

    ``rate`` is in requests per second, infinite for as soon as possible. With a limit on
    concurrency and an infinite rate the times follow from the latencies alone.

    >>> sent_times(np.array([3.0, 1.0, 1.0, 5.0]), math.inf, 1.0, 2, 0).tolist()
    [0.0, 0.0, 1.0, 2.0]
    """
    due = np.zeros(len(latencies))
    if not math.isinf(rate):
        random = np.random.default_rng(seed)
        gaps = random.gamma(burstiness, 1.0 / (rate * burstiness), len(latencies))
        due = np.cumsum(gaps) * (len(latencies) / rate / gaps.sum())
    if concurrency is None:
        return due
    out: list[float] = []
    times = np.empty(len(latencies))
    for number, (at, latency) in enumerate(zip(due.tolist(), latencies.tolist(), strict=True)):
        start = max(at, heapq.heappop(out)) if len(out) >= concurrency else at
        heapq.heappush(out, start + latency)
        times[number] = start
    return times


def assumption(rate: float, burstiness: float, concurrency: int | None, seed: int) -> str:
    """How the times were approximated, in a sentence or two."""
    none = "The result has no start_times (an older release of vLLM): "
    if math.isinf(rate):
        return (
            f"{none}the requests are assumed sent as soon as one of {concurrency:,} slots was "
            "free, which follows from how long each took."
        )
    law = "a Poisson process" if burstiness == 1 else f"gamma gaps of burstiness {burstiness:g}"
    limit = "" if concurrency is None else f", at most {concurrency:,} in flight"
    return (
        f"{none}arrivals are drawn as {law} at {rate:g} requests/s{limit}, with seed {seed}. They "
        "are as dense as the real ones on average, but not the same: TTFT and E2EL of single "
        "requests cannot be compared, and their percentiles include that randomness."
    )
