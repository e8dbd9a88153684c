"""Computes the chosen experts of each token in two grouped products, with PyTorch alone.

What ``by_expert.routed`` computes expert by expert. Nothing waits for the host, so that a CUDA
graph takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrate.bench.base import UnsupportedError
from calibrate.bench.by_expert import ExpertWeights
from calibrate.lazy_torch import Tensor, torch


def routed(
    x: Tensor,
    chosen: Tensor,
    shares: Tensor,
    weights: ExpertWeights,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """``by_expert.routed`` for weights without biases that lie as one tensor each."""
    product, _ = grouped_product()
    rows, choices = chosen.shape
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    ones = torch.ones_like(flat, dtype=torch.int32)
    counts = torch.zeros(len(weights.down), dtype=torch.int32, device=x.device)
    ends = counts.scatter_add_(0, flat, ones).cumsum(0, dtype=torch.int32)
    sorted_rows = x.index_select(0, order // choices)
    inner = activation(product(sorted_rows, weights.gate_up.transpose(1, 2), offs=ends))
    results = product(inner, weights.down.transpose(1, 2), offs=ends)
    back = torch.empty_like(results).index_copy_(0, order, results)
    return (back.view(rows, choices, -1) * shares[..., None]).sum(1)


NAME = "grouped product"


def name() -> str:
    """The name of PyTorch's grouped product, as far as it has one."""
    try:
        return grouped_product()[1]
    except UnsupportedError:
        return NAME


def grouped_product() -> tuple[Callable[..., Any], str]:
    """PyTorch's grouped product and its name: public in newer versions, private before that.
    UnsupportedError where there is neither."""
    public = getattr(torch.nn.functional, "grouped_mm", None)
    if public is not None:
        return public, "torch.nn.functional.grouped_mm"
    private = getattr(torch, "_grouped_mm", None)
    if private is None:
        raise UnsupportedError("this PyTorch has no grouped product")
    return private, "torch._grouped_mm"
