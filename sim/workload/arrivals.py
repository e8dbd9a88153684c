"""Draws arrivals at a steady rate, in seconds since the start of the run.

A law draws its gaps one after the other from a single generator and adds them one after the other,
so the sequence of times does not depend, to the last bit, on how it is cut into chunks. Rates
scale the gaps: twice the rate is the same traffic in half the time. Rates that change in the course
of a run are in ``varying``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError

Times = NDArray[np.float64]

_CV_RANGE = (1e-4, 1e3)

LATEST = 1e9
"""The latest arrival, s. Beyond 30 years a float is too coarse for the microseconds that count."""


class ArrivalLaw(Protocol):
    """Anything that can say when requests arrive."""

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """One array of times per entry of ``sizes`` (each at least 1), going on where it ended."""
        ...


@dataclass(frozen=True, slots=True)
class Poisson:
    """Memoryless arrivals, ``rate`` per second; the first one comes after the first gap, not at 0.

    The usual model of many independent users: gaps are exponential, their coefficient of variation
    is 1.
    """

    rate: float

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """Exponential gaps with mean 1/rate, added up."""
        return added_up(rng.standard_exponential(size) / self.rate for size in sizes)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps with a gamma law: ``rate`` per second, coefficient of variation ``cv`` above 0.

    cv 1 is Poisson, below 1 more regular, above 1 bursty. The shape is 1/cv^2; the first arrival
    comes after the first gap. UsageError for a cv outside 1e-4 to 1e3, where nothing real lies and
    the gamma law runs out of floating-point numbers.
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        low, high = _CV_RANGE
        if not low <= self.cv <= high:
            raise UsageError(
                f"gamma arrivals take a cv from {low:g} to {high:g}, got {self.cv:g}; constant"
                " arrivals have none"
            )

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """Gamma gaps with mean 1/rate and standard deviation cv/rate, added up."""
        shape = self.cv**-2
        return added_up(rng.standard_gamma(shape, size) / (shape * self.rate) for size in sizes)


@dataclass(frozen=True, slots=True)
class Constant:
    """A metronome: request i (from 0) arrives at i/rate, so the first one at 0."""

    rate: float

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """Each time is one division, not a sum of gaps, so no error piles up; draws nothing."""
        start = 0
        for size in sizes:
            yield np.arange(start, start + size) / self.rate
            start += size


@dataclass(frozen=True, slots=True)
class Burst:
    """Everything at 0: an offline batch."""

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """Zeros; draws nothing."""
        for size in sizes:
            yield np.zeros(size)


def added_up(gaps: Iterable[Times]) -> Iterator[Times]:
    """Running times from gaps; the clock joins the first gap, so that all sums run in order.

    The arrays of gaps may be changed.
    """
    clock = 0.0
    for gap in gaps:
        gap[0] += clock
        times = np.cumsum(gap)
        clock = times[-1]
        yield times


def check_latest(time: float) -> None:
    """UsageError for an arrival (s) that is later than ``LATEST``."""
    if not time <= LATEST:
        raise UsageError(
            f"a request would arrive {time:.3g} s after the start, but times end at {LATEST:.0g} s:"
            " raise the rate, or lower time_scale"
        )
