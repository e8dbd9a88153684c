"""Provides every inter-token gap of a run as rows of evenly growing ones, with exact statistics.

A leap of a thousand iterations over thirty sequences is thirty thousand gaps and one row here. The
statistics are those of the gaps written out one by one, at the cost of the rows. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import Leaps
from sim.metrics.record.blocks import blocks, column

Floats = NDArray[np.float64]

STEPS = 100
"""Lengths a decade at which a distribution is given: each 2.3 % longer than the one before."""

FEW = 100_000
"""So many gaps are written out and sorted; of more, a percentile is found by bisection first."""


class Gaps:
    """Row r stands for the gaps ``first[r] + slope[r] * i`` with i from 0 to ``count[r] - 1``, each
    seen by ``weight[r]`` sequences. No slope is negative."""

    def __init__(self, first: Floats, slope: Floats, count: Floats, weight: Floats) -> None:
        self.first, self.slope, self.count, self.weight = first, slope, count, weight

    @classmethod
    def recorded(cls, plans: NDArray[np.void], long_gaps: NDArray[np.void]) -> Gaps:
        """The gaps of ``recorder.PLAN`` and ``recorder.GAP`` rows.

        Each iteration of a plan gives one gap to each sequence that decodes in it; but in the first
        one the stalled sequences saw a longer gap, which is in ``long_gaps``.
        """
        leaps, stalled = Leaps.recorded(plans), plans["stalled"]
        plain = np.flatnonzero((leaps.sequences > 0) & (stalled == 0))
        late = leaps.chosen(stalled > 0)  # few
        rest = late.chosen(late.times > 1)
        others: list[tuple[Any, ...]] = [
            (late.first, 0, 1, late.sequences - stalled[stalled > 0]),
            (rest.first + rest.step, rest.step, rest.times - 1, rest.sequences),
            (long_gaps["gap"], 0, 1, long_gaps["count"]),
        ]

        def joined(most: NDArray[Any], at: int) -> Floats:
            few = [np.broadcast_to(row[at], row[0].shape) for row in others]
            return np.concatenate([most[plain], *few], dtype=np.float64)

        seen = (weight := joined(leaps.sequences, 3)) > 0
        return cls(
            joined(leaps.first, 0)[seen],
            joined(leaps.step, 1)[seen],
            joined(leaps.times, 2)[seen],
            weight[seen],
        )

    @property
    def last(self) -> Floats:
        """The last gap of each row (s)."""
        return self.first + self.slope * (self.count - 1)

    @property
    def gaps(self) -> Floats:
        """How many gaps each row stands for."""
        return self.count * self.weight

    def total(self) -> float:
        """How many gaps there are."""
        return float(self.gaps.sum())

    def mean(self) -> float:
        """Their mean (s)."""
        return float((self.gaps * (self.first + self.last)).sum()) / 2 / self.total()

    def std(self) -> float:
        """Their standard deviation with ddof 0 (s)."""
        mean = self.mean()

        def squares(rows: Gaps) -> Floats:
            n, off = rows.count, rows.first - mean
            linear, square = n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6
            sums = n * off**2 + 2 * off * rows.slope * linear + rows.slope**2 * square
            return rows.weight * sums

        return math.sqrt(self._sum(squares) / self.total())

    def up_to(self, bound: float) -> float:
        """How many gaps are at most ``bound``."""

        def reached(rows: Gaps) -> Floats:
            first, slope, last = rows.first, rows.slope, rows.count - 1
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.floor((bound - first) / slope)
            steps = np.where(
                slope > 0, np.clip(steps, -1, last), np.where(first <= bound, last, -1.0)
            )
            # the division may be off by one: what counts is how the gap itself compares
            steps += (steps < last) & (first + slope * (steps + 1) <= bound)
            steps -= (steps >= 0) & (first + slope * steps > bound)
            gaps: Floats = rows.weight * (steps + 1)
            return gaps

        return self._sum(reached)

    def written_out(self, low: float = -math.inf, high: float = math.inf) -> tuple[Floats, Floats]:
        """The gaps from ``low`` to ``high``, ascending, and how many sequences saw each."""
        with np.errstate(divide="ignore", invalid="ignore"):
            start = np.where(self.slope > 0, np.floor((low - self.first) / self.slope) - 1, 0)
            stop = np.where(self.slope > 0, np.floor((high - self.first) / self.slope) + 3, np.inf)
        start = np.clip(start, 0, self.count)
        length = (np.clip(stop, start, self.count) - start).astype(np.int64)
        begin = np.cumsum(length) - length
        step = np.arange(int(length.sum())) - np.repeat(begin - start, length)
        values = np.repeat(self.first, length) + np.repeat(self.slope, length) * step
        inside = (values >= low) & (values <= high)
        values, weights = values[inside], np.repeat(self.weight, length)[inside]
        order = np.argsort(values)
        return values[order], weights[order]

    def percentiles(self, percentiles: tuple[int, ...]) -> list[float]:
        """Percentiles, linear between neighbours as ``numpy.percentile`` (s)."""
        total = self.total()
        places = [percentile / 100 * (total - 1) for percentile in percentiles]
        ranks = [math.floor(place) for place in places]
        # if every row were only its first gap, or only its last, the answers would be these
        lows, highs = self._ranked(self.first, ranks), self._ranked(self.last, ranks)
        found = []
        for place, rank, low, high in zip(places, ranks, lows, highs, strict=True):
            value = self._at(rank, low, high)
            if place > rank and self.up_to(value) < rank + 2:
                value += (self._next(value) - value) * (place - rank)
            found.append(value)
        return found

    def curve(self) -> tuple[Floats, Floats]:
        """Their distribution, for drawing: lengths (s), ascending, and for each the share of the
        gaps that are at most as long. Exact at those lengths, which are ``STEPS`` a decade."""
        total = self.total()
        if not total:
            return np.empty(0), np.empty(0)
        longest = float(self.last.max())
        shortest = float(self.first[self.first > 0].min(initial=longest or 1.0))
        low, high = (math.floor(STEPS * math.log10(each or 1.0)) for each in (shortest, longest))
        edges = np.minimum(10.0 ** (np.arange(low, high + 2) / STEPS), longest)
        counts = np.zeros(len(edges))  # whole numbers, so that the order of adding does not matter
        for block in blocks(len(self.first)):
            rows = self._chosen(block)
            place, end = (np.searchsorted(edges, each) for each in (rows.first, rows.last))
            within = place == end
            counts += np.bincount(place[within], rows.gaps[within], minlength=len(edges))
            values, weights = rows._chosen(~within).written_out()
            counts += np.bincount(np.searchsorted(edges, values), weights, minlength=len(edges))
        near = np.flatnonzero(counts)
        near = np.union1d(near, np.maximum(near - 1, 0))  # where a step begins and where it ends
        return edges[near], np.cumsum(counts)[near] / total

    def _ranked(self, values: Floats, ranks: list[int]) -> list[float]:
        """The gaps with those ranks if all of a row were as long as ``values`` has it."""
        order = np.argsort(values)
        reached = self.count[order]
        reached *= self.weight[order]
        np.cumsum(reached, out=reached)
        found: list[float] = values[order[np.searchsorted(reached, ranks, side="right")]].tolist()
        return found

    def _at(self, rank: float, low: float, high: float) -> float:
        """The gap with ``rank`` smaller or equal ones before it, known to be in ``low..high``."""
        rows, before = self, 0.0
        while low < high:
            below = rows.last < low
            before += float((rows.count[below] * rows.weight[below]).sum())
            rows = rows._chosen(~below & (rows.first <= high))
            if rows._within(low, high) <= FEW:
                break
            middle = low + (high - low) / 2
            if middle >= high:  # nothing lies between the two
                middle = low
            if before + rows.up_to(middle) > rank:
                high = middle
            else:
                low = math.nextafter(middle, math.inf)
        else:
            return low
        before += rows.up_to(math.nextafter(low, -math.inf))
        values, weights = rows.written_out(low, high)
        place = np.searchsorted(before + np.cumsum(weights), rank, side="right")
        return float(values[place])

    def _next(self, value: float) -> float:
        """The smallest gap above ``value``."""
        above = self._chosen(self.last > value)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.floor((value - above.first) / above.slope)
        steps = np.where(above.slope > 0, np.clip(steps, 0, above.count - 1), 0.0)
        # of the step that the division gives and its neighbours, the first that is above
        near = np.clip(steps + np.arange(-1, 3)[:, None], 0, above.count - 1)
        values = above.first + above.slope * near
        return float(values[values > value].min())

    def _within(self, low: float, high: float) -> float:
        """About how many different gaps lie between ``low`` and ``high``."""

        def different(rows: Gaps) -> Floats:
            span = np.minimum(rows.last, high) - np.maximum(rows.first, low)
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.where(rows.slope > 0, span / rows.slope, 0.0)
            steps = np.clip(steps + 1, 0, rows.count)
            return np.asarray(steps)

        return self._sum(different)

    def _sum(self, amount: Callable[[Gaps], Floats]) -> float:
        """The sum of an ``amount`` of each row."""
        rows = len(self.first)
        return float(column(rows, lambda block: amount(self._chosen(block))).sum())

    def _chosen(self, rows: NDArray[np.bool_] | slice) -> Gaps:
        return Gaps(self.first[rows], self.slope[rows], self.count[rows], self.weight[rows])
