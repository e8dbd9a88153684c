"""Where the busy time of a run went: by operator, and by what bounds it. Seconds, FLOP and bytes.

Nothing is accumulated while the run goes on. The recorded plans say how large each pass was, and
the same cost model that priced them says what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel, Operator
from sim.cost.operators import Amount

HOST = "host"

ROWS = 1 << 18
"""Plans taken apart at a time: bounds the memory, whatever the length of the run."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Totals over all replicas; ``flops`` and ``bytes`` are those of one GPU of each.

    ``errors`` are the seconds by which the time of an operator may be off (host excluded),
    ``measured`` the seconds of operators in shapes that a profile covers.
    """

    by_operator: dict[str, float]
    by_bound: dict[str, float]
    flops: float
    bytes: float
    errors: dict[str, float]
    measured: float

    @property
    def seconds(self) -> float:
        """Busy time in all."""
        return sum(self.by_operator.values())


def attribute(cost: CostModel, plans: NDArray[np.void]) -> Attribution:
    """Take the busy time of ``plans`` (``recorder.PLAN`` rows) apart."""
    by_operator: dict[str, float] = {}
    by_bound = {"compute": 0.0, "memory": 0.0, "latency": 0.0, "communication": 0.0}
    errors: dict[str, float] = {}
    flops = traffic = busy = measured = 0.0
    for start in range(0, len(plans), ROWS):
        rows = plans[start : start + ROWS]
        busy += float((rows["end"] - rows["start"]).sum())
        for o, times in _operators(cost, rows):
            seconds = o.seconds
            by_operator[o.name] = by_operator.get(o.name, 0.0) + _total(seconds, times)
            errors[o.name] = errors.get(o.name, 0.0) + _total(seconds * o.error, times)
            measured += _total(seconds * o.measured, times)
            computing = np.greater_equal(o.compute, o.memory)
            by_bound["compute"] += _total(o.compute * computing, times)
            by_bound["memory"] += _total(o.memory * ~computing, times)
            by_bound["latency"] += _total(o.latency, times)
            by_bound["communication"] += _total(o.communication, times)
            flops += _total(o.flops, times)
            traffic += _total(o.bytes, times)
    by_operator = {name: seconds for name, seconds in by_operator.items() if seconds}
    by_operator[HOST] = by_bound[HOST] = max(0.0, busy - sum(by_operator.values()))
    return Attribution(by_operator, by_bound, flops, traffic, errors, measured)


def _operators(
    cost: CostModel, plans: NDArray[np.void]
) -> list[tuple[Operator, NDArray[np.float64]]]:
    """The operators of ``plans``, each for an array of passes, and how often each pass ran."""
    times = plans["iterations"].astype(np.float64)
    sequences = plans["computed"].astype(np.float64)
    tokens, token_times = _sizes(plans["computed"] + plans["prefill_tokens"], times)
    outputs, output_times = _sizes(plans["computed"] + plans["prefill_seqs"], times)
    # contexts grow evenly over a leap: the middle stands for all of it
    context = plans["context"] + sequences * (times - 1) / 2
    return [
        *((o, token_times) for o in cost.operators.per_token(tokens)),
        *((o, output_times) for o in cost.operators.per_output(outputs)),
        (cost.attention.decode(sequences, context), times),
        (_prefill_attention(cost, plans), np.ones(1)),
    ]


def _sizes(
    sizes: NDArray[np.int32], times: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The different sizes of pass, and how often each ran."""
    often = np.bincount(sizes, weights=times).astype(np.float64)
    different = np.flatnonzero(often)
    return different.astype(np.float64), often[different]


def _total(amounts: Amount, times: NDArray[np.float64]) -> float:
    """Sum over passes, each counted as often as it ran; one amount for all stands for each."""
    return float((amounts * times).sum())


def _prefill_attention(cost: CostModel, plans: NDArray[np.void]) -> Operator:
    """Keys of earlier chunks, read again by later ones, are left out of the bytes."""
    tokens = float(plans["prefill_tokens"].sum())
    alone = float(((plans["prefill_seqs"] > 0) & (plans["computed"] == 0)).sum())
    seconds, pairs = float(plans["prefill_attention"].sum()), float(plans["pairs"].sum())
    # prompts without a context have no more pairs than one prompt of all their tokens
    lone = plans["pairs"] <= plans["prefill_tokens"] * (plans["prefill_tokens"] + 1.0) / 2
    fresh = float(plans["prefill_attention"][lone].sum()) / seconds if seconds else 1.0
    return cost.attention.prefill_operator(seconds, pairs, tokens, tokens, alone, fresh)
