"""Attributes the busy time of a run to operators, and to what bounds them. Seconds, FLOP and bytes.

Nothing is accumulated while the run goes on. The recorded plans say how large each pass was, and
the cost model that timed them says what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel, Operator
from sim.cost.operators import Amount

HOST = "host"

BOUNDS = ("compute", "memory", "latency", "communication")
"""What an operator may be bound by."""

ROWS = 1 << 18
"""Plans taken apart at a time: bounds the memory, whatever the length of the run."""


@dataclass(slots=True)
class Work:
    """What one operator did in all: FLOP and bytes of one GPU, and its seconds by what bounded
    them, which add up to its time."""

    flops: float = 0.0
    bytes: float = 0.0
    compute: float = 0.0
    memory: float = 0.0
    latency: float = 0.0
    communication: float = 0.0

    @property
    def seconds(self) -> float:
        """Its time."""
        return self.compute + self.memory + self.latency + self.communication


@dataclass(frozen=True, slots=True)
class Attribution:
    """Totals over all replicas; ``flops`` and ``bytes`` are those of one GPU of each.

    ``errors`` are the seconds by which the time of an operator may be off (host excluded),
    ``measured`` the seconds of operators in shapes that a profile covers, ``work`` what each
    operator did (host excluded).
    """

    by_operator: dict[str, float]
    by_bound: dict[str, float]
    flops: float
    bytes: float
    errors: dict[str, float]
    measured: float
    work: dict[str, Work]

    @property
    def seconds(self) -> float:
        """Busy time in all."""
        return sum(self.by_operator.values())


def attribute(cost: CostModel, plans: NDArray[np.void]) -> Attribution:
    """Take the busy time of ``plans`` (``recorder.PLAN`` rows) apart."""
    found: dict[str, Work] = {}
    errors: dict[str, float] = {}
    busy = measured = 0.0
    for start in range(0, len(plans), ROWS):
        rows = plans[start : start + ROWS]
        busy += float((rows["end"] - rows["start"]).sum())
        for o, times in _operators(cost, rows):
            seconds, work = o.seconds, found.setdefault(o.name, Work())
            computing = np.greater_equal(o.compute, o.memory)
            work.flops += _total(o.flops, times)
            work.bytes += _total(o.bytes, times)
            work.compute += _total(o.compute * computing, times)
            work.memory += _total(o.memory * ~computing, times)
            work.latency += _total(o.latency, times)
            work.communication += _total(o.communication, times)
            errors[o.name] = errors.get(o.name, 0.0) + _total(seconds * o.error, times)
            measured += _total(seconds * o.measured, times)
    found = {name: work for name, work in found.items() if work.seconds}
    by_operator = {name: work.seconds for name, work in found.items()}
    by_bound = {
        bound: sum(float(getattr(work, bound)) for work in found.values()) for bound in BOUNDS
    }
    by_operator[HOST] = by_bound[HOST] = max(0.0, busy - sum(by_operator.values()))
    flops = sum(work.flops for work in found.values())
    traffic = sum(work.bytes for work in found.values())
    return Attribution(by_operator, by_bound, flops, traffic, errors, measured, found)


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
