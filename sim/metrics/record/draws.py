"""Works out what one GPU draws in each plan of a run: joules, and watts at most.

Nothing is accumulated while the run goes on. Each recorded plan says how long its iterations took
and what they read; ``sim.cost.power`` says what that draws. In a decode the time and the bytes of
decode attention grow evenly from one iteration to the next, so that the energy of a thousand
iterations is a sum in closed form: the same with leaps as without.

What an iteration takes beyond its kernels draws as decode attention does without its bytes: in the
runs that the power was fitted to, most of it was kernels that took longer than predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, Operator
from sim.cost.batches import Sizes, TimedPasses
from sim.cost.power import PowerModel
from sim.growth.kept_rows import BLOCK, PlanRows
from sim.growth.leaps import SEEN, SEEN_GROWING
from sim.metrics.record.attribution import waited
from sim.metrics.record.blocks import blocks

Floats = NDArray[np.float64]


class _Even(NamedTuple):
    """An amount that grows evenly over the iterations of each plan."""

    first: Floats
    growth: Floats

    def at(self, iteration: Floats) -> Floats:
        """The amount in an iteration, from 0."""
        return self.first + self.growth * iteration

    def total(self, times: Floats) -> Floats:
        """The sum over that many iterations."""
        return times * self.first + self.growth * (times * (times - 1) / 2)

    def above(self, times: Floats) -> Floats:
        """The sum of what is above 0 in each of that many iterations."""
        with np.errstate(divide="ignore", invalid="ignore"):
            zero = np.where(self.growth != 0, -self.first / self.growth, np.inf)
        rising = self.growth > 0
        begin = np.where(rising, np.clip(np.floor(zero) + 1, 0, times), 0.0)
        end = np.where(rising, times, np.clip(np.ceil(zero), 0, times))
        level = np.where(self.first > 0, times, 0.0)
        count = np.where(self.growth == 0, level, np.maximum(end - begin, 0.0))
        return count * (self.at(begin) + self.at(begin + count - 1)) / 2


class Draws:
    """One GPU's power in each of ``rows`` plans, filled block by block; ``most`` is the most of any
    iteration (W), ``freed`` what all would take in the same time without a power limit (J)."""

    def __init__(self, cost: CostModel, rows: int) -> None:
        self._cost, self._power = cost, PowerModel(cost.deployment)
        limited = cost.deployment.gpu.clocks < 1
        self._without_limit = PowerModel(cost.deployment, freed=True) if limited else None
        self.joules, self.most, self.freed = np.zeros(rows), 0.0, 0.0

    def add(
        self, block: slice, plans: PlanRows, batches: Batches, ran: Sequence[TimedPasses]
    ) -> None:
        """Fill the rows of ``block``: ``plans``, the batches of them, and the operators of those
        (``CostModel.operators``)."""
        self.joules[block], most = _drawn(self._cost, self._power, plans, batches, ran)
        self.most = max(self.most, float(most.max(initial=0.0)))
        if self._without_limit is not None:
            found, _ = _drawn(self._cost, self._without_limit, plans, batches, ran)
            self.freed += float(found.sum())


def _drawn(
    cost: CostModel,
    power: PowerModel,
    plans: PlanRows,
    batches: Batches,
    ran: Sequence[TimedPasses],
) -> tuple[Floats, Floats]:
    """Joules of each plan on one GPU, and the most watts that an iteration of it draws there."""
    times = np.maximum(plans["iterations"].astype(np.float64), 1.0)
    fixed, seconds, read = _amounts(cost, power, plans, batches, times, ran)
    joules, most = np.empty(len(plans)), np.empty(len(plans))
    for part in blocks(len(plans), BLOCK):
        own = _Even(read.first[part], read.growth[part])
        found = _summed(power, plans[part], times[part], fixed[part], seconds[part], own)
        joules[part], most[part] = found
    return joules, most


def _summed(
    power: PowerModel, plans: PlanRows, times: Floats, fixed: Floats, seconds: Floats, read: _Even
) -> tuple[Floats, Floats]:
    """``_drawn``, given what one iteration of each plan takes (``_amounts``)."""
    slope = np.where(times > 1, plans["slope"], 0.0)
    whole = np.maximum(plans["end"] - plans["start"] - waited(plans), 0.0)
    first = (whole - slope * (times * (times - 1) / 2)) / times
    rest = np.maximum(first - seconds, 0.0)
    asked = _Even(power.draw.working * rest + read.first, power.draw.working * slope + read.growth)
    over = _Even(asked.first - power.limit * rest, asked.growth - power.limit * slope)
    most = np.zeros(len(plans))
    for iteration in (np.zeros_like(times), times - 1):
        spent = fixed + asked.at(iteration) - np.maximum(over.at(iteration), 0.0)
        took = first + slope * iteration
        most = np.maximum(most, np.where(took > 0, spent / np.where(took > 0, took, 1.0), 0.0))
    joules = times * fixed + asked.total(times) - over.above(times)
    return np.minimum(joules, power.limit * whole), np.minimum(most, power.limit)


def _amounts(
    cost: CostModel,
    power: PowerModel,
    plans: PlanRows,
    batches: Batches,
    times: Floats,
    operators: Sequence[TimedPasses],
) -> tuple[Floats, Floats, _Even]:
    """Joules and seconds of one iteration of each plan without decode attention, the same in all of
    them; and what decode attention reads beyond the time that it takes, in joules."""
    joules, seconds = np.zeros(len(plans)), np.zeros(len(plans))
    of_sizes: dict[int, tuple[Sizes, Floats, Floats]] = {}
    read = None
    for ran in operators:
        if ran.by == "decodes" and read is None:  # the first of these grows with the context
            read = _reading(cost, power, plans, batches, times, ran.operator)
            continue
        operator = ran.operator
        if ran.by == "prompts":  # which is one for all of them together
            operator = cost.attention.prefill_operator(batches.prefills)
        drawn, took = power.joules(operator), operator.seconds
        if ran.sizes is None:
            joules += drawn
            seconds += took
            continue
        zeros = np.zeros(len(ran.sizes.different))
        _, of_them, in_them = of_sizes.setdefault(id(ran.sizes), (ran.sizes, zeros, zeros.copy()))
        of_them += drawn
        in_them += took
    for sizes, of_them, in_them in of_sizes.values():
        at = np.searchsorted(sizes.different, sizes.of)
        joules += of_them[at]
        seconds += in_them[at]
    assert read is not None
    return joules, seconds, read


def _reading(
    cost: CostModel,
    power: PowerModel,
    plans: PlanRows,
    batches: Batches,
    times: Floats,
    middle: Operator,
) -> _Even:
    """The cost of decode attention, ``middle`` in mid-plan, beyond its time."""
    some = batches.sequences > 0
    found = power.reading(middle.flops, middle.bytes)
    found = np.broadcast_to(np.asarray(found), times.shape) * some
    if not (times > 1).any():
        return _Even(found, np.zeros_like(times))
    decodes = batches.sequences.astype(np.float64)
    seen = ()
    if SEEN in (plans.dtype.names or ()):
        seen = tuple(np.array(batches.seen) + plans[SEEN_GROWING].T)
    work = cost.attention.decode_work(decodes, batches.context + decodes, seen)
    growth = np.where(times > 1, power.reading(*work) * some - found, 0.0)
    return _Even(found - growth * ((times - 1) / 2), growth)
