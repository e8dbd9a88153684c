"""Locates a run on the roofline: the points at which it worked, and for how long at each.

An iteration has an arithmetic intensity (FLOP per byte it must move) and a speed (FLOP per second
of it, the host's part included). Iterations of like intensity are one point here. FLOP and bytes
are of one GPU, seconds of all replicas together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, Deployment
from sim.metrics.pools import common

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord

Floats = NDArray[np.float64]

KINDS = ("decode", "mixed", "prefill")
"""Iterations that only decode, that do both, and that only prefill."""

STEPS = 6
"""Points per doubling of the intensity."""

SMALLEST, LARGEST = 2.0**-10, 2.0**20
"""Intensities beyond these are drawn together with them."""


def roofline(run: RunRecord) -> dict[str, Any] | None:
    """The roof of one GPU (FLOP/s, bytes/s), and the ``points`` at which the run worked.

    A point has its ``kind`` of iteration, ``iterations``, ``seconds``, ``flops`` and ``bytes``.
    None where nothing was run, or on GPUs of several kinds, which have no roof in common.
    """
    roof, parts = common(_roof(pool.deployment) for pool in run.pools), run.parts
    plans = np.concatenate([part.plans for part in parts])
    if not len(plans) or roof is None:
        return None
    worked = [work(part.pool.cost, part.plans) for part in parts]
    flops, traffic = (np.concatenate(column) for column in zip(*worked, strict=True))
    rows = {
        "iterations": plans["iterations"].astype(np.float64),
        "seconds": np.concatenate([part.durations for part in parts]),
        "flops": flops,
        "bytes": traffic,
    }
    intensity = np.clip(flops / np.maximum(traffic, 1.0), SMALLEST, LARGEST)
    kinds = np.where(plans["prefill_seqs"] == 0, 0, np.where(plans["computed"] > 0, 1, 2))
    place = np.rint(STEPS * np.log2(intensity / SMALLEST)).astype(np.int64)
    cells = 1 + round(STEPS * math.log2(LARGEST / SMALLEST))
    key = kinds * cells + place
    sums = {name: np.bincount(key, column) for name, column in rows.items()}
    taken = np.unique(key)
    return {
        **roof,
        "points": [
            {"kind": KINDS[at // cells], **{name: float(sums[name][at]) for name in rows}}
            for at in taken.tolist()
        ],
    }


def _roof(d: Deployment) -> dict[str, Any]:
    """What one GPU could do."""
    return {
        "precision": d.arithmetic,
        "peak_flops": d.gpu.flops(d.arithmetic),
        "bandwidth": d.gpu.bandwidth,
    }


def work(cost: CostModel, plans: NDArray[np.void]) -> tuple[Floats, Floats]:
    """FLOP and bytes of each of ``plans`` (``recorder.PLAN`` rows), all its iterations together."""
    batches = Batches.of(plans)
    flops, traffic = np.zeros(len(plans)), np.zeros(len(plans))
    for ran in cost.operators(batches, each=True):
        often = 1.0 if ran.by == "prompts" else batches.times
        flops += ran.each(ran.operator.flops) * often
        traffic += ran.each(ran.operator.bytes) * often
    some = batches.tokens > 0
    return flops * some, traffic * some
