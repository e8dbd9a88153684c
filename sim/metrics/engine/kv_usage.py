"""Computes how full the KV caches of a pool were over a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import Leaps
from sim.metrics.record.blocks import blocks, column, weighed
from sim.metrics.record.pipelines import standing
from sim.metrics.record.pools import PoolRun

Floats = NDArray[np.float64]

ROUNDING = 1.0 + 1e-9
"""Passes that fill a run sum up to no more than that times its span."""


def _in_cache(part: PoolRun, name: str) -> float:
    """Mean of what is in the KV cache of one replica, as a column has it, while there was one."""
    span = part.duration * part.caches
    return weighed(part.plans, name, standing(part)) / span if span > 0 else 0.0


def _growth_over_time(part: PoolRun, growth: Callable[[PlanRows], Floats]) -> float:
    """Mean of what a quantity has gained since the start of the leap it is in, over the same time;
    it gains ``growth`` of the plans with each iteration."""

    def gained(block: slice) -> Floats:
        plans = part.plans[block]
        return Leaps.recorded(plans).integral(growth(plans))

    whole, span = float(column(len(part.plans), gained).sum()), part.duration * part.caches
    return whole / span if span > 0 else 0.0


def _most_held(plans: PlanRows) -> float:
    """The most tokens that are filled in any of ``plans``: what grows evenly within a leap is no
    more than the blocks that it is in."""
    held = np.minimum(plans["held"] + Leaps.recorded(plans).gained(), plans["reserved_end"])
    return float(held.max(initial=0))


class Taken(NamedTuple):
    """Shares of a KV cache that are filled and taken: means over the run, and the most."""

    mean_used: float
    peak_used: float
    mean_reserved: float
    peak_reserved: float


def taken(part: PoolRun) -> Taken:
    """How full the KV caches of a pool were."""
    plans, tokens = part.plans, max(1, part.pool.kv_tokens)

    def filling(plans: PlanRows) -> Floats:
        return Leaps.recorded(plans).filling.astype(np.float64)

    def by_blocks(plans: PlanRows) -> Floats:
        further = plans["iterations"] - 1.0
        taken: Floats = plans["reserved_end"] - plans["reserved"]
        return taken / np.maximum(further, 1.0)  # taken evenly

    used = _in_cache(part, "held") + _growth_over_time(part, filling)
    reserved = _in_cache(part, "reserved") + _growth_over_time(part, by_blocks)
    busy = float(part.durations.sum())
    if busy > part.span * ROUNDING:  # the last pass outlasts a request that was given up
        used, reserved = (value * part.span / busy for value in (used, reserved))
    return Taken(
        used / tokens,
        max([_most_held(plans[block]) for block in blocks(len(plans))], default=0.0) / tokens,
        reserved / tokens,
        float(plans["reserved_end"].max()) / tokens if len(plans) else 0.0,
    )
