"""Computes how many KV blocks a replica has: the memory of one GPU, line by line, in bytes.

The order is an engine's own at start: take a share of the memory, load the weights, run one largest
pass to see what activations need, and give what is left to the KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.cost.parts.shared import LOGIT_BYTES
from sim.specs.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory arithmetic of one GPU of a replica, and the blocks that come of it.

    ``budget`` is what the engine may use of ``memory``: a share of all of it, or, ``of_free``, all
    that is in use anyway and a share of the rest. ``weights``, ``activations`` and ``reserve`` come
    off it; ``kv_cache`` is left (negative if the model does not fit).
    ``num_gpu_blocks`` counts as the engine does, ``usable_blocks`` those that requests can have.
    """

    memory: float
    utilization: float
    of_free: bool
    weights: float
    activations: float
    reserve: float
    kv_bytes_per_token: float
    block_size: int
    num_gpu_blocks: int
    null_blocks: int
    given: bool
    """Whether the number of blocks was stated, not worked out."""

    @property
    def budget(self) -> float:
        """Bytes that the engine may use."""
        if self.of_free:
            return self.taken + self.utilization * (self.memory - self.taken)
        return self.memory * self.utilization

    @property
    def taken(self) -> float:
        """Bytes in use before there is a KV cache."""
        return self.weights + self.activations + self.reserve

    @property
    def kv_cache(self) -> float:
        """Bytes left for the KV cache."""
        return self.budget - self.taken

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have."""
        return max(0, self.num_gpu_blocks - self.null_blocks)

    @property
    def tokens(self) -> int:
        """Tokens that the blocks hold, counted as engines print it."""
        return self.num_gpu_blocks * self.block_size

    def max_concurrency(self, length: int) -> float:
        """Requests of ``length`` tokens that fit at once, as engines print it."""
        return self.num_gpu_blocks / -(-length // self.block_size)


def activation_bytes(d: Deployment, max_num_batched_tokens: int, max_num_seqs: int) -> float:
    """Peak of the largest pass: one layer's widest intermediate results, and the logits.

    Counts the residual and its normed copy, what the widest attention or MLP has in between (gate
    and up outputs and their product, or queries, keys, values and result; what attention projects
    up of the tokens before a chunk), and the logits of ``max_num_seqs`` positions in 32 bits with
    the copy that sampling sorts. Ignores what a kernel needs inside.
    """
    hidden, tokens = d.model.hidden_size, max_num_batched_tokens
    inside = max(
        max(
            tokens * group.mlp.widest(hidden, d.layout),
            tokens * group.attention.widest(hidden, d.layout) + group.attention.workspace(d.layout),
        )
        for group in d.model.layers
    )
    logits = 2 * max_num_seqs * d.model.vocab_size * LOGIT_BYTES
    return (2 * tokens * hidden + inside) * d.activation_bytes + logits


def capacity(
    d: Deployment,
    *,
    block_size: int,
    gpu_memory_utilization: float,
    num_gpu_blocks: int | None,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    scale: float = 1.0,
) -> Capacity:
    """The memory of one GPU of ``d``; ``num_gpu_blocks``, if given, overrides the arithmetic, and
    ``scale`` multiplies whichever it is."""
    found = Capacity(
        memory=d.gpu.memory,
        utilization=gpu_memory_utilization,
        of_free=d.engine.fraction_of_free,
        weights=d.weight_bytes(),
        activations=activation_bytes(d, max_num_batched_tokens, max_num_seqs),
        reserve=d.engine.memory_reserve,
        kv_bytes_per_token=d.kv_bytes_per_token(),
        block_size=block_size,
        num_gpu_blocks=int((num_gpu_blocks or 0) * scale),
        null_blocks=d.engine.null_blocks,
        given=num_gpu_blocks is not None,
    )
    if found.given:
        return found
    blocks = max(0, int(found.kv_cache // (found.kv_bytes_per_token * block_size) * scale))
    return replace(found, num_gpu_blocks=blocks)
