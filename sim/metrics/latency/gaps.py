"""Provides every inter-token gap of a run as rows of evenly growing ones, with exact statistics.

A leap of a thousand iterations over thirty sequences is thirty thousand gaps and one row here. The
statistics are those of the gaps written out one by one, at the cost of the rows. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import BLOCK, KeptRows, PlanRows
from sim.growth.leaps import Leaps, Numbers
from sim.metrics.record.blocks import blocks, column

Floats = NDArray[np.float64]

STEPS = 100
"""Lengths a decade at which a distribution is given: each 2.3 % longer than the one before."""

FEW = 100_000
"""So many gaps are written out and sorted; of more, a percentile is found by bisection first."""


GAPS = np.dtype([("first", "f8"), ("slope", "f8"), ("count", "i8"), ("weight", "i8")])
"""A row of gaps that grow evenly, see ``Gaps``."""


class Gaps:
    """Row r stands for the gaps ``first[r] + slope[r] * i`` with i from 0 to ``count[r] - 1``, each
    seen by ``weight[r]`` sequences. No slope is negative."""

    def __init__(self, first: Floats, slope: Floats, count: Floats, weight: Floats) -> None:
        self._rows: PlanRows = _rows_of(first, slope, count, weight)

    @classmethod
    def of(cls, rows: PlanRows) -> Gaps:
        """The gaps of ``GAPS`` rows."""
        found = cls.__new__(cls)
        found._rows = rows
        return found

    @classmethod
    def recorded(cls, plans: PlanRows, long_gaps: NDArray[np.void]) -> Gaps:
        """The gaps of ``recorder.PLAN`` and ``recorder.GAP`` rows.

        Each iteration of a plan gives one gap to each sequence that decodes in it; but in the first
        one the stalled sequences saw a longer gap, which is in ``long_gaps``.
        """
        found, late, rest = KeptRows(GAPS), [], []
        for block in blocks(len(plans), BLOCK):
            leaps, stalled = Leaps.recorded(plans[block]), plans[block]["stalled"]
            own = leaps.chosen((leaps.sequences > 0) & (stalled == 0))
            found.add(_rows_of(own.first, own.step, own.times, own.sequences))
            own, stalled = leaps.chosen(stalled > 0), stalled[stalled > 0]  # few
            late.append(_rows_of(own.first, 0, 1, own.sequences - stalled))
            own = own.chosen(own.times > 1)
            rest.append(_rows_of(own.first + own.step, own.step, own.times - 1, own.sequences))
        for rows in (*late, *rest, _rows_of(long_gaps["gap"], 0, 1, long_gaps["count"])):
            found.add(rows[rows["weight"] > 0])
        return cls.of(found)

    @property
    def first(self) -> Floats:
        """The first gap of each row (s)."""
        return self._rows["first"]

    @property
    def slope(self) -> Floats:
        """By how much each gap of a row is longer than the one before (s)."""
        return self._rows["slope"]

    @property
    def count(self) -> Floats:
        """How many gaps each row stands for, of one sequence."""
        return self._rows["count"].astype(np.float64)

    @property
    def weight(self) -> Floats:
        """Sequences that saw each."""
        return self._rows["weight"].astype(np.float64)

    @property
    def last(self) -> Floats:
        """The last gap of each row (s)."""
        return self.first + self.slope * (self.count - 1)

    @property
    def gaps(self) -> Floats:
        """How many gaps each row stands for."""
        return self.count * self.weight

    def __len__(self) -> int:
        return len(self._rows)

    def total(self) -> float:
        """How many gaps there are."""
        return self._sum(lambda rows: rows.gaps)

    def mean(self) -> float:
        """Their mean (s)."""
        return self._sum(lambda rows: rows.gaps * (rows.first + rows.last)) / 2 / self.total()

    def std(self) -> float:
        """Their standard deviation with ddof 0 (s)."""
        mean = self.mean()

        def squares(rows: Gaps) -> Floats:
            n, off, slope = rows.count, rows.first - mean, rows.slope
            linear, square = n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6
            sums = n * off**2 + 2 * off * slope * linear + slope**2 * square
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
        first, slope, count = self.first, self.slope, self.count
        with np.errstate(divide="ignore", invalid="ignore"):
            start = np.where(slope > 0, np.floor((low - first) / slope) - 1, 0)
            stop = np.where(slope > 0, np.floor((high - first) / slope) + 3, np.inf)
        start = np.clip(start, 0, count)
        length = (np.clip(stop, start, count) - start).astype(np.int64)
        begin = np.cumsum(length) - length
        step = np.arange(int(length.sum())) - np.repeat(begin - start, length)
        values = np.repeat(first, length) + np.repeat(slope, length) * step
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
        lows = self._ranked(lambda rows: rows.first, ranks)
        highs = self._ranked(lambda rows: rows.last, ranks)
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
        longest, first = float(self._each(lambda rows: rows.last).max()), self.first
        shortest = float(first[first > 0].min(initial=longest or 1.0))
        low, high = (math.floor(STEPS * math.log10(each or 1.0)) for each in (shortest, longest))
        edges = np.minimum(10.0 ** (np.arange(low, high + 2) / STEPS), longest)
        counts = np.zeros(len(edges))  # whole numbers, so that the order of adding does not matter
        for rows in self._blocks():
            place, end = (np.searchsorted(edges, each) for each in (rows.first, rows.last))
            within = place == end
            counts += np.bincount(place[within], rows.gaps[within], minlength=len(edges))
            values, weights = rows._chosen(~within).written_out()
            counts += np.bincount(np.searchsorted(edges, values), weights, minlength=len(edges))
        near = np.flatnonzero(counts)
        near = np.union1d(near, np.maximum(near - 1, 0))  # where a step begins and where it ends
        return edges[near], np.cumsum(counts)[near] / total

    def _ranked(self, of: Callable[[Gaps], Floats], ranks: list[int]) -> list[float]:
        """The gaps with those ranks if all of a row were as long as ``of`` has it: only values
        between the same two of a sample are put in order."""
        values = self._each(of)
        sample = np.sort(values[:: 1 + len(values) // FEW])
        edges = np.concatenate([[-np.inf], sample, [np.inf]])
        counts = np.zeros(len(edges))  # of gaps above the edge before, up to this one
        for rows in self._blocks():
            counts += np.bincount(np.searchsorted(edges, of(rows)), rows.gaps, len(edges))
        reached, found = np.cumsum(counts), []
        for rank in ranks:
            at = int(np.searchsorted(reached, rank, side="right"))
            near = np.flatnonzero((values > edges[at - 1]) & (values <= edges[at]))
            near = near[np.argsort(values[near])]
            within = reached[at - 1] + np.cumsum(self._chosen(near).gaps)
            found.append(float(values[near[np.searchsorted(within, rank, side="right")]]))
        return found

    def _at(self, rank: float, low: float, high: float) -> float:
        """The gap with ``rank`` smaller or equal ones before it, known to be in ``low..high``."""
        rows, before = self, 0.0
        while low < high:
            before += rows._sum(partial(_below, low))
            rows = rows._where(partial(_reaches, low, high))
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
        above = self._where(lambda rows: rows.last > value)
        first, slope, count = above.first, above.slope, above.count
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.floor((value - first) / slope)
        steps = np.where(slope > 0, np.clip(steps, 0, count - 1), 0.0)
        # of the step that the division gives and its neighbours, the first that is above
        near = np.clip(steps + np.arange(-1, 3)[:, None], 0, count - 1)
        values = first + slope * near
        return float(values[values > value].min())

    def _within(self, low: float, high: float) -> float:
        """About how many different gaps lie between ``low`` and ``high``."""

        def different(rows: Gaps) -> Floats:
            span, slope = np.minimum(rows.last, high) - np.maximum(rows.first, low), rows.slope
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.where(slope > 0, span / slope, 0.0)
            steps = np.clip(steps + 1, 0, rows.count)
            return np.asarray(steps)

        return self._sum(different)

    def _sum(self, amount: Callable[[Gaps], Floats]) -> float:
        """The sum of an ``amount`` of each row."""
        return float(self._each(amount).sum())

    def _each(self, amount: Callable[[Gaps], Floats]) -> Floats:
        """An ``amount`` of each row."""
        return column(len(self), lambda block: amount(self._chosen(block)))

    def _blocks(self) -> Iterator[Gaps]:
        """All rows, as many at a time as take no memory to speak of."""
        return (self._chosen(block) for block in blocks(len(self), BLOCK))

    def _where(self, which: Callable[[Gaps], NDArray[np.bool_]]) -> Gaps:
        """The rows of which ``which`` is true."""
        found = KeptRows(GAPS)
        for rows in self._blocks():
            found.add(rows._rows[which(rows)])
        return Gaps.of(found)

    def _chosen(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Gaps:
        return Gaps.of(self._rows[rows])


def _below(bound: float, rows: Gaps) -> Floats:
    """How many gaps are in rows that end below ``bound``."""
    return rows.gaps * (rows.last < bound)


def _reaches(low: float, high: float, rows: Gaps) -> NDArray[np.bool_]:
    """The rows that may have gaps from ``low`` to ``high``."""
    return np.asarray((rows.last >= low) & (rows.first <= high))


def _rows_of(
    first: Numbers, slope: Numbers | int, count: Numbers | int, weight: Numbers
) -> NDArray[np.void]:
    """``GAPS`` rows of columns, or of numbers that all rows have in common."""
    rows = np.empty(len(first), GAPS)
    rows["first"], rows["slope"], rows["count"], rows["weight"] = first, slope, count, weight
    return rows
