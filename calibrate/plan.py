"""Chooses the points that are measured in the time available, and their order.

Any prefix of the order is a balanced design. Operators take turns: next comes the one that has
had least of its share of the time, so each is met early and none starves. Within an operator the
next point is the one farthest from those already taken, in the logarithms of its shape, far and
important ones first. The time of a point is guessed from a crude roofline and corrected by the
times that points of the same operator really took; a point too long for the budget waits until it
is not. Seconds throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibrate.bench.base import BenchPoint, Key

Floats = NDArray[np.float64]
Group = tuple[str, str, str]
"""Operator, precision, and variant where they differ in kind."""

LONGEST = 1 / 50
"""Share of the whole budget that one point may take at most, by default."""

ALLOWED = 0.5
"""Seconds that a point may take however small the budget is."""

CALLS = 7
"""Calls of a long point: warm-up and the fewest samples, with a little to spare."""

THRIFT = 0.15
"""Power of its cost by which a point's merit is divided: a point a hundred times as long must be
twice as far from the others."""

LEARNING = 0.2
"""How fast the correction of a group's costs follows what its points took."""

SURPRISE = 3.0
"""Times its expected cost that a point is charged to its operator's share at most: a compiler, or a
pool that is filled, takes seconds once, and what comes after it must not wait for that."""

DOMINANT_PRECISIONS = {"bf16": 1.0, "fp32": 1.0, "fp8": 1.0}
OTHER_PRECISION = 0.5
"""Share of the time for precisions other than those that serve most models."""


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """A crude roofline, and the time that a point takes in addition to its calls.

    ``flops`` and ``bandwidth`` per second; ``setup`` for operands and warm-up, ``timing`` the time
    that short calls are sampled for at most; ``fill`` the bytes of operands written per second
    beyond the ``pool`` that is there anyway.
    """

    flops: float
    bandwidth: float
    setup: float
    timing: float
    fill: float
    pool: float

    def seconds(self, point: BenchPoint) -> float:
        """One call."""
        return max(point.flops / self.flops, point.bytes / self.bandwidth)

    def cost(self, point: BenchPoint) -> float:
        """The whole point: operands written once, calls, overhead."""
        beyond = max(0.0, point.memory - self.pool)
        return self.setup + CALLS * self.seconds(point) + beyond / self.fill


def crude_rates(kind: str, units: int, cache: float = 0.0) -> DeviceRates:
    """The expected rates of an unknown device: an old core or an old GPU.

    ``units`` and ``cache`` as in the device's facts.
    """
    pool = 2.0 * cache + 2**30
    if kind == "cpu":
        return DeviceRates(2e10 * units, 3e9, 0.05, 0.12, 5e8, pool)
    return DeviceRates(5e11 * units, 5e11, 0.06, 0.04, 2e11, pool)


@dataclass(slots=True)
class _Queue:
    """The points of one group that are left, and how far each is from those taken."""

    points: list[BenchPoint]
    coordinates: Floats
    weights: Floats
    costs: Floats
    distance: Floats
    taken: NDArray[np.bool_]
    share: float
    spent: float = 0.0
    correction: float = 1.0

    def choose(self, longest: float) -> int | None:
        """The best point that is not too long: important, and far from what was taken."""
        open_ = ~self.taken & (self.costs * self.correction <= longest)
        if not open_.any():
            return None
        merit = self.weights * self.distance / self.costs**THRIFT
        return int(np.argmax(np.where(open_, merit, -1.0)))

    def cheapest(self) -> int | None:
        """The point that takes least."""
        if self.taken.all():
            return None
        return int(np.argmin(np.where(self.taken, math.inf, self.costs)))

    def take(self, index: int) -> None:
        """Mark a point as taken: its neighbours lose their distance."""
        self.taken[index] = True
        away = np.linalg.norm(self.coordinates - self.coordinates[index], axis=1)
        self.distance = np.minimum(self.distance, away)


@dataclass(slots=True)
class CalibrationPlan:
    """The order of points under a budget.

    ``shares`` says how much of the time each operator deserves; ``done`` are points measured
    earlier, which are not offered again and around which others are chosen. Each value of a
    ``ranked`` variable is measured about as often: it is as far from the next as twice the size of
    another variable. ``longest`` is the share of the budget that one point may take at most. So
    many points of each group as ``least`` come before all others, whatever of the budget they take:
    with fewer there is no fit.
    """

    points: Iterable[BenchPoint]
    shares: Mapping[str, float]
    rates: DeviceRates
    budget: float
    done: frozenset[Key] = frozenset()
    ranked: frozenset[str] = frozenset()
    longest: float = LONGEST
    least: int = 0
    _queues: dict[Group, _Queue] = field(default_factory=dict)
    _known: dict[Key, BenchPoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups: dict[Group, dict[Key, BenchPoint]] = {}
        for point in self.points:
            members = groups.setdefault(group_of(point), {})
            known = members.get(point.key)
            if known is None or known.weight < point.weight:
                members[point.key] = point
        for members in groups.values():
            self._known |= members
        sizes: dict[tuple[str, str], int] = {}
        for operator, precision, _ in groups:
            sizes[operator, precision] = sizes.get((operator, precision), 0) + 1
        for group, members in groups.items():
            share = self.shares[group[0]] / sizes[group[:2]]
            share *= DOMINANT_PRECISIONS.get(group[1], OTHER_PRECISION)
            self._queues[group] = self._queue(list(members.values()), share)

    def next(self, left: float) -> BenchPoint | None:
        """The point to measure now with ``left`` seconds to go, None when none fits any more."""
        longest = max(ALLOWED, self.longest * self.budget)
        order = sorted(
            self._queues.values(),
            key=lambda queue: (not self._lacks(queue), queue.spent / queue.share),
        )
        for queue in order:
            if self._lacks(queue):
                index = queue.choose(longest)
                index = queue.cheapest() if index is None else index
            else:
                index = queue.choose(min(left, longest))
            if index is not None:
                queue.take(index)
                return queue.points[index]
        return None

    def lacking(self) -> int:
        """Points that the groups still lack of the ``least``, or of all that they have."""
        return sum(
            min(self.least - int(queue.taken.sum()), int((~queue.taken).sum()))
            for queue in self._queues.values()
            if self._lacks(queue)
        )

    def known(self, key: Key) -> BenchPoint | None:
        """The point with a key, if it is in the plan."""
        return self._known.get(key)

    def cost(self, point: BenchPoint) -> float:
        """Seconds that ``point`` will probably take."""
        return self.rates.cost(point) * self._queues[group_of(point)].correction

    def took(self, point: BenchPoint, seconds: float) -> None:
        """Learn what a point really took."""
        queue = self._queues[group_of(point)]
        queue.spent += min(seconds, SURPRISE * self.cost(point))
        error = math.log(max(seconds, 1e-6) / (self.rates.cost(point) * queue.correction))
        queue.correction *= math.exp(LEARNING * max(-3.0, min(3.0, error)))

    def remaining(self) -> int:
        """Points not yet taken."""
        return sum(int((~queue.taken).sum()) for queue in self._queues.values())

    def _lacks(self, queue: _Queue) -> bool:
        return int(queue.taken.sum()) < self.least

    def _queue(self, points: list[BenchPoint], share: float) -> _Queue:
        coordinates = log_shape(points, self.ranked)
        centre = np.linalg.norm(coordinates - np.median(coordinates, axis=0), axis=1)
        weights = np.array([point.weight for point in points])
        queue = _Queue(
            points,
            coordinates,
            weights,
            np.array([self.rates.cost(point) for point in points]),
            # until something is taken: all far away, those in the middle of the range a bit more
            1e3 - centre,
            np.zeros(len(points), dtype=bool),
            share,
        )
        for index, point in enumerate(points):
            if point.key in self.done:
                queue.take(index)
        return queue


def group_of(point: BenchPoint) -> Group:
    """Points of one group differ in shape only (layers: by how they are run, not by model)."""
    return (point.operator, point.precision, point.variant.rsplit(" ", 1)[-1])


def log_shape(points: list[BenchPoint], ranked: frozenset[str] = frozenset()) -> Floats:
    """Each point's shape as base-2 logarithms, a column for each variable that varies; from one
    value of a ``ranked`` one to the next is as far as to twice another variable."""
    names = sorted({name for point in points for name in point.shape})
    table = np.array(
        [[math.log2(1 + point.shape.get(name, 0.0)) for name in names] for point in points]
    )
    for column, name in enumerate(names):
        if name in ranked:
            _, place = np.unique(table[:, column], return_inverse=True)
            table[:, column] = place
    varying = table.std(axis=0) > 0 if len(points) > 1 else np.ones(len(names), dtype=bool)
    return table[:, varying] if varying.any() else table[:, :1]
