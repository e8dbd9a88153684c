"""Prepares the memory that a replica has in its host: how many blocks, how fast its link is, and
which is faster of moving a preempted request and computing it again.

The ranks of a replica share its host memory, as those of one vLLM engine do: each has its own part
of every block there, and a link of its own to move it. Where every rank has the whole of a block,
as with latent attention, the host has it once (``replicated_layout`` of vLLM 0.32).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from sim.cost import CostModel, Deployment
from sim.errors import UsageError
from sim.iteration import Part
from sim.memory.capacity import Capacity
from sim.memory.host import HostLink, HostMemory
from sim.scenario.pools import PoolSettings
from sim.schedulers import Offloading
from sim.specs.latent import Latent
from sim.specs.links import host_rate
from sim.units import show_bytes

SWAPS: Mapping[str, bool | None] = {"recompute": False, "swap": True, "auto": None}
"""Whether each value of ``kv_cache.preemption`` swaps; None: where that is faster."""


@dataclass(frozen=True, slots=True)
class HostTier:
    """The host memory of one replica: ``blocks`` of ``block_bytes`` (of all its ranks), over links
    of ``bandwidth`` bytes/s each way, on which a block takes ``block_seconds``, and a transfer
    ``latency`` (s) more."""

    blocks: int
    block_bytes: float
    bandwidth: float
    block_seconds: float
    latency: float
    overlap: bool
    swap: bool | None
    cost: CostModel
    budget: int
    block_size: int

    def offloading(self) -> Offloading:
        """An empty host memory for one replica."""
        return Offloading(
            HostMemory(self.blocks),
            HostLink(self.block_seconds, self.latency),
            self.overlap,
            self.swap,
            self.recompute_seconds,
        )

    def recompute_seconds(self, tokens: int, context: int = 0) -> float:
        """Seconds of the iterations that prefill ``tokens`` after ``context``, alone in the batch,
        in chunks of as many as an iteration takes."""
        seconds = 0.0
        while tokens > 0:
            chunk = min(tokens, self.budget)
            seconds += self.cost.iteration(0, 0, [Part(chunk, context)], 1)[0]
            context += chunk
            tokens -= chunk
        return seconds

    def swap_seconds(self, tokens: int) -> float:
        """Seconds to move this many tokens to the host and back."""
        blocks = -(-tokens // self.block_size)
        return 2 * (self.latency + blocks * self.block_seconds)

    def break_even(self, longest: int) -> int | None:
        """The shortest context, in tokens, from which on swapping a request is faster than to
        compute it again; None if that is slower for ``longest`` tokens too."""
        if self.swap_seconds(longest) >= self.recompute_seconds(longest):
            return None
        lengths = range(1, longest + 1)
        return lengths[bisect_left(lengths, True, key=self._faster)]

    def _faster(self, tokens: int) -> bool:
        return self.swap_seconds(tokens) < self.recompute_seconds(tokens)


def break_even(cost: CostModel, memory: Capacity, budget: int, longest: int) -> int | None:
    """``HostTier.break_even`` over the GPU's own link to its host, for caches that can be
    swapped."""
    block = memory.kv_bytes_per_token * memory.block_size
    link = cost.deployment.gpu.host_link
    bandwidth = host_rate(link)
    tier = HostTier(
        blocks=0,
        block_bytes=block * _copies(cost.deployment),
        bandwidth=bandwidth,
        block_seconds=block / bandwidth,
        latency=link.latency,
        overlap=True,
        swap=None,
        cost=cost,
        budget=budget,
        block_size=memory.block_size,
    )
    return tier.break_even(longest)


def host_tier(
    pool: PoolSettings, memory: Capacity, cost: CostModel, budget: int
) -> HostTier | None:
    """The host tier that ``kv_cache.host_memory`` gives a replica whose iterations take ``budget``
    tokens; None where that is null. UsageError where it holds no block."""
    kv, deployment = pool.kv_cache, cost.deployment
    if kv.host_memory is None:
        return None
    rank = memory.kv_bytes_per_token * memory.block_size
    whole = rank * _copies(deployment)
    bandwidth = kv.host_bandwidth or host_rate(deployment.gpu.host_link)
    blocks = int(kv.host_memory // whole)
    if not blocks:
        raise UsageError(
            f"kv_cache.host_memory: {show_bytes(kv.host_memory)} hold no block of "
            f"{show_bytes(whole)}"
        )
    return HostTier(
        blocks=blocks,
        block_bytes=whole,
        bandwidth=bandwidth,
        block_seconds=rank / bandwidth,
        latency=deployment.gpu.host_link.latency,
        overlap=kv.host_overlap,
        swap=SWAPS[kv.preemption],
        cost=cost,
        budget=budget,
        block_size=memory.block_size,
    )


def _copies(deployment: Deployment) -> int:
    """How many parts of a block the host keeps: one of each rank, or one where all are alike."""
    latent = all(isinstance(group.attention, Latent) for group in deployment.model.layers)
    return 1 if latent else deployment.layout.gpus
