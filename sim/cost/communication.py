"""Predicts the time of collectives between the GPUs of one replica. Sizes in bytes, seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.specs.gpu import Link

Amount = float | NDArray[np.float64]

NVLINK_EFFICIENCY = 0.7
"""Share of NVLink's nominal rate that an all-reduce of 2 MB reaches: 12, 18 and 18 us on 2, 4 and 8
GPUs (vLLM's kernels on H200, aiconfigurator-core tables) against 12, 15 and 17 from the formula."""


def all_reduce_time(size: Amount, gpus: int, link: Link) -> Amount:
    """Sum of ``size`` bytes over ``gpus``: reduce-scatter, then all-gather, over a floor.

    Each GPU sends ``2 (g-1)/g`` of the data. Links other than NVLink carry in ``bandwidth`` what
    collectives have been measured to reach.
    """
    return link.latency + 2 * (gpus - 1) / gpus * size / _rate(link)


def all_gather_time(size: Amount, gpus: int, link: Link) -> Amount:
    """Parts of a tensor of ``size`` bytes brought together on each of ``gpus``; a reduce-scatter,
    which is the same backwards, takes as long."""
    return link.latency + (gpus - 1) / gpus * size / _rate(link)


def _rate(link: Link) -> float:
    return link.bandwidth * (NVLINK_EFFICIENCY if link.kind == "nvlink" else 1.0)
