"""Integrates the power of the GPUs over a run: joules, watts, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.power import PowerModel
from sim.metrics.record.attribution import waited
from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.run_record import RunRecord
from sim.specs.gpu import GpuSpec

Floats = NDArray[np.float64]

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class PoolEnergy:
    """The energy of one pool: ``busy`` joules in its plans, ``idle`` ones between them, those that
    it would have drawn ``resting`` all the time, and the most watts of one GPU in any iteration."""

    busy: float
    idle: float
    most: float
    resting: float = 0.0


def pool_energy(part: PoolRun) -> PoolEnergy:
    """The energy of a pool's GPUs in a run, idle ones included."""
    d, draws = part.pool.deployment, part.draws
    idle, gpus = PowerModel(d).idle, d.layout.tensor
    busy = float((part.durations - waited(part.plans)).sum())
    others = (d.layout.split - 1) * idle * part.span  # wait for their turn
    return PoolEnergy(
        busy=gpus * float(draws.joules.sum()),
        idle=gpus * idle * max(0.0, part.span - busy) + others,
        most=max(idle, draws.most),
        resting=gpus * idle * part.span + others,
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
    gpus = {pool.deployment.gpu.name: pool.deployment.gpu for pool in run.pools}
    error = max(gpu.power_draw.error for gpu in gpus.values())
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
        "note": _note(gpus, less, more),
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
    gpus = part.pool.deployment.layout.tensor
    return max(0.0, gpus * part.draws.freed - drawn.busy) / (drawn.busy + drawn.idle)


def _note(gpus: Mapping[str, GpuSpec], less: float, more: float) -> str:
    """A note on the scope of the figures, and how sure they are."""
    told = []
    for name, gpu in gpus.items():
        fitted = gpu.draw is not None
        how = "fitted to published runs" if fitted else "scaled from an H100's by its power limit"
        told.append(f"the power of {name} is {how} (± {gpu.power_draw.error:.0%})")
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
        gpus, resting = d.layout.tensor, PowerModel(d).idle
        for name, sign in (("start", gpus), ("end", -gpus)):
            at = plans[name]
            rows = np.flatnonzero((at > after) & (at <= until))
            took = plans["end"][rows] - plans["start"][rows]
            drawn = part.draws.joules[rows] / np.where(took > 0, took, 1.0)
            times.append(at[rows])
            changes.append(sign * np.where(took > 0, drawn - resting, 0.0))
    return np.concatenate(times), np.concatenate(changes)
