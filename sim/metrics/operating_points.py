"""Locates a run on the roofline: the points at which it worked, and for how long at each.

An iteration has an arithmetic intensity (FLOP per byte it must move) and a speed (FLOP per second
of it, the host's part included). Iterations of like intensity are one point here. FLOP and bytes
are of one GPU, seconds of all replicas together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel, Operator
from sim.cost.operators import Amount

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
    None where nothing was run.
    """
    plans = run.plans
    if not len(plans):
        return None
    gpu, precision = run.deployment.gpu, run.deployment.arithmetic
    flops, traffic = work(run.cost, plans)
    rows = {
        "iterations": plans["iterations"].astype(np.float64),
        "seconds": run.durations,
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
        "precision": precision,
        "peak_flops": gpu.flops(precision),
        "bandwidth": gpu.bandwidth,
        "points": [
            {"kind": KINDS[at // cells], **{name: float(sums[name][at]) for name in rows}}
            for at in taken.tolist()
        ],
    }


def work(cost: CostModel, plans: NDArray[np.void]) -> tuple[Floats, Floats]:
    """FLOP and bytes of each of ``plans`` (``recorder.PLAN`` rows), all its iterations together."""
    times, sequences = (plans[name].astype(np.float64) for name in ("iterations", "computed"))
    per_token = _by_size(cost.operators.per_token, plans["computed"] + plans["prefill_tokens"])
    per_output = _by_size(cost.operators.per_output, plans["computed"] + plans["prefill_seqs"])
    # contexts grow evenly over a leap: the middle stands for all of it
    decode = cost.attention.decode(sequences, plans["context"] + sequences * (times - 1) / 2)
    prompts, pairs = plans["prefill_tokens"].astype(np.float64), plans["pairs"]
    pair = cost.attention.prefill_operator(0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    token = cost.attention.prefill_operator(0.0, 0.0, 1.0, 1.0, 0.0, 1.0)
    flops = times * (per_token[0] + per_output[0] + decode.flops) + pairs * pair.flops
    traffic = times * (per_token[1] + per_output[1] + decode.bytes) + prompts * token.bytes
    return flops, traffic


def _by_size(
    operators: Callable[[Amount], list[Operator]], sizes: NDArray[np.int32]
) -> tuple[Floats, Floats]:
    """FLOP and bytes of a pass of each of ``sizes``; none of an empty one."""
    different, place = np.unique(sizes, return_inverse=True)
    amounts = different.astype(np.float64)
    found = operators(amounts)
    flops, traffic = (
        np.sum([np.broadcast_to(getattr(o, name), amounts.shape) for o in found], axis=0)
        * (amounts > 0)
        for name in ("flops", "bytes")
    )
    return flops[place], traffic[place]
