"""Does the system keep up with its traffic, and which start of the run is not typical of the rest?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SAMPLES = 400
"""Instants at which the queue is looked at, spread evenly over the arrivals."""

DRIFT = 0.02
"""A queue that swallows more than this share of the arrivals, steadily, is not a fluctuation."""

FULL = 0.85
"""From this occupancy of seats or KV memory on, a small error in speed is a large one in waiting."""


@dataclass(frozen=True, slots=True)
class Drift:
    """``share`` of the arrivals that stay in the queue, and whether it ``grows`` throughout."""

    share: float
    grows: bool

    @property
    def overloaded(self) -> bool:
        """Whether the queue would grow without end under this traffic."""
        return self.grows and self.share > DRIFT


def queue_drift(queued: Floats, scheduled: Floats) -> Drift:
    """How the queue developed while requests arrived.

    ``queued`` is when each request entered the queue (s, ascending), ``scheduled`` when it left it
    (NaN if never). The queue is sampled over the time of the arrivals; its growth is the slope of a
    straight line through the last three quarters, set in relation to the arrival rate.
    """
    if len(queued) < 20 or queued[-1] <= queued[0]:
        return Drift(0.0, False)
    times = np.linspace(queued[0], queued[-1], SAMPLES)
    left = np.sort(scheduled[~np.isnan(scheduled)])
    length = np.searchsorted(queued, times, side="right") - np.searchsorted(left, times, side="right")
    late = slice(SAMPLES // 4, None)
    slope = float(np.polyfit(times[late], length[late].astype(np.float64), 1)[0])
    rate = len(queued) / (queued[-1] - queued[0])
    quarters = [float(part.mean()) for part in np.array_split(length, 4)]
    grows = quarters[1] < quarters[2] < quarters[3] and quarters[3] > 1.5 * quarters[1]
    return Drift(slope / rate, grows)


def warmup_length(latency: Floats, batch: int = 5) -> int:
    """How many requests to leave out at the start, by the MSER-5 rule.

    Means of ``batch`` consecutive values; the cut that minimises the squared standard error of what
    is left (White, 1997), at most half of the values.
    """
    count = len(latency) // batch
    if count < 10:
        return 0
    means = latency[: count * batch].reshape(count, batch).mean(axis=1)
    left = np.arange(count, 0, -1)
    # suffix sums, then the variance of each suffix over its length
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    error = (squares - total**2 / left) / left**2
    return int(np.argmin(error[: count // 2])) * batch
