"""Measures attention over latent vectors (MLA): decoding, absorbed, and prompts, projected up.

``mla_decode``: ``batch`` sequences of ``context`` tokens, the new one included, of which each keeps
one vector of ``latent + rope`` numbers; ``q_heads`` share it. ``mla_prefill``: ``batch`` prompts of
``tokens`` behind ``context`` others, with keys of ``head_dim + rope / 2`` and values of ``head_dim
- rope / 2`` numbers for each head (so that ``head_dim`` is their mean, as the form has it). The
products that absorb or project are products of their own, and not in it.

On CUDA the quickest way that is right is timed, of those in ``decode_ways`` and ``prefill_ways``;
on a CPU sequence by sequence. ``kernel`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from calibrate.bench import by_sequence, latent_by_sequence, paged_flash
from calibrate.bench.arena import Arena
from calibrate.bench.base import (
    WORKSPACE,
    BenchPoint,
    BenchWork,
    Scope,
    UnsupportedError,
    element,
)
from calibrate.bench.elementwise import store_call
from calibrate.bench.heads import HeadsCandidate, close, dense_attention, quickest_right
from calibrate.bench.paged import BLOCK, blocks_for
from calibrate.lazy_torch import Tensor, optional, torch
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

TOLERANCE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 3e-2}


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
        make = _decode if point.operator == "mla_decode" else _prefill
        return make(point, arena)


# Decoding


class LatentCache(NamedTuple):
    """Queries (sequence x head x size), blocks of vectors (block x slot x 1 x size), tables that
    take turns (sequence x block), the tokens of each sequence, and the numbers that are values."""

    query: Tensor
    vectors: Tensor
    tables: Sequence[Tensor]
    context: int
    latent: int
    scale: float

    @property
    def results(self) -> tuple[int, ...]:
        """The shape of what comes out."""
        return (*self.query.shape[:2], self.latent)


def make_cache(arena: Arena, point: BenchPoint, copies: int | None = None) -> LatentCache:
    """A cache of random vectors in blocks in random order."""
    batch, context = point.size("batch"), point.size("context")
    size = point.size("latent") + point.size("rope")
    each = blocks_for([context])
    if copies is None:
        copies = arena.copies(batch * each * BLOCK * size * element(point.precision))
    vectors = arena.take((copies * batch * each, BLOCK, 1, size), point.precision, pool="kv")[0]
    tables = arena.shuffled(copies * batch * each).view(copies, batch, each)
    query = arena.take((batch, point.size("q_heads"), size), point.precision)[0]
    scale = size**-0.5
    return LatentCache(query, vectors, list(tables), context, point.size("latent"), scale)


def _decode(point: BenchPoint, arena: Arena) -> BenchWork:
    cache = make_cache(arena, point)
    if arena.device.facts.kind == "cpu":
        before = store_call(arena, point.precision)
        return BenchWork(one_by_one(cache), latent_by_sequence.NAME, before=before)
    name, calls = quickest_right(_decode_candidates(arena, point, cache), arena.device)
    return BenchWork(calls, name)


def one_by_one(cache: LatentCache) -> list[Callable[[], Tensor]]:
    """Sequence by sequence, on any device."""
    gather, out = latent_by_sequence.LatentGather(), cache.query.new_empty(cache.results)

    def call(table: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            for row, own in enumerate(table):
                seen = gather(cache.vectors, own, cache.context)
                out[row] = latent_by_sequence.decode(
                    cache.query[row], seen, cache.latent, cache.scale
                )
            return out

        return run

    return [call(table) for table in cache.tables]


def in_batches(cache: LatentCache) -> list[Callable[[], Tensor]]:
    """All sequences gathered, two batched products with a softmax between them."""

    def call(table: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            seen = _gathered(cache, table)
            scores = torch.bmm(cache.query, seen.transpose(1, 2)).float() * cache.scale
            return torch.bmm(scores.softmax(-1).to(seen.dtype), seen[..., : cache.latent])

        return run

    return [call(table) for table in cache.tables]


def fused(cache: LatentCache) -> list[Callable[[], Tensor]]:
    """All sequences gathered, PyTorch's attention with heads as rows over keys wider than
    values."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def call(table: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            seen = _gathered(cache, table)[:, None]
            rows = cache.query[:, None]
            return attend(rows, seen, seen[..., : cache.latent], scale=cache.scale)[:, 0]

        return run

    return [call(table) for table in cache.tables]


def flashinfer(cache: LatentCache) -> list[Callable[[], Tensor]]:
    """flashinfer's kernel over paged vectors, planned once for each table; UnsupportedError
    without the package."""
    library = optional("flashinfer")
    if library is None or not hasattr(library, "mla"):
        raise UnsupportedError("flashinfer is not installed, or has no latent attention")
    batch, heads, _ = cache.query.shape
    where, each = cache.query.device, cache.tables[0].shape[1]
    count = torch.arange(batch + 1, dtype=torch.int32, device=where)
    lengths = torch.full((batch,), cache.context, dtype=torch.int32, device=where)
    rope = cache.query.shape[2] - cache.latent
    workspace = torch.empty(128 * 2**20, dtype=torch.uint8, device=where)
    split = (cache.query, cache.vectors.squeeze(2))
    parts = [part for each_ in split for part in each_.split([cache.latent, rope], dim=-1)]

    def call(table: Tensor) -> Callable[[], Tensor]:
        wrapper = library.mla.BatchMLAPagedAttentionWrapper(workspace)
        kinds = (cache.query.dtype, cache.vectors.dtype)
        sizes = (heads, cache.latent, rope, BLOCK, False, cache.scale)
        wrapper.plan(count, count * each, table.flatten(), lengths, *sizes, *kinds)
        return lambda: wrapper.run(*parts)

    return [call(table) for table in cache.tables[:64]]


def _gathered(cache: LatentCache, table: Tensor) -> Tensor:
    """Sequence x token x size."""
    blocks = cache.vectors.index_select(0, table.flatten())
    return blocks.view(len(table), -1, blocks.shape[-1])[:, : cache.context]


DecodeWay = Callable[[LatentCache], list[Callable[[], Tensor]]]

DECODE_WAYS: tuple[tuple[str, DecodeWay], ...] = (
    ("flashinfer", flashinfer),
    ("gather and batched products", in_batches),
    ("gather and SDPA", fused),
)


def _decode_candidates(
    arena: Arena, point: BenchPoint, cache: LatentCache
) -> Iterator[HeadsCandidate]:
    for name, way in DECODE_WAYS:
        question = (name, cache.query.shape[1:], point.precision)
        yield HeadsCandidate(
            name,
            lambda way=way: way(cache),  # type: ignore[misc]
            lambda way=way, question=question: arena.once(  # type: ignore[misc]
                question, lambda: decode_agrees(way, arena, point)
            ),
        )


def decode_agrees(way: DecodeWay, arena: Arena, point: BenchPoint) -> bool:
    """Whether a way gives the result of plain arithmetic in 32 bits on three sequences."""
    small = BenchPoint("", point.precision, {**point.shape, "batch": 3, "context": 77}, 0.0)
    cache = make_cache(arena, small, copies=2)
    return all(
        close(call(), decode_reference(cache, turn), TOLERANCE[point.precision])
        for turn, call in enumerate(way(cache))
    )


def decode_reference(cache: LatentCache, turn: int) -> Tensor:
    """Attention written out."""
    seen, query = _gathered(cache, cache.tables[turn]).float(), cache.query.float()
    scores = torch.einsum("bnd,btd->bnt", query, seen) * cache.scale
    return torch.einsum("bnt,btd->bnd", scores.softmax(-1), seen[..., : cache.latent])


# Prompts


class LatentPrompt(NamedTuple):
    """Queries (token x head x size) of all prompts; what the projection up leaves of their tokens
    and contexts (token x head x (``nope`` numbers of a key, then value)); and the positions that
    all heads share (token x size)."""

    query: Tensor
    wide: Tensor
    position: Tensor
    nope: int
    batch: int


def make_prompts(arena: Arena, point: BenchPoint, copies: int | None = None) -> list[LatentPrompt]:
    """Operands as the projection up leaves them, in turn."""
    batch, tokens, context = (point.size(name) for name in ("batch", "tokens", "context"))
    heads, rope = point.size("q_heads"), point.size("rope")
    value = round(point.shape["head_dim"] - rope / 2)  # and as many numbers of a key
    kept = batch * (context + tokens)
    if copies is None:
        copies = arena.copies(kept * heads * 2 * value * element(point.precision))
    (query,) = arena.take((batch * tokens, heads, value + rope), point.precision)
    wide = arena.take((kept, heads, 2 * value), point.precision, copies, pool="kv")
    position = arena.take((kept, rope), point.precision)[0]
    return [LatentPrompt(query, each, position, value, batch) for each in wide]


def _prefill(point: BenchPoint, arena: Arena) -> BenchWork:
    prompts = make_prompts(arena, point)
    if arena.device.facts.kind == "cpu":
        before = store_call(arena, point.precision)
        return BenchWork(prompt_calls(prompts), PADDED, before=before)
    name, calls = quickest_right(_prefill_candidates(arena, point, prompts), arena.device)
    return BenchWork(calls, name)


PADDED = "SDPA by sequence, values padded"


def prompt_calls(prompts: Sequence[LatentPrompt]) -> list[Callable[[], Tensor]]:
    """Prompt by prompt, on any device; the mask is the pass's, not the layer's."""
    query, all_, _, nope, batch = prompts[0]
    tokens, whole = len(query) // batch, len(all_) // batch
    mask = None
    if whole > tokens:
        mask = by_sequence.additive_mask(whole - tokens, whole, 0, query)
    out = query.new_empty((*query.shape[:2], all_.shape[-1] - nope))

    def call(one: LatentPrompt) -> Callable[[], Tensor]:
        def run() -> Tensor:
            for i in range(batch):
                new, own = slice(i * tokens, (i + 1) * tokens), slice(i * whole, (i + 1) * whole)
                out[new] = latent_by_sequence.over_heads(
                    one.query[new], one.wide[own], one.position[own], nope, mask
                )
            return out

        return run

    return [call(one) for one in prompts]


def flash(prompts: Sequence[LatentPrompt]) -> list[Callable[[], Tensor]]:
    """PyTorch's variable-length flash attention over all prompts, values padded to the width of
    keys."""
    attend = paged_flash.prefill_function(prompts[0].query, prompts[0].wide, prompts[0].batch)
    width = prompts[0].wide.shape[-1] - prompts[0].nope

    def call(one: LatentPrompt) -> Callable[[], Tensor]:
        def run() -> Tensor:
            keys, values = latent_by_sequence.keys_and_values(one.wide, one.position, one.nope)
            return attend(one.query, keys, values)[..., :width]

        return run

    return [call(one) for one in prompts]


PrefillWay = Callable[[Sequence[LatentPrompt]], list[Callable[[], Tensor]]]

PREFILL_WAYS: tuple[tuple[str, PrefillWay], ...] = (
    (f"{paged_flash.NAME}, values padded", flash),
    (PADDED, prompt_calls),
)


def _prefill_candidates(
    arena: Arena, point: BenchPoint, prompts: Sequence[LatentPrompt]
) -> Iterator[HeadsCandidate]:
    for name, way in PREFILL_WAYS:
        question = (name, prompts[0].query.shape[1:], point.precision)
        yield HeadsCandidate(
            name,
            lambda way=way: way(prompts),  # type: ignore[misc]
            lambda way=way, question=question: arena.once(  # type: ignore[misc]
                question, lambda: prefill_agrees(way, arena, point)
            ),
        )


def prefill_agrees(way: PrefillWay, arena: Arena, point: BenchPoint) -> bool:
    """Whether a way gives the result of dense attention, for whole prompts and for chunks."""
    for tokens, context in ((37, 0), (21, 50)):
        shape = {**point.shape, "batch": 2, "tokens": tokens, "context": context}
        one, *_ = made = make_prompts(arena, BenchPoint("", point.precision, shape, 0.0), copies=1)
        result = way(made)[0]()
        position = one.position[:, None].expand(-1, one.wide.shape[1], -1)
        keys = torch.cat([one.wide[..., : one.nope], position], dim=-1)
        for i in range(2):
            new = slice(i * tokens, (i + 1) * tokens)
            own = slice(i * (tokens + context), (i + 1) * (tokens + context))
            right = dense_attention(one.query[new], keys[own], one.wide[own, :, one.nope :])
            if not close(result[new], right, TOLERANCE[point.precision]):
                return False
    return True
