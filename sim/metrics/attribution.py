"""Where the busy time of a run went: by operator, and by what bounds it. Seconds, FLOP and bytes.

Nothing is accumulated while the run goes on. The recorded plans say how large each pass was, and the
same cost model that priced them says what is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel, Operator

HOST = "host"


@dataclass(frozen=True, slots=True)
class Attribution:
    """Totals over all replicas; ``flops`` and ``bytes`` are those of one GPU of each."""

    by_operator: dict[str, float]
    by_bound: dict[str, float]
    flops: float
    bytes: float

    @property
    def seconds(self) -> float:
        """Busy time in all."""
        return sum(self.by_operator.values())


def attribute(cost: CostModel, plans: NDArray[np.void]) -> Attribution:
    """Take the busy time of ``plans`` (``recorder.PLAN`` rows) apart."""
    times = plans["iterations"].astype(np.float64)
    computed = plans["computed"]
    operators = [
        *_totals(cost.token_operators, computed + plans["prefill_tokens"], times),
        *_totals(cost.output_operators, computed + plans["prefill_seqs"], times),
        cost.attention.decode_totals(
            computed.astype(np.float64),
            plans["context"] + computed * (times - 1) / 2,  # contexts grow evenly: take the middle
            times,
        ),
        _prefill_attention(cost, plans),
    ]
    by_operator: dict[str, float] = {}
    for o in operators:
        if o.seconds > 0:
            by_operator[o.name] = by_operator.get(o.name, 0.0) + o.seconds
    by_bound = {"compute": 0.0, "memory": 0.0, "latency": 0.0, "communication": 0.0}
    for o in operators:
        by_bound["compute" if o.compute >= o.memory else "memory"] += max(o.compute, o.memory)
        by_bound["latency"] += o.latency
        by_bound["communication"] += o.communication
    busy = float((plans["end"] - plans["start"]).sum())
    host = max(0.0, busy - sum(by_operator.values()))
    by_operator[HOST] = by_bound[HOST] = host
    return Attribution(
        by_operator, by_bound, sum(o.flops for o in operators), sum(o.bytes for o in operators)
    )


def _totals(
    operators_of: Callable[[int], list[Operator]],
    sizes: NDArray[np.int32],
    times: NDArray[np.float64],
) -> list[Operator]:
    """The operators of passes of ``sizes``, summed, apart where compute and where memory binds."""
    different, index = np.unique(sizes, return_inverse=True)
    if not len(different):
        return []
    weights = np.bincount(index, weights=times)
    passes = [operators_of(size) for size in different.tolist()]
    figures = np.array([[o[1:7] for o in operators] for operators in passes])
    compute_bound = figures[:, :, 2] >= figures[:, :, 3]
    totals = []
    for mask in (compute_bound, ~compute_bound):
        sums = np.einsum("p,pof,po->of", weights, figures, mask.astype(np.float64))
        for operator, row in zip(passes[0], sums.tolist(), strict=True):
            totals.append(Operator(operator.name, *row, operator.per_batch))
    return totals


def _prefill_attention(cost: CostModel, plans: NDArray[np.void]) -> Operator:
    """Keys of earlier chunks, read again by later ones, are left out of the bytes."""
    tokens = float(plans["prefill_tokens"].sum())
    return cost.attention.prefill_operator(
        float(plans["prefill_attention"].sum()), float(plans["pairs"].sum()), tokens, tokens
    )
