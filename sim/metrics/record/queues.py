"""Describes how the queue of a run moves: its drift, how it became longest, its peaks.

Times in seconds, rates per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED
from sim.pools import PreparedPool

Floats = NDArray[np.float64]

STRETCHES = 20
"""Equal parts of a run whose differences say how sure the drift is: enough for an error, and each
longer than what the queue remembers unless it is close to saturation."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Requests by which the queue grew per second while requests arrived, and the standard error
    of that, from the differences between parts of the run."""

    per_second: float
    error: float


def drift(queued: Floats, left: Floats) -> Drift:
    """The drift of a queue that was entered at ``queued`` and left at ``left`` (both ascending)."""
    edges = np.linspace(queued[0], queued[-1], STRETCHES + 1)
    waiting = np.searchsorted(queued, edges, side="right") - np.searchsorted(
        left, edges, side="right"
    )
    growth = np.diff(waiting) / (edges[1] - edges[0])
    return Drift(float(growth.mean()), float(growth.std(ddof=1)) / math.sqrt(STRETCHES))


@dataclass(frozen=True, slots=True)
class Growth:
    """The queue was longest, ``requests``, at ``until``, and had been growing since ``since``."""

    since: float
    until: float
    requests: int


def longest_growth(queued: Floats, scheduled: Floats) -> Growth:
    """How the queue became as long as it ever was, counted from when it was last a tenth of that.

    Requests entered it at ``queued`` (ascending) and left it at ``scheduled`` (NaN if never).
    """
    left = np.sort(scheduled[~np.isnan(scheduled)])
    waiting = np.arange(1, len(queued) + 1) - np.searchsorted(left, queued, side="right")
    peak = int(np.argmax(waiting))
    short = np.flatnonzero(waiting[: peak + 1] <= max(1, waiting[peak] // 10))
    start = int(short[-1]) if len(short) else 0
    return Growth(float(queued[start]), float(queued[peak]), int(waiting[peak]))


def peak_queue(queued: Floats, scheduled: Floats) -> int:
    """The most requests that waited at one time for their first iteration."""
    left = np.sort(scheduled[~np.isnan(scheduled)])
    entered = np.sort(queued)
    gone = np.searchsorted(left, entered, side="right")
    return int(np.max(np.arange(1, len(entered) + 1) - gone, initial=0))


def peak_queues(pool: PreparedPool, queued: Floats, requests: NDArray[np.void]) -> list[int]:
    """The most ``requests`` that waited at one time for their first iteration in each queue of
    ``pool``, where they were ``queued`` (s): that of a data rank, of the batches of one pipeline,
    or of a replica."""
    settings, accepted = pool.settings, requests["status"] != REJECTED
    stages = settings.layout.pipeline
    places = (settings.numbers[at : at + stages] for at in range(0, settings.ranks, stages))
    queues = [accepted & np.isin(requests["replica"], numbers) for numbers in places]
    return [peak_queue(queued[mine], requests["scheduled"][mine]) for mine in queues]
