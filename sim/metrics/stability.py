"""Does the system keep up with its traffic, and which start of the run is not typical of the
rest?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FULL = 0.85
"""From this utilisation on, a small error in speed is a large one in waiting time."""

SETTLED = 10.0
"""Mean latencies that arrivals must last for a verdict: stable runs of 1,000 requests at half the
capacity last 28 of them, runs at 1.2 times the capacity that look stable last 4 to 7."""

GROWN = 1.3
"""Growth of the requests in the system, from the second to the last quarter of the arrivals, that
is more than fluctuation."""

SURE = 2.0
"""Standard errors by which the traffic must exceed the capacity to be called too much."""


@dataclass(frozen=True, slots=True)
class Load:
    """How the traffic compares with what the fleet served when it had a queue to serve.

    ``saturated`` is the share of the time in which somebody was left waiting, ``utilisation`` the
    rate of arrivals over the rate of completions in that time (None if it never happened),
    ``error`` the standard error of that ratio, ``backlog`` the requests in the queue at the last
    arrival.
    """

    saturated: float
    utilisation: float | None
    error: float
    backlog: int

    def overloaded(self, seats: int) -> bool:
        """Whether the queue would grow without end: more comes than was ever served, beyond doubt,
        and more is left waiting than one full batch of ``seats`` would take."""
        return (
            self.utilisation is not None
            and self.utilisation > 1 + SURE * self.error
            and self.backlog > seats
        )


def load(queued: Floats, scheduled: Floats, plans: NDArray[np.void], replicas: int) -> Load:
    """The load of a run whose requests entered the queue at ``queued`` (s, ascending) and left it
    at ``scheduled`` (NaN if never); ``plans`` are its ``recorder.PLAN`` rows.

    The rate of completions with a queue is the capacity: nothing else limits it then. The standard
    errors are those of a count of independent events, widened by the burstiness of the gaps.
    """
    last = float(queued[-1])
    window = last - float(queued[0])
    rate = (len(queued) - 1) / window
    behind = plans[(plans["waiting"] > 0) & (plans["start"] <= last)]
    time = float((np.minimum(behind["end"], last) - behind["start"]).sum()) / replicas
    served = int(behind["finished"][behind["end"] <= last].sum())
    backlog = len(queued) - int((scheduled <= last).sum())
    if not served or not time:
        return Load(time / window, None, 0.0, backlog)
    gaps = np.diff(queued)
    burstiness = float(gaps.var() / gaps.mean() ** 2)
    error = float(np.sqrt(burstiness / len(gaps) + 1 / served))
    return Load(min(1.0, time / window), rate * time / served, error, backlog)


def still_filling(arrived: Floats, finished: Floats) -> bool:
    """Whether the number of requests in the system grew as long as requests arrived.

    ``arrived`` (s, ascending) and ``finished`` (s, NaN if never). With many seats the batch itself
    swallows an overload for a while, and no queue shows it.
    """
    left = np.sort(finished[~np.isnan(finished)])
    times = np.linspace(arrived[0], arrived[-1], 400)
    inside = np.searchsorted(arrived, times, side="right") - np.searchsorted(left, times)
    quarters = [float(part.mean()) for part in np.array_split(inside, 4)]
    return quarters[1] < quarters[2] < quarters[3] and quarters[3] > GROWN * quarters[1]


def peak_queue(queued: Floats, scheduled: Floats) -> int:
    """The most requests that waited at one time for their first iteration."""
    left = np.sort(scheduled[~np.isnan(scheduled)])
    entered = np.sort(queued)
    gone = np.searchsorted(left, entered, side="right")
    return int(np.max(np.arange(1, len(entered) + 1) - gone, initial=0))


def warmup_length(latency: Floats, batch: int = 5) -> int:
    """How many requests to leave out at the start, by the MSER-5 rule.

    Means of ``batch`` consecutive values; the cut that minimises the squared standard error of what
    is left (White, 1997). A cut at the limit of half the values says that there is no steady part
    to be found, and then nothing is cut.
    """
    count = len(latency) // batch
    if count < 10:
        return 0
    means = latency[: count * batch].reshape(count, batch).mean(axis=1)
    means = means - means.mean()  # squares of differences cancel, squares of latencies would not
    if np.abs(means).max() <= 1e-9 * float(latency.max()):
        return 0
    left = np.arange(count, 0, -1)
    # suffix sums, then the variance of each suffix over its length
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    spread = np.maximum(squares - total**2 / left, 1e-12 * squares[0])  # less is rounding
    error = spread / left**2
    cut = int(np.argmin(error[: count // 2]))
    return cut * batch if cut < 0.9 * (count // 2) else 0
