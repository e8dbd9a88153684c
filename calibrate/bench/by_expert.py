"""Computes the chosen experts of each token, one expert at a time, without a grouped kernel.

Rows are put in the order of their experts, each expert that has rows multiplies them, and every
token sums its results in the order in which it chose. So an expert's weights are read once for the
batch, and those of experts that no token chose are not read. Both the engine and the benchmarks
call these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from calibrate.lazy_torch import Tensor, torch

NAME = "expert by expert"


class ExpertWeights(NamedTuple):
    """Projections of all experts, expert x out x in, gate and up in one; and their biases."""

    gate_up: Tensor
    down: Tensor
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None


def routed(
    x: Tensor,
    chosen: Tensor,
    shares: Tensor,
    weights: ExpertWeights,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """Each row of ``x`` through the experts ``chosen`` for it, summed by ``shares`` (both row x
    choice). ``activation`` turns gate and up, side by side, into what goes down."""
    linear = torch.nn.functional.linear
    rows, choices = chosen.shape
    order = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=len(weights.down)).tolist()
    sorted_rows = x.index_select(0, order // choices)
    results = torch.empty_like(sorted_rows)
    at = 0
    for expert, count in enumerate(counts):
        if not count:
            continue
        own = slice(at, at + count)
        into, out = _bias(weights.gate_up_bias, expert), _bias(weights.down_bias, expert)
        inner = activation(linear(sorted_rows[own], weights.gate_up[expert], into))
        results[own] = linear(inner, weights.down[expert], out)
        at += count
    back = torch.empty_like(results).index_copy_(0, order, results)
    return (back.view(rows, choices, -1) * shares[..., None]).sum(1)


def _bias(biases: Tensor | None, expert: int) -> Tensor | None:
    return None if biases is None else biases[expert]
