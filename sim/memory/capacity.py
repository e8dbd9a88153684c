"""Computes how many KV blocks a replica has: the memory of one GPU, line by line, in bytes.

The order is an engine's own at start: take a share of the memory, load the weights, run one largest
pass to see what activations need, and give what is left to the KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.parts.shared import LOGIT_BYTES
from sim.memory.groups import KvGroup, KvGroups, kv_groups, stage_groups
from sim.specs.deployment import Deployment

STATE_RATIO = 0.9
"""Memory of states relative to that of the KV cache, by default (SGLang's
``--mamba-full-memory-ratio``, releases 0.5.6 to 0.5.23)."""

LONGEST = 1 << 40
"""Tokens of a request that is as long as one likes."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory arithmetic of one GPU of a replica, and the blocks that come of it.

    ``budget`` is what the engine may use of ``memory``: a share of all of it, or, ``of_free``, all
    that is in use anyway and a share of the rest; or, ``of_static``, a share of the memory for
    weights, states and KV cache, with the rest next to it. ``weights``, ``activations`` and
    ``reserve`` come off it; ``kv_cache`` is left (negative if the model does not fit).
    ``num_gpu_blocks`` counts as the engine does, ``usable_blocks`` those that requests can have.
    Blocks, tokens and ``kv_bytes_per_token`` are counted per group of layers (``groups``).
    ``in_flight`` is how many tokens are being computed at most. Of recurrent layers, each request
    has ``state_blocks`` more; ``states`` are bytes that are set aside for them where they are not
    in blocks; ``sequences`` is how many requests they are of, where memory is split for them.
    ``adapters`` are the bytes of the slots of LoRA adapters.
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
    groups: tuple[KvGroup, ...]
    in_flight: int
    state_blocks: int = 0
    states: float = 0.0
    adapters: float = 0.0
    sequences: int = LONGEST
    of_static: bool = False
    kv_bytes: float | None = None
    """Bytes that are given to the KV cache; None: what the share leaves."""
    stages: tuple[Capacity, ...] = ()
    """Of a pipeline, the memory of each stage; the one with the fewest blocks decides."""

    @property
    def decides(self) -> int:
        """The number of the stage whose memory this is, from 0: it has the fewest blocks."""
        found = [(each.num_gpu_blocks, each.kv_cache) for each in self.stages]
        return found.index(min(found)) if found else 0

    def deciding(self, d: Deployment) -> Deployment:
        """The stage of ``d`` whose memory this is; ``d`` itself where it is no pipeline."""
        return d.stages()[self.decides]

    @property
    def budget(self) -> float:
        """Bytes that the engine may use."""
        if self.kv_bytes is not None:
            return min(self.memory, self.taken + self.kv_bytes)
        if self.of_free:
            return self.taken + self.utilization * (self.memory - self.taken)
        if self.of_static:
            beside = self.activations + self.reserve
            return min(self.memory, self.memory * self.utilization + beside)
        return self.memory * self.utilization

    @property
    def taken(self) -> float:
        """Bytes in use before there is a KV cache."""
        return self.weights + self.activations + self.reserve + self.states + self.adapters

    @property
    def kv_cache(self) -> float:
        """Bytes left for the KV cache; negative where the model, or the cache next to it, does not
        fit."""
        if self.kv_bytes is not None and self.taken + self.kv_bytes > self.memory:
            return self.memory - self.taken - self.kv_bytes
        return self.budget - self.taken

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have."""
        return max(0, self.num_gpu_blocks - self.null_blocks)

    @property
    def tokens(self) -> int:
        """Tokens of one group of layers that the blocks hold: of a model whose layers are one
        group, what engines print."""
        return self.num_gpu_blocks * self.block_size

    def blocks_of(self, length: int) -> int:
        """Blocks that a request of ``length`` tokens takes at most, as engines count them."""
        tokens = sum(each.number * each.most(length, self.in_flight) for each in self.groups)
        return tokens + self.state_blocks

    def max_concurrency(self, length: int) -> float:
        """Requests of ``length`` tokens that fit at once, as engines print it."""
        return self.num_gpu_blocks / self.blocks_of(length)

    def decoding_blocks(self, length: int) -> int:
        """Blocks that a request of ``length`` tokens takes while it decodes: behind windows it
        holds less than while its prompt is computed."""
        tokens = sum(each.number * each.most(length, 1) for each in self.groups)
        return tokens + self.state_blocks

    def decoding(self, length: int) -> float:
        """Requests of ``length`` tokens that fit at once when all of them decode."""
        return self.num_gpu_blocks / self.decoding_blocks(length)

    def holds(self, length: int) -> bool:
        """Whether engines start with requests of up to ``length`` tokens."""
        return self.blocks_of(length) <= self.num_gpu_blocks

    def printed_tokens(self, length: int) -> int:
        """Tokens that the KV cache holds in requests of ``length`` each, as engines print it."""
        return int(self.max_concurrency(length) * length) if self.hybrid else self.tokens

    def group_tokens(self, held: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens of one group of layers, in all groups, that requests of that many take: behind a
        window one block more than it shows, of a chunk half of it on average; and their states."""
        total = np.full(held.shape, float(self.state_blocks * self.block_size))
        for number, window, block in self.groups:
            if window is None:
                most = np.inf
            else:
                most = (window.size / 2 if window.chunked else window.size - 1) + block
            # where blocks are of fewer tokens than those of the first group, each takes more memory
            total += number * np.minimum(held, most) * max(1.0, self.block_size / block)
        return total

    def most_at_once(self, longest: int) -> tuple[int, ...]:
        """Blocks that a request holds at most in a group of each kind, where none is longer."""
        return tuple(group.most(longest, self.in_flight) for group in self.groups)

    @property
    def windowed(self) -> bool:
        """Whether blocks behind windows are given back."""
        return any(group.window is not None for group in self.groups)

    @property
    def hybrid(self) -> bool:
        """Whether a request takes blocks of more than one kind."""
        return self.windowed or self.state_blocks > 0

    @property
    def longest(self) -> int:
        """Tokens of the longest request that the usable blocks hold (at most ``LONGEST``)."""
        if not self.windowed:
            return max(0, self.usable_blocks - self.state_blocks) * self.block_size
        low, high = 0, LONGEST
        while low < high:
            middle = (low + high + 1) // 2
            whole = (-(-middle // group.block) for group in self.groups)
            pairs = zip(self.groups, whole, self.most_at_once(middle), strict=True)
            if sum(g.number * min(blocks, most) for g, blocks, most in pairs) <= self.usable_blocks:
                low = middle
            else:
                high = middle - 1
        return low


def activation_bytes(d: Deployment, max_num_batched_tokens: int, max_num_seqs: int) -> float:
    """Peak of the largest pass: one layer's widest intermediate results, and the logits.

    Counts the residual and its normed copy (of hyper-connections all hidden states, before and
    behind), what the widest attention or MLP has in between (gate and up outputs and their product,
    or queries, keys, values and result; what attention projects up of the tokens before a chunk),
    and the logits of ``max_num_seqs`` positions in 32 bits with the copy that sampling sorts, or as
    many copies as the engine keeps on several GPUs; of a stage of a pipeline, what it receives from
    the one before. Micro-batches have the logits of all their tokens (llama.cpp's
    ``graph_reserve``). Where the engine says what a logit takes (``bytes_per_logit``), the peak is
    in a layer or in sampling, next to buffers that experts keep (vLLM's
    ``v1/worker/workspace.py``). Ignores what a kernel needs inside.
    """
    hidden, micro = d.model.hidden_size, d.engine.micro_batch
    states = 2 * d.model.hyper_connections * hidden
    tokens = min(max_num_batched_tokens, micro or max_num_batched_tokens)
    mlps = [tokens * group.mlp.widest(hidden, d.layout) for group in d.model.layers]
    attention = max(
        tokens * group.attention.widest(hidden, d.layout) + group.attention.workspace(d.layout)
        for group in d.model.layers
    )
    inside = max(attention, *mlps)
    received = 0 if d.model.embeds else tokens * states
    layer = (tokens * states + inside + received) * d.activation_bytes
    drawn = d.model.vocab_size * d.model.predicts
    if d.engine.bytes_per_logit:
        kept = tokens * states + (max(mlps) if d.model.has_experts else 0.0)
        logits = max_num_seqs * drawn * d.engine.bytes_per_logit
        return max(layer, kept * d.activation_bytes + logits)
    return layer + (micro or 2 * max_num_seqs) * drawn * LOGIT_BYTES


def reserve_bytes(d: Deployment, max_num_seqs: int) -> float:
    """What the engine keeps free of weights, activations and KV cache, CUDA graphs included where
    they count: those of decodes, and of prompts where they are captured."""
    engine, shared = d.engine, d.layout.tensor > 1 and d.gpu.link.kind == "nvlink"
    found = engine.memory_reserve + shared * engine.shared_reserve
    if not (engine.cuda_graphs and engine.first_graph):
        return found
    graphs = _captured(max_num_seqs)
    if not engine.eager_prefill:
        graphs += _captured(2 * max_num_seqs)
    return found + engine.first_graph + (graphs - 1) * engine.each_graph


def _captured(most: int) -> int:
    """The sizes that vLLM captures as graphs up to ``most`` tokens: 1, 2, 4, every 8th below 256,
    every 16th from there to 512 (``_set_cudagraph_sizes`` in ``config/vllm.py``, 0.33; it goes on
    to 1,024 on Blackwell of data centres, 0.4 GiB that are not counted).

    >>> _captured(8), _captured(256), _captured(1024)
    (4, 35, 51)
    """
    most = min(most, 512)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    return sum(size <= most for size in sizes)


def capacity(
    d: Deployment,
    *,
    block_size: int,
    gpu_memory_utilization: float,
    num_gpu_blocks: int | None,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    scale: float = 1.0,
    windows: bool = True,
    kv_bytes: float | None = None,
    state_ratio: float | None = None,
    states_each: int = 1,
    context: int | None = None,
) -> Capacity:
    """The memory of one GPU of ``d``; ``num_gpu_blocks``, if given, overrides the arithmetic, and
    ``kv_bytes`` the share of the memory; ``scale`` multiplies the blocks. Without ``windows``
    nothing is given back behind them. ``state_ratio`` is that of SGLang (``_split``), where a
    request takes ``states_each`` slots of the pool of states, or blocks of each group; where
    several, it takes one more if kernels keep states inside a chunk. There are no more blocks than
    hold ``context`` tokens, if that is given.

    An engine that prepares an iteration while another one runs has the tokens of two in flight, and
    a pipeline those of as many as it has stages. Of these the one with the fewest blocks decides.
    """
    exported = states_each > 1 and d.keeps_states_inside()
    at_once = max_num_batched_tokens * (d.layout.pipeline + d.engine.overlapped)
    asked = Sizing(
        block_size,
        gpu_memory_utilization,
        num_gpu_blocks,
        max_num_batched_tokens,
        max_num_seqs,
        scale,
        at_once,
        kv_bytes,
        state_ratio,
        states_each + exported,
        context,
    )
    if d.layout.pipeline == 1:
        kept = kv_groups(d, block_size, windows=windows, exported=exported)
        return _of_one(d, kept, asked)
    found = tuple(
        _of_one(stage, stage_groups(d, stage, block_size, windows=windows), asked)
        for stage in d.stages()
    )
    return replace(found[replace(found[0], stages=found).decides], stages=found)


class Sizing(NamedTuple):
    """The settings that ``capacity`` goes by, and the tokens in flight at most."""

    block_size: int
    gpu_memory_utilization: float
    num_gpu_blocks: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    scale: float
    in_flight: int
    kv_bytes: float | None
    state_ratio: float | None
    states_each: int
    context: int | None = None


def _of_one(d: Deployment, kept: KvGroups, asked: Sizing) -> Capacity:
    """The memory of one GPU of ``d``, a stage of a pipeline or all there is, or of all GPUs that
    work in turn: each of these has buffers of its own."""
    block_size, num_gpu_blocks, scale = asked.block_size, asked.num_gpu_blocks, asked.scale
    max_num_batched_tokens, max_num_seqs = asked.max_num_batched_tokens, asked.max_num_seqs
    found = Capacity(
        memory=d.gpu.memory * d.layout.split,
        utilization=asked.gpu_memory_utilization,
        of_free=d.engine.fraction_of_free,
        of_static=d.engine.fraction_of_static,
        weights=d.weight_bytes(),
        activations=activation_bytes(d, max_num_batched_tokens, max_num_seqs) * d.layout.split,
        reserve=reserve_bytes(d, max_num_seqs) * d.layout.split,
        kv_bytes_per_token=kept.token,
        block_size=kept.block or block_size,
        num_gpu_blocks=int((num_gpu_blocks or 0) * scale),
        null_blocks=d.engine.null_blocks,
        given=num_gpu_blocks is not None,
        groups=kept.groups,
        in_flight=asked.in_flight,
        state_blocks=kept.states * asked.states_each,
        states=0.0 if kept.states else max_num_seqs * d.state_bytes(),
        adapters=0.0 if d.lora is None else d.lora.max_loras * d.adapter_bytes,
        kv_bytes=asked.kv_bytes,
    )
    if d.engine.fraction_of_static and d.state_bytes() and not kept.states:
        found = _split(found, d.state_bytes(), asked)
    if found.given:
        return found
    block = found.kv_bytes_per_token * found.block_size
    if not block:  # a stage whose layers keep no tokens
        return replace(found, num_gpu_blocks=LONGEST if found.kv_cache >= 0 else 0)
    blocks = max(0, int(found.kv_cache // block * scale))
    if asked.context is not None:
        blocks = min(blocks, found.blocks_of(asked.context))
    return replace(found, num_gpu_blocks=blocks)


def _split(found: Capacity, state: float, asked: Sizing) -> Capacity:
    """``found`` with its memory split between states of ``state`` bytes a request and the KV cache
    (sgl-project/sglang, model_executor, handle_max_mamba_cache), for no more requests than are
    asked for and have their slots."""
    ratio = STATE_RATIO if asked.state_ratio is None else asked.state_ratio
    rest = max(0.0, replace(found, states=0.0).kv_cache)
    slots = int(rest * ratio / (1 + ratio) // state)
    sequences = max(0, min(slots // asked.states_each, asked.max_num_seqs))
    return replace(found, states=slots * state, sequences=sequences)
