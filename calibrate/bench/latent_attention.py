"""Measures attention over latent vectors (MLA): decoding, absorbed, and prompts, projected up.

``mla_decode``: ``batch`` sequences of ``context`` tokens, the new one included, of which each keeps
one vector of ``latent + rope`` numbers; ``q_heads`` share it. ``mla_prefill``: ``batch`` prompts of
``tokens`` behind ``context`` others, with keys of ``head_dim + rope / 2`` and values of ``head_dim
- rope / 2`` numbers for each head (so that ``head_dim`` is their mean, as the form has it). The
products that absorb or project are products of their own, and not in it.

How each is computed: ``latent_decode`` and ``latent_prompts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from calibrate.bench import latent_decode, latent_prompts
from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, element
from calibrate.bench.paged import BLOCK, blocks_for
from sim.specs.latent import Latent


class LatentShape(NamedTuple):
    """Query heads of one device, numbers of the latent vector, of the position next to it, and of a
    head's value."""

    q_heads: int
    latent: int = 512
    rope: int = 64
    value: int = 128

    @property
    def size(self) -> int:
        """Numbers of a cached vector."""
        return self.latent + self.rope

    @property
    def key(self) -> int:
        """Numbers of a head's key that was projected up, its position included."""
        return self.value + self.rope


SHAPES: Mapping[str, tuple[LatentShape, ...]] = {
    "cpu": (
        *(LatentShape(heads) for heads in (4, 8, 16, 32, 64)),
        *(LatentShape(heads, 256, 32, 64) for heads in (8, 40)),
    ),
    "cuda": tuple(LatentShape(heads) for heads in (8, 16, 32, 64, 128)),
}
"""DeepSeek's vectors with the heads of one of several GPUs; for a CPU also MiniCPM3's."""

BATCHES: Mapping[str, tuple[int, ...]] = {
    "cpu": (1, 2, 4, 8, 16),
    "cuda": (1, 2, 4, 8, 16, 32, 64, 128, 256),
}
CONTEXTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
TOKENS = (16, 64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384)
CHUNKS = (16, 64, 128, 256, 512, 1024, 2048)
BEFORE = (128, 512, 1024, 4096, 16384)
MOST_TOKENS = 32768
"""Tokens of all prompts together at most."""

CPU_MOST = 2**30
"""Bytes of keys, values and mask at most on a CPU, where filling them takes seconds."""


def decode_point(precision: str, batch: int, context: int, shape: LatentShape) -> BenchPoint:
    """One decode step's attention in one layer: latent vectors once, queries in, results out."""
    size = element(precision)
    kept = float(batch * blocks_for([context]) * BLOCK * shape.size * size)
    queries = batch * shape.q_heads * (shape.size + shape.latent) * size
    flops = 2.0 * batch * context * shape.q_heads * (shape.size + shape.latent)
    sizes = {"batch": batch, "context": context, "q_heads": shape.q_heads}
    sizes |= {"latent": shape.latent, "rope": shape.rope}
    scores = 8.0 * batch * shape.q_heads * context
    memory = 2 * kept + 2 * queries + scores + WORKSPACE
    return BenchPoint("mla_decode", precision, sizes, kept + queries, flops, memory)


def prefill_point(
    precision: str, batch: int, tokens: int, context: int, shape: LatentShape
) -> BenchPoint:
    """One layer's attention: keys and values of each head once, queries, results."""
    size, heads = element(precision), shape.q_heads
    widths = shape.key + shape.value
    kept = float(batch * (context + tokens) * heads * widths * size)
    queries = batch * tokens * heads * widths * size
    pairs = tokens * context + tokens * (tokens + 1) / 2
    sizes: dict[str, float] = {"batch": batch, "tokens": tokens, "context": context}
    sizes |= {"q_heads": heads, "kv_heads": heads, "head_dim": widths / 2, "rope": shape.rope}
    mask = tokens * (context + tokens) * 4 if context else 0
    memory = 1.5 * kept + 2 * queries + mask + WORKSPACE
    flops = 2.0 * batch * heads * widths * pairs
    return BenchPoint("mla_prefill", precision, sizes, kept + queries, flops, memory)


def shapes_of(scope: Scope) -> list[LatentShape]:
    """The shapes to measure: those of the models that have latent attention, and the usual ones."""
    found = []
    for model in scope.models:
        for group in model.layers:
            if isinstance(group.attention, Latent):
                for gpus in scope.tensor_parallel:
                    one = group.attention.share(gpus)
                    sizes = one.kv_lora_rank, one.qk_rope_head_dim, one.v_head_dim
                    found.append(LatentShape(one.num_heads, *sizes))
    return list(dict.fromkeys([*found, *SHAPES[scope.kind]]))


class LatentAttention:
    """Attention over latent vectors."""

    shares: Mapping[str, float] = {"mla_decode": 0.8, "mla_prefill": 0.9}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Decodes, whole prompts, and chunks behind a context."""
        return scope.affordable(self._all(scope), CPU_MOST)

    def _all(self, scope: Scope) -> Iterator[BenchPoint]:
        for precision in scope.sixteen_bit():
            for shape in shapes_of(scope):
                for batch in BATCHES[scope.kind]:
                    for context in CONTEXTS:
                        yield decode_point(precision, batch, context, shape)
                for tokens in TOKENS:
                    for batch in (n for n in (1, 2, 4, 8) if n * tokens <= MOST_TOKENS):
                        yield prefill_point(precision, batch, tokens, 0, shape)
                for tokens in CHUNKS:
                    for context in BEFORE:
                        yield prefill_point(precision, 1, tokens, context, shape)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Operands that take turns, and the quickest way that is right on this device."""
        kind = latent_decode if point.operator == "mla_decode" else latent_prompts
        work: BenchWork = kind.prepare(point, arena)
        return work
