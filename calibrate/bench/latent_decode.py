"""Decodes over latent vectors (MLA), absorbed: every way that is measured, and whether it is right.

On CUDA the quickest way that is right is timed, of those in ``WAYS``; on a CPU sequence by
sequence. ``kernel`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from calibrate.bench import latent_by_sequence
from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchPoint, BenchWork, UnsupportedError, element
from calibrate.bench.elementwise import store_call
from calibrate.bench.heads import HeadsCandidate, close, each_way, quickest_right
from calibrate.bench.latent_by_sequence import TOLERANCE
from calibrate.bench.paged import BLOCK, blocks_for
from calibrate.lazy_torch import Tensor, optional, torch


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


def prepare(point: BenchPoint, arena: Arena) -> BenchWork:
    """Operands that take turns, and the quickest way that is right on this device."""
    cache = make_cache(arena, point)
    if arena.device.facts.kind == "cpu":
        before = store_call(arena, point.precision)
        return BenchWork(one_by_one(cache), latent_by_sequence.NAME, before=before)
    name, calls = quickest_right(_candidates(arena, point, cache), arena.device)
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


Way = Callable[[LatentCache], list[Callable[[], Tensor]]]

WAYS: tuple[tuple[str, Way], ...] = (
    ("flashinfer", flashinfer),
    ("gather and batched products", in_batches),
    ("gather and SDPA", fused),
)


def _candidates(arena: Arena, point: BenchPoint, cache: LatentCache) -> Iterator[HeadsCandidate]:
    def right(name: str) -> bool:
        question = (name, cache.query.shape[1:], point.precision)
        return arena.once(question, lambda: agrees(dict(WAYS)[name], arena, point))

    return each_way(WAYS, cache, right)


def agrees(way: Way, arena: Arena, point: BenchPoint) -> bool:
    """Whether a way gives the result of plain arithmetic in 32 bits on three sequences."""
    small = BenchPoint("", point.precision, {**point.shape, "batch": 3, "context": 77}, 0.0)
    cache = make_cache(arena, small, copies=2)
    return all(
        close(call(), reference(cache, turn), TOLERANCE[point.precision])
        for turn, call in enumerate(way(cache))
    )


def reference(cache: LatentCache, turn: int) -> Tensor:
    """Attention written out."""
    seen, query = _gathered(cache, cache.tables[turn]).float(), cache.query.float()
    scores = torch.einsum("bnd,btd->bnt", query, seen) * cache.scale
    return torch.einsum("bnt,btd->bnd", scores.softmax(-1), seen[..., : cache.latent])
