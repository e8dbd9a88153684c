"""Locates a run on the roofline: the points at which it worked, and for how long at each.

An iteration has an arithmetic intensity (FLOP per byte it must move) and a speed (FLOP per second
of it, the host's part included). Iterations of like intensity are one point here. FLOP and bytes
are of one GPU, seconds of all replicas together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, Deployment
from sim.metrics.record.attribution import waited
from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import common
from sim.metrics.record.run_record import RunRecord

Floats = NDArray[np.float64]

KINDS = ("decode", "mixed", "prefill")
"""Iterations that only decode, that do both, and that only prefill."""

STEPS = 6
"""Points per doubling of the intensity."""

SMALLEST, LARGEST = 2.0**-10, 2.0**20
"""Intensities beyond these are drawn together with them."""

CELLS = 1 + round(STEPS * math.log2(LARGEST / SMALLEST))
"""Points of one kind that there may be."""

SUMS = ("iterations", "seconds", "flops", "bytes")
"""What is summed up over the iterations of a point."""


def roofline(run: RunRecord) -> dict[str, Any] | None:
    """The roof of one GPU (FLOP/s, bytes/s), and the ``points`` at which the run worked.

    A point has its ``kind`` of iteration, ``iterations``, ``seconds``, ``flops`` and ``bytes``.
    None where nothing was run, or on GPUs of several kinds, which have no roof in common.
    """
    roof = common(_roof(pool.deployment) for pool in run.pools)
    if not len(run.plans) or roof is None:
        return None
    sums = {name: np.zeros(len(KINDS) * CELLS) for name in SUMS}
    taken = np.zeros(len(KINDS) * CELLS, dtype=bool)
    for part in run.parts:
        for block in blocks(len(part.plans)):
            plans = part.plans[block]
            flops, traffic = work(part.pool.cost, plans)
            cell = _cells(plans, flops, traffic)
            taken[cell] = True
            seconds = plans["end"] - plans["start"] - waited(plans)
            columns = plans["iterations"].astype(np.float64), seconds, flops, traffic
            for name, column in zip(SUMS, columns, strict=True):
                np.add.at(sums[name], cell, column)  # one by one: the same sums whatever the blocks
    return {
        **roof,
        "points": [
            {"kind": KINDS[at // CELLS], **{name: float(sums[name][at]) for name in SUMS}}
            for at in np.flatnonzero(taken).tolist()
        ],
    }


def _cells(plans: NDArray[np.void], flops: Floats, traffic: Floats) -> NDArray[np.int64]:
    """The point of each of ``plans``: by the kind of iteration, then by intensity."""
    intensity = np.clip(flops / np.maximum(traffic, 1.0), SMALLEST, LARGEST)
    kinds = np.where(plans["prefill_seqs"] == 0, 0, np.where(plans["computed"] > 0, 1, 2))
    place = np.rint(STEPS * np.log2(intensity / SMALLEST)).astype(np.int64)
    return np.asarray(kinds * CELLS + place)


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
