"""Counts how many requests ran, and how many waited, over time.

Step functions of the whole fleet, and the most that they came to in stretches of time. Times in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Level:
    """A quantity that changes in steps: from each of ``times``, which ascend strictly, it has the
    corresponding value until the next one. Before the first it is 0.
    """

    times: Floats
    values: Floats

    @classmethod
    def of_changes(cls, times: Floats, changes: Floats) -> Level:
        """From ``changes`` at ``times`` in any order; of those at one time the outcome counts."""
        order = np.argsort(times, kind="stable")
        times = times[order]  # under the same name, so that the millions of before are let go
        changes = changes[order]
        np.cumsum(changes, out=changes)
        settled = np.append(times[1:] != times[:-1], True) if len(times) else slice(0)
        return cls(times[settled], changes[settled])

    def most(self, start: float, end: float, stretches: int) -> list[float]:
        """The most in each of that many equal stretches of ``start..end``, in order."""
        edges = np.linspace(start, end, stretches + 1)
        times, values = np.append(-np.inf, self.times), np.append(0.0, self.values)
        first = np.searchsorted(times, edges[:-1], "right") - 1
        past = np.maximum(np.searchsorted(times, edges[1:], "left"), first + 1)
        pairs = zip(first.tolist(), past.tolist(), strict=True)
        return [float(values[begin:stop].max()) for begin, stop in pairs]

    def means(self, edges: Floats) -> Floats:
        """The mean between each of ``edges`` (ascending) and the next one.

        >>> Level(np.array([1.0, 3.0]), np.array([2.0, 0.0])).means(np.array([0.0, 2.0, 4.0]))
        array([1., 1.])
        """
        if not len(self.times):
            return np.zeros(len(edges) - 1)
        sums = np.append(0.0, np.cumsum(self.values[:-1] * np.diff(self.times)))
        at = np.searchsorted(self.times, edges, "right") - 1
        past = sums[at] + self.values[at] * (edges - self.times[at])
        found: Floats = np.diff(np.where(at < 0, 0.0, past)) / np.diff(edges)
        return found


@dataclass(frozen=True, eq=False)
class Timeline:
    """A run from its first arrival to its last token: requests of all ``replicas`` that ran, and
    that waited for their first iteration; None where that is not known."""

    start: float
    end: float
    replicas: int
    running: Level | None
    waiting: Level | None


def running(plans: Mapping[str, NDArray[Any]]) -> Level:
    """From the columns of a timeseries: no request runs between two plans of a replica."""
    members = plans["running"]
    return Level.of_changes(
        np.concatenate([plans["start_s"], plans["end_s"]], dtype=np.float64),
        np.concatenate([members, -members], dtype=np.float64),
    )


def waiting(queued: Floats, scheduled: Floats) -> Level:
    """From when requests that were not refused came into the queue, and when they were first in an
    iteration; NaN: never."""
    left = scheduled[~np.isnan(scheduled)]
    times = np.concatenate([queued, left])
    return Level.of_changes(times, np.repeat([1.0, -1.0], [len(queued), len(left)]))
