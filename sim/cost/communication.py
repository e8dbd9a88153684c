"""Predicts the time of collectives between the GPUs of one replica. Sizes in bytes, seconds.

On several nodes a collective goes by stages: the GPUs of each node share a tensor out among them,
each exchanges its share with its fellows on the other nodes over the network, and brings the shares
of its node together. Stages follow one another; over the network a stage takes the latency of one
message for each doubling of the nodes.
"""

from __future__ import annotations

import math

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
    return link.latency + 2 * (gpus - 1) / gpus * size / _rate(link, gpus)


def all_reduce_across(size: Amount, gpus: int, nodes: int, link: Link) -> Amount:
    """The extra time of an all-reduce of ``size`` bytes over ``nodes`` of ``gpus`` each beyond one
    on each node: every GPU reduces its share over the network ``link``, back and forth."""
    if nodes == 1:
        return 0.0
    steps = 2 * math.ceil(math.log2(nodes))
    return steps * link.latency + 2 * (nodes - 1) / nodes * size / gpus / link.bandwidth


def all_gather_across(size: Amount, gpus: int, nodes: int, link: Link) -> Amount:
    """Seconds of an all-gather or a reduce-scatter across nodes: one way of an all-reduce."""
    return all_reduce_across(size, gpus, nodes, link) / 2


def all_gather_time(size: Amount, gpus: int, link: Link) -> Amount:
    """Parts of a tensor of ``size`` bytes brought together on each of ``gpus``; a reduce-scatter,
    which is the same backwards, takes as long."""
    return link.latency + (gpus - 1) / gpus * size / _rate(link, gpus)


def send_time(size: Amount, link: Link) -> Amount:
    """A message of ``size`` bytes from one GPU to another."""
    return link.latency + size / _rate(link, 2)


def _rate(link: Link, gpus: int) -> float:
    return link.among(gpus) * (NVLINK_EFFICIENCY if link.kind == "nvlink" else 1.0)
