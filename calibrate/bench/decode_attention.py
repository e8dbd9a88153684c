"""Measures attention of one new token per sequence over a paged KV cache.

``batch`` sequences of mean length ``context`` (the new token included), the longest ``skew`` times
that. On CUDA the first kernel that is installed and correct is timed: flashinfer, then the Triton
kernel of ``paged_triton``, then PyTorch's variable-length flash attention, then a gather with dense
attention; on a CPU a gather and dense attention sequence by sequence. ``kernel`` says which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calibrate.bench import by_sequence, paged_flash, paged_flashinfer, paged_triton, vllm_cpu
from calibrate.bench.arena import Arena
from calibrate.bench.base import (
    WORKSPACE,
    BenchPoint,
    BenchWork,
    Kernels,
    Scope,
    UnsupportedError,
    element,
)
from calibrate.bench.elementwise import store_call
from calibrate.bench.heads import (
    Heads,
    HeadsCandidate,
    close,
    dense_attention,
    first_right,
    layouts,
)
from calibrate.bench.paged import (
    BLOCK,
    PagedCache,
    bits,
    blocks_for,
    cache_bytes,
    gather_all,
    make_cache,
    spread_lengths,
)
from calibrate.lazy_torch import Tensor, torch

BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
SKEW, SKEW_WEIGHT = 4.0, 0.6
PRECISIONS = ("bf16", "fp16", "fp32", "fp8")
TOLERANCE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 2e-2, "fp8": 1e-1}
"""Error of a kernel against 32-bit arithmetic on the same stored numbers, relative."""

CPU_MOST = 2**31
"""Bytes of KV cache at most on a CPU, where filling and reading them takes seconds."""


def point(
    precision: str, batch: int, context: int, heads: Heads, skew: float = 1.0, weight: float = 1.0
) -> BenchPoint:
    """One decode step's attention in one layer: all keys and values once, queries, outputs."""
    shape = {
        "batch": batch,
        "context": context,
        "skew": skew,
        "q_heads": heads.q,
        "kv_heads": heads.kv,
        "head_dim": heads.size,
    }
    stored = element(precision)
    tokens = float(batch * context)
    traffic = 2 * tokens * heads.kv * heads.size * stored
    traffic += 2 * batch * heads.q * heads.size * max(stored, 2)
    flops = 4 * tokens * heads.q * heads.size
    held = cache_bytes(spread_lengths(batch, context, skew), heads, precision)
    return BenchPoint(
        "decode_attention", precision, shape, traffic, flops, held + WORKSPACE, weight, ""
    )


class DecodeAttention:
    """Attention of decoding sequences."""

    shares: Mapping[str, float] = {"decode_attention": 3.0}

    def __init__(self, kernels: Kernels = "torch") -> None:
        self._kernels = kernels

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Batches by contexts by head layouts, and some of them with unequal lengths."""
        most = scope.most(CPU_MOST)
        for precision in _precisions(scope):
            for heads, matters in layouts(scope).items():
                for batch in BATCHES:
                    for context in CONTEXTS:
                        for skew in (1.0, SKEW):
                            if skew > 1 and (batch < 2 * skew or context < 128):
                                continue
                            weight = matters * (SKEW_WEIGHT if skew > 1 else 1.0)
                            made = point(precision, batch, context, heads, skew, weight)
                            if made.memory <= most and skew * context <= scope.longest:
                                yield made

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Queries, a paged cache in random block order, and the best kernel for the device."""
        heads = Heads(*(point.size(name) for name in ("q_heads", "kv_heads", "head_dim")))
        if heads.size & (heads.size - 1):
            raise UnsupportedError(f"head size {heads.size} is not a power of two")
        batch = point.size("batch")
        lengths = spread_lengths(batch, point.size("context"), point.shape["skew"])
        if self._kernels == "vllm":
            return vllm_cpu.attention(arena, heads, point.precision, (1,) * batch, lengths)
        cache = make_cache(arena, lengths, heads, point.precision)
        query = make_query(arena, batch, heads, point.precision)
        name, calls = first_right(candidates(arena, query, cache, point.precision))
        return BenchWork(calls, name, before=stored_before(arena, point.precision))


def stored_before(arena: Arena, precision: str) -> Callable[[], object] | None:
    """On a CPU, the calls before attention in a pass."""
    return store_call(arena, precision) if arena.device.facts.kind == "cpu" else None


def make_query(arena: Arena, batch: int, heads: Heads, precision: str) -> Tensor:
    """Queries, in 16 bits where the cache has 8."""
    wide = "bf16" if precision == "fp8" else precision
    return arena.take((batch, heads.q, heads.size), wide)[0]


def candidates(
    arena: Arena, query: Tensor, cache: PagedCache, precision: str
) -> Iterator[HeadsCandidate]:
    """Every way to compute it, best first; each is checked on a small case before it is used."""
    if arena.device.facts.kind == "cpu":
        yield HeadsCandidate(by_sequence.NAME, lambda: one_by_one(query, cache))
        return
    ways: list[tuple[str, Maker]] = [
        (paged_flashinfer.NAME, paged_flashinfer.decode_calls),
        (paged_triton.NAME, paged_triton.decode_calls),
        (paged_flash.NAME, paged_flash.decode_calls),
        ("gather and SDPA", gathered),
    ]
    for name, make in ways:
        yield HeadsCandidate(
            name,
            lambda make=make: make(query, cache),  # type: ignore[misc]
            lambda name=name, make=make: arena.once(  # type: ignore[misc]
                (name, cache.heads, precision),
                lambda: agrees(make, arena, cache.heads, precision),
            ),
        )


Maker = Callable[[Tensor, PagedCache], list[Callable[[], Tensor]]]


def agrees(make: Maker, arena: Arena, heads: Heads, precision: str) -> bool:
    """Whether a kernel gives the result of dense attention, on three sequences of unequal
    length."""
    cache = make_cache(arena, (5, 700, 131), heads, precision, copies=2)
    query = make_query(arena, 3, heads, precision).clone()
    expected = [reference(query, cache, turn) for turn in (0, 1)]
    results = [call().clone() for call in make(query, cache)]
    return all(
        close(result.view_as(right), right, TOLERANCE[precision])
        for result, right in zip(results, expected, strict=True)
    )


def reference(query: Tensor, cache: PagedCache, turn: int, window: int | None = None) -> Tensor:
    """Dense attention of each sequence over its gathered blocks, in 32 bits."""
    rows = []
    for i, length in enumerate(cache.lengths):
        blocks = cache.tables[turn][i, : blocks_for([length])].long()
        keys, values = (
            part.view(bits(part))[blocks].view(part.dtype).float().flatten(0, 1)[:length]
            for part in (cache.keys, cache.values)
        )
        rows.append(dense_attention(query[i : i + 1], keys, values, window)[0])
    return torch.stack(rows)


def one_by_one(query: Tensor, cache: PagedCache) -> list[Callable[[], Tensor]]:
    """On a CPU: what the engine does there."""
    if query.dtype != cache.keys.dtype:
        raise UnsupportedError("PyTorch has no attention over an 8-bit cache")
    out, gather = torch.empty_like(query), by_sequence.Gather()
    rows = [slice(i, i + 1) for i in range(len(cache.lengths))]

    def call(table: Tensor) -> Callable[[], Tensor]:
        own = [table[i, : blocks_for([length])] for i, length in enumerate(cache.lengths)]

        def run() -> Tensor:
            for row, blocks, length in zip(rows, own, cache.lengths, strict=True):
                keys, values = gather(cache.keys, cache.values, blocks, length)
                out[row] = by_sequence.decode(query[row], keys, values)
            return out

        return run

    return [call(table) for table in cache.tables]


def gathered(query: Tensor, cache: PagedCache) -> list[Callable[[], Tensor]]:
    """The last resort on CUDA: gather all sequences, padded to the longest, and mask."""
    heads, attend = cache.heads, torch.nn.functional.scaled_dot_product_attention
    batch = len(cache.lengths)
    group = heads.q // heads.kv
    rows = query.view(batch, heads.kv, group, heads.size)
    lengths = torch.tensor(cache.lengths, device=query.device)
    places = torch.arange(blocks_for([cache.longest]) * BLOCK, device=query.device)
    mask = (places[None, :] < lengths[:, None])[:, None, None, :]

    def call(table: Tensor) -> Callable[[], Tensor]:
        flat = table.flatten()

        def run() -> Tensor:
            k, v = gather_all(cache, flat, query)
            return attend(rows, k, v, attn_mask=mask).view_as(query)

        return run

    return [call(table) for table in cache.tables]


def _precisions(scope: Scope) -> Iterator[str]:
    for precision in scope.precisions:
        if precision in PRECISIONS and (precision != "fp8" or scope.kind == "cuda"):
            yield precision
