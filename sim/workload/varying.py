"""Draws Poisson arrivals under a rate that changes over time, in seconds.

Requests are counted first and timed afterwards. Unit exponential gaps, added up, say how many
requests are *expected* by the time of each; the law of the rate turns that into the time. So
request i takes the i-th value of its generator whatever the law, nothing is drawn and thrown away,
and the cut into chunks changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sim.errors import UsageError
from sim.workload.arrivals import Times, added_up

_PERIODS = (1e-3, 1e9)
_CELLS = 1024
_STEPS = 8


@dataclass(frozen=True, slots=True)
class Ramp:
    """The rate grows, or falls, evenly from ``rate`` to ``final_rate`` per second.

    It takes ``duration`` seconds from the start; then the final rate holds. Both rates are above
    0.
    """

    rate: float
    final_rate: float
    duration: float

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """Exact: the expected number is a parabola, and then a line."""
        return _timed(rng, sizes, self.when)

    def expected(self, times: Times) -> Times:
        """How many requests arrive by these times, on average."""
        ramping = np.minimum(times, self.duration)
        slope = (self.final_rate - self.rate) / self.duration
        return (self.rate + slope * ramping / 2) * ramping + self.final_rate * (times - ramping)

    def when(self, expected: Times) -> Times:
        """The inverse of ``expected``.

        A ramp that grows by s per second expects n = r t + s t^2/2 after t seconds. Of the two
        solutions 2 n / (r + sqrt(r^2 + 2 s n)) is the one that is accurate for a small s; its
        square root is the rate at that time.
        """
        at_end = (self.rate + self.final_rate) / 2 * self.duration
        ramping = np.minimum(expected, at_end)
        steps = (self.final_rate - self.rate) * (self.final_rate + self.rate)
        grown = steps / at_end if at_end else 0.0
        rate = np.sqrt(np.maximum(self.rate * self.rate + grown * ramping, 0.0))
        return 2 * ramping / (self.rate + rate) + (expected - ramping) / self.final_rate


@dataclass(frozen=True, slots=True)
class Diurnal:
    """The rate swings as a cosine between ``rate`` and ``peak_rate`` per second.

    It is highest ``peak_at`` seconds after the start and every ``period`` before and after. The
    mean rate is midway between the two. Both are above 0. UsageError for a period outside 1 ms to
    1e9 s.
    """

    rate: float
    peak_rate: float
    period: float
    peak_at: float

    def __post_init__(self) -> None:
        low, high = _PERIODS
        if not low <= self.period <= high:
            raise UsageError(
                f"diurnal arrivals take a period from {low:g} s to {high:g} s, got {self.period:g}"
            )

    def times(self, rng: np.random.Generator, sizes: Iterable[int]) -> Iterator[Times]:
        """By inversion: the expected number is a line and a sine, and has no closed inverse."""
        edges = np.linspace(0.0, self.period, _CELLS + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            reached = np.maximum.accumulate(self.expected(edges))
        return _timed(rng, sizes, lambda expected: self._when(expected, edges, reached))

    def expected(self, times: Times) -> Times:
        """How many requests arrive by these times, on average."""
        waves = np.sin(self._angle(times)) - np.sin(self._angle(np.zeros(1)))
        return self._mean * times + self._swing * self.period / (2 * math.pi) * waves

    @property
    def _mean(self) -> float:
        return (self.rate + self.peak_rate) / 2

    @property
    def _swing(self) -> float:
        return (self.peak_rate - self.rate) / 2

    def _angle(self, times: Times) -> Times:
        """Radians since the first peak."""
        return 2 * math.pi / self.period * (times - math.fmod(self.peak_at, self.period))

    def _when(self, expected: Times, edges: Times, reached: Times) -> Times:
        """The inverse of ``expected``; ``reached`` is its value at ``edges`` of one period."""
        periods = np.floor(expected / reached[-1])
        wanted = expected - periods * reached[-1]
        cells = np.clip(np.searchsorted(reached, wanted, side="right") - 1, 0, _CELLS - 1)
        times: Times = periods * self.period
        return times + self._solved(wanted, edges[cells], edges[cells + 1])

    def _solved(self, wanted: Times, low: Times, high: Times) -> Times:
        """The times between ``low`` and ``high`` by which ``wanted`` requests are expected.

        Newton's steps, each kept inside the bounds known by then or else replaced by bisection. A
        fixed number of them, so that no element depends on its neighbours.
        """
        at: Times = (low + high) / 2
        for _ in range(_STEPS):
            excess = self.expected(at) - wanted
            low, high = np.where(excess > 0, low, at), np.where(excess > 0, at, high)
            rate = self._mean + self._swing * np.cos(self._angle(at))
            step = at - excess / np.maximum(rate, self.rate)
            at = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        return at


def _timed(
    rng: np.random.Generator, sizes: Iterable[int], when: Callable[[Times], Times]
) -> Iterator[Times]:
    """The times of requests, from the numbers expected by then; never falling, even by an ulp."""
    latest = 0.0
    for expected in added_up(rng.standard_exponential(size) for size in sizes):
        with np.errstate(over="ignore", invalid="ignore"):  # refused as too late by the caller
            times = when(expected)
        times[0] = max(times[0], latest)
        np.maximum.accumulate(times, out=times)
        latest = times[-1]
        yield times
