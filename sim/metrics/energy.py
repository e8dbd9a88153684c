"""Integrates the power of the GPUs over a run: joules, watts, and what follows from them.

Nothing is accumulated while the run goes on. Each recorded plan says how long its iterations took
and what they read; ``sim.cost.power`` says what that draws. In a decode the time and the bytes of
decode attention grow evenly from one iteration to the next, so that the energy of a thousand
iterations is a sum in closed form: the same with leaps as without.

What an iteration takes beyond its kernels draws as decode attention does without its bytes: in the
runs that the power was fitted to, most of it was kernels that took longer than predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, Operator
from sim.cost.batches import Sizes, TimedPasses
from sim.cost.power import PowerModel
from sim.growth.leaps import SEEN, SEEN_GROWING
from sim.metrics.blocks import blocks
from sim.metrics.pipelines import waited

if TYPE_CHECKING:
    from sim.metrics.pools import PoolRun
    from sim.metrics.run_record import RunRecord

Floats = NDArray[np.float64]

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class PoolEnergy:
    """What one pool drew: ``busy`` joules in its plans, ``idle`` ones between them, what it would
    have drawn ``resting`` all the time, and the most watts of one GPU in any iteration."""

    busy: float
    idle: float
    most: float
    resting: float = 0.0


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
    """What one GPU draws in each of ``rows`` plans, filled block by block; ``most`` is the most of
    any iteration (W), ``freed`` what all would take in the same time without a power limit (J)."""

    def __init__(self, cost: CostModel, rows: int) -> None:
        self._cost, self._power = cost, PowerModel(cost.deployment)
        limited = cost.deployment.gpu.clocks < 1
        self._without_limit = PowerModel(cost.deployment, freed=True) if limited else None
        self.joules, self.most, self.freed = np.zeros(rows), 0.0, 0.0

    def add(
        self, block: slice, plans: NDArray[np.void], batches: Batches, ran: Sequence[TimedPasses]
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
    plans: NDArray[np.void],
    batches: Batches,
    ran: Sequence[TimedPasses],
) -> tuple[Floats, Floats]:
    """Joules of each plan on one GPU, and the most watts that an iteration of it draws there."""
    times = np.maximum(plans["iterations"].astype(np.float64), 1.0)
    fixed, seconds, read = _amounts(cost, power, plans, batches, times, ran)
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
    plans: NDArray[np.void],
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
    plans: NDArray[np.void],
    batches: Batches,
    times: Floats,
    middle: Operator,
) -> _Even:
    """What decode attention, which is ``middle`` in the middle of each plan, costs beyond its
    time."""
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


def pool_energy(part: PoolRun) -> PoolEnergy:
    """What the GPUs of a pool drew in a run, idle ones included."""
    d, draws = part.pool.deployment, part.draws
    idle = PowerModel(d).idle
    gpus = d.layout.gpus / d.layout.batches
    busy = float((part.durations - waited(part.plans)).sum())
    return PoolEnergy(
        busy=gpus * float(draws.joules.sum()),
        idle=gpus * idle * max(0.0, part.span - busy),
        most=max(idle, draws.most),
        resting=gpus * idle * part.span,
    )


def _gpus_held(run: RunRecord) -> float:
    """GPUs that were held, on average."""
    if all(part.held is None for part in run.parts):
        return run.gpus
    layouts = [(part.span, part.pool.deployment.layout) for part in run.parts]
    return sum(span * each.gpus / each.batches for span, each in layouts) / run.duration


def energy(run: RunRecord, outputs: int, arriving: float = 1.0) -> dict[str, Any] | None:
    """The energy of a run for the summary; None where nothing was served.

    A token and a request take what they do while requests come: in the share ``arriving`` of the
    run. What the GPUs draw at rest in the remainder is not theirs.
    """
    if not outputs or run.duration <= 0:
        return None
    pools = [pool_energy(part) for part in run.parts]
    idle = sum(each.idle for each in pools)
    joules = idle + sum(each.busy for each in pools)
    theirs = joules - (1 - arriving) * sum(each.resting for each in pools)
    kwh, asked = joules / JOULES_PER_KWH, run.scenario.energy
    price, grid = asked.price_per_kwh, asked.grid_intensity
    draws = {pool.deployment.gpu.name: pool.deployment.gpu.power_draw for pool in run.pools}
    error = max(draw.error for draw in draws.values())
    less = max(map(_slowed_too_much, run.parts))
    more = max(_cut_off(part, each) for part, each in zip(run.parts, pools, strict=True))
    return {
        "joules_per_output_token": theirs / outputs,
        "joules_per_request": theirs / int(run.completed.sum()),
        "kwh": kwh,
        "idle_share": idle / joules,
        "mean_watts_per_gpu": joules / run.duration / _gpus_held(run),
        "peak_watts_per_gpu": max(each.most for each in pools),
        "co2e_grams": None if grid is None else kwh * grid,
        "usd": None if price is None else kwh * price,
        "error": error + max(less, more),
        **({"less": min(1.0, error + less), "more": error + more} if less or more else {}),
        "note": _note(draws, less, more),
    }


def _slowed_too_much(part: PoolRun) -> float:
    """The share by which the energy of a pool under a power limit may be less than predicted.

    The power was measured without a limit. Under one, arithmetic is taken to slow down as far as
    the limit is lowered, which is the most that it can: power is frequency x voltage^2, and the
    voltage falls with the frequency, so that between share^(1/3) and share of the clock stay, and
    all of it where the limit is not reached. What is bound by arithmetic then takes up to ``share``
    of its predicted time, and of the energy of that time.
    """
    found = part.attribution
    busy = sum(found.by_operator.values())
    share = part.pool.deployment.gpu.clocks
    return (1 - share) * found.by_bound.get("compute", 0.0) / busy if busy and share < 1 else 0.0


def _cut_off(part: PoolRun, drawn: PoolEnergy) -> float:
    """The share by which the energy of a pool under a power limit may be more than predicted: what
    the limit cuts off operators that are not slowed down by it, since memory is taken to be read as
    fast as ever. At most, their work takes as many joules as without it, and longer."""
    if part.pool.deployment.gpu.clocks == 1 or not drawn.busy:
        return 0.0
    gpus = part.pool.deployment.layout.gpus / part.pool.deployment.layout.batches
    return max(0.0, gpus * part.draws.freed - drawn.busy) / (drawn.busy + drawn.idle)


def _note(draws: dict[str, Any], less: float, more: float) -> str:
    """What the figures are of, and how sure."""
    told = []
    for name, draw in draws.items():
        fitted = not draw.source.startswith("not measured")
        how = "fitted to published runs" if fitted else "scaled from an H100's by its power limit"
        told.append(f"the power of {name} is {how} (± {draw.error:.0%})")
    limit = ""
    if less or more:
        limit = (
            f"; no GPU was measured under a power_limit: the energy may be another {less:.0%} "
            f"less, where arithmetic slows down less than predicted, or {more:.0%} more, where "
            "reading memory slows down, too"
        )
    return f"Of the GPUs alone, idle time included; {'; '.join(told)}{limit}."


def mean_power(run: RunRecord, edges: Floats) -> Floats:
    """The power (W) of all GPUs together, its mean between each of ``edges`` (s, ascending) and
    the next one; each plan draws its mean.

    Beginnings and ends of plans are put in order stretch by stretch of the run, so that about
    as many of them as a block has are held at one time.
    """
    stretches = min(len(edges) - 1, len(list(blocks(len(run.plans)))))
    cuts = edges[np.linspace(0, len(edges) - 1, stretches + 1).round().astype(int)[1:]]
    idle = sum(PowerModel(p.deployment).idle * p.gpus for p in run.pools)
    time, change, joules = -1.0, 0.0, 0.0
    spent, after = [], -np.inf
    for until in cuts:
        times, changes = _changes(run, after, until)
        order = np.argsort(times, kind="stable")
        times = np.concatenate([[time], times[order]])
        changes = np.cumsum(np.concatenate([[change], changes[order]]))
        watts = np.maximum(idle + changes, 0.0)
        sums = np.cumsum(np.concatenate([[joules], watts[:-1] * np.diff(times)]))
        mine = edges[(edges > after) & (edges <= until)]
        at = np.searchsorted(times, mine, "right") - 1
        spent.append(sums[at] + watts[at] * (mine - times[at]))
        time, change, joules, after = times[-1], changes[-1], sums[-1], until
    found: Floats = np.diff(np.concatenate(spent)) / np.diff(edges)
    return found


def _changes(run: RunRecord, after: float, until: float) -> tuple[Floats, Floats]:
    """When the power changes later than ``after`` and no later than ``until`` (s), and by what (W):
    what plans draw beyond an idle GPU, as they begin and as they end."""
    times, changes = [], []
    for part in run.parts:
        d, plans = part.pool.deployment, part.plans
        gpus, resting = d.layout.gpus / d.layout.batches, PowerModel(d).idle
        for name, sign in (("start", gpus), ("end", -gpus)):
            at = plans[name]
            rows = np.flatnonzero((at > after) & (at <= until))
            took = plans["end"][rows] - plans["start"][rows]
            drawn = part.draws.joules[rows] / np.where(took > 0, took, 1.0)
            times.append(at[rows])
            changes.append(sign * np.where(took > 0, drawn - resting, 0.0))
    return np.concatenate(times), np.concatenate(changes)
