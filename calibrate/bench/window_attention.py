"""Measures attention that looks back ``window`` tokens: decoding, and prompts beyond the window.

Shapes are those of ``decode_attention`` and ``prefill_attention`` and the window. On CUDA the first
kernel that is installed and right is timed (flashinfer and PyTorch's variable-length flash
attention take windows; without them the window is gathered, or a mask laid over the whole prompt).
On a CPU the blocks of the window are gathered, and prompts are cut into pieces (``by_sequence``).
``kernel`` says which. A prompt that is no longer than the window is like any other, and not
measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from calibrate.bench import by_sequence, paged_flash, paged_flashinfer, prefill_attention
from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, element
from calibrate.bench.decode_attention import (
    TOLERANCE,
    make_query,
    reference,
    stored_before,
)
from calibrate.bench.heads import Heads, HeadsCandidate, close, dense_attention, first_right
from calibrate.bench.paged import (
    BLOCK,
    PagedCache,
    blocks_for,
    cache_bytes,
    gather_all,
    make_cache,
)
from calibrate.bench.prefill_attention import Operands, make_operands
from calibrate.lazy_torch import Tensor, torch
from sim.cost.kernels.serial_windows import PIECE
from sim.specs.grouped_query import GroupedQuery
from sim.specs.window import Window

NAME = "gathered window and SDPA by sequence"

WINDOWS = (128, 1024, 4096)
"""Of gpt-oss, of Gemma 3, and of Gemma 2 and Mistral 7B v0.1."""

HEADS: Mapping[str, tuple[Heads, ...]] = {
    "cpu": (
        *(Heads(8, 2, 64), Heads(16, 4, 64), Heads(12, 4, 64)),
        *(Heads(8, 8, 128), Heads(32, 8, 128), Heads(8, 4, 256)),
    ),
    "cuda": (
        *(Heads(64, 8, 64), Heads(32, 4, 64), Heads(8, 1, 64), Heads(32, 8, 128)),
        *(Heads(32, 16, 128), Heads(16, 8, 128), Heads(16, 8, 256), Heads(8, 4, 256)),
    ),
}
"""On a GPU those of gpt-oss, Mistral and Gemma on one to eight of them; fewer on a CPU."""

BATCHES: Mapping[str, tuple[int, ...]] = {
    "cpu": (1, 2, 4, 8, 16),
    "cuda": (1, 4, 8, 16, 32, 64, 128, 256),
}
CONTEXTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768)
TOKENS = (64, 160, 256, 512, 1024, 2048, 4096, 8192, 16384)
BEFORE = (0, 128, 1024, 4096, 16384)
MOST_TOKENS = 32768
CPU_MOST = 2**30


def decode_point(precision: str, batch: int, context: int, window: int, heads: Heads) -> BenchPoint:
    """One decode step's attention in one layer: keys and values of the window once, queries,
    outputs."""
    shape = {"batch": batch, "context": context, "window": window, **_sizes(heads)}
    stored, seen = element(precision), float(batch * min(context, window))
    traffic = 2 * seen * heads.kv * heads.size * stored
    traffic += 2 * batch * heads.q * heads.size * stored
    flops = 4 * seen * heads.q * heads.size
    memory = cache_bytes((context,) * batch, heads, precision) + WORKSPACE
    return BenchPoint("window_decode", precision, shape, traffic, flops, memory)


def prefill_point(
    precision: str, batch: int, tokens: int, context: int, window: int, heads: Heads
) -> BenchPoint:
    """One layer's attention of ``tokens`` behind ``context`` others; keys and values that any of
    them sees once, queries, outputs."""
    shape = {"batch": batch, "tokens": tokens, "context": context, "window": window}
    stored = element(precision)
    kept = min(context, window - 1) + tokens
    rising = min(tokens, max(0, window - context))
    pairs = rising * context + rising * (rising + 1) / 2 + (tokens - rising) * float(window)
    traffic = 2.0 * batch * (kept * heads.kv + tokens * heads.q) * heads.size * stored
    flops = 4.0 * batch * heads.q * heads.size * pairs
    whole = 2.0 * batch * (context + tokens) * heads.kv * heads.size * stored
    mask = 4 * tokens * (window + PIECE)
    memory = whole + 4.0 * batch * tokens * heads.q * heads.size * stored + mask + WORKSPACE
    return BenchPoint(
        "window_prefill", precision, {**shape, **_sizes(heads)}, traffic, flops, memory
    )


def _sizes(heads: Heads) -> dict[str, int]:
    return {"q_heads": heads.q, "kv_heads": heads.kv, "head_dim": heads.size}


def layers_of(scope: Scope) -> list[tuple[Heads, int]]:
    """Heads and windows to measure: those of the models that have windows, and the usual ones."""
    found: list[tuple[Heads, int]] = []
    for model in scope.models:
        for group in model.layers:
            attention = group.attention
            if isinstance(attention, GroupedQuery) and attention.sliding_window is not None:
                for gpus in (n for n in scope.tensor_parallel if attention.num_heads % n == 0):
                    one = attention.share(gpus)
                    heads = Heads(one.num_heads, one.num_kv_heads, one.head_dim)
                    found.append((heads, attention.sliding_window))
    usual = [(heads, window) for window in WINDOWS for heads in HEADS[scope.kind]]
    return list(dict.fromkeys([*found, *usual]))


class WindowAttention:
    """Attention through windows."""

    shares: Mapping[str, float] = {"window_decode": 0.8, "window_prefill": 0.9}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Decodes within and beyond the window, prompts and chunks beyond it."""
        return scope.affordable(self._all(scope), CPU_MOST)

    def _all(self, scope: Scope) -> Iterator[BenchPoint]:
        for precision in scope.sixteen_bit():
            for heads, window in layers_of(scope):
                for batch in BATCHES[scope.kind]:
                    for context in CONTEXTS:
                        yield decode_point(precision, batch, context, window, heads)
                for tokens in TOKENS:
                    for context in BEFORE:
                        batches = (1, 4) if context == 0 else (1,)
                        for batch in (n for n in batches if n * tokens <= MOST_TOKENS):
                            if tokens + context > window:
                                sizes = batch, tokens, context
                                yield prefill_point(precision, *sizes, window, heads)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Queries, a paged cache in random block order, and the best kernel for the device."""
        make = _decode if point.operator == "window_decode" else _prefill
        return make(point, arena)


def _heads(point: BenchPoint) -> Heads:
    return Heads(*(point.size(name) for name in ("q_heads", "kv_heads", "head_dim")))


# Decoding


def _decode(point: BenchPoint, arena: Arena) -> BenchWork:
    heads, window = _heads(point), point.size("window")
    lengths = (point.size("context"),) * point.size("batch")
    cache = make_cache(arena, lengths, heads, point.precision)
    query = make_query(arena, len(lengths), heads, point.precision)
    if arena.device.facts.kind == "cpu":
        before = stored_before(arena, point.precision)
        return BenchWork(one_by_one(query, cache, window), NAME, before=before)
    name, calls = first_right(_decode_candidates(arena, query, cache, window, point.precision))
    return BenchWork(calls, name)


def one_by_one(query: Tensor, cache: PagedCache, window: int) -> list[Callable[[], Tensor]]:
    """Sequence by sequence, on any device: the last tokens of each sequence of ``cache``, of which
    ``query`` has the same number for each, in pieces that each gather the blocks of what they see.
    Masks are the pass's, not the layer's."""
    tokens = len(query) // len(cache.lengths)
    out, gather = torch.empty_like(query), by_sequence.Gather()
    parts = [
        (i, _part(piece, i * tokens - (length - tokens), window, query))
        for i, length in enumerate(cache.lengths)
        for piece in by_sequence.pieces(length - tokens, length, Window(window))
    ]

    def call(table: Tensor) -> Callable[[], Tensor]:
        own = [(part, table[i, part.blocks]) for i, part in parts]

        def run() -> Tensor:
            for (rows, _, skip, stop, mask), blocks in own:
                keys, values = gather(cache.keys, cache.values, blocks, stop)
                seen = keys[:, :, skip:], values[:, :, skip:]
                single = rows.stop - rows.start == 1
                compute = by_sequence.decode if single else by_sequence.prefill
                out[rows] = compute(query[rows], *seen, mask)
            return out

        return run

    return [call(table) for table in cache.tables]


class WindowPart(NamedTuple):
    """Rows of the queries, the blocks that they see, of which ``skip`` places lie before what they
    see and which end at ``stop``, and the mask."""

    rows: slice
    blocks: slice
    skip: int
    stop: int
    mask: Tensor | None


def _part(piece: by_sequence.Piece, shift: int, window: int, like: Tensor) -> WindowPart:
    """A piece of a sequence whose place 0 would be row ``shift``."""
    start, stop, first = piece
    before = first // BLOCK * BLOCK
    mask = None
    if stop - start > 1 and (start > first or stop - first > window):
        mask = by_sequence.additive_mask(start, stop, 0, like, window=Window(window), first=first)
    rows, blocks = slice(start + shift, stop + shift), slice(before // BLOCK, -(-stop // BLOCK))
    return WindowPart(rows, blocks, first - before, stop - before, mask)


def gathered(query: Tensor, cache: PagedCache, window: int) -> list[Callable[[], Tensor]]:
    """The last resort on CUDA: the blocks of equal windows gathered, and a mask for the places that
    lie outside."""
    heads, attend = cache.heads, torch.nn.functional.scaled_dot_product_attention
    batch, length = len(cache.lengths), cache.lengths[0]
    rows = query.view(batch, heads.kv, heads.q // heads.kv, heads.size)
    first = max(0, length - window)
    skipped, stop = first // BLOCK, blocks_for([length])
    places = torch.arange(skipped * BLOCK, stop * BLOCK, device=query.device)
    mask = ((places >= first) & (places < length))[None, None, None, :]

    def call(table: Tensor) -> Callable[[], Tensor]:
        flat = table[:, skipped:stop].flatten()

        def run() -> Tensor:
            k, v = gather_all(cache, flat, query)
            return attend(rows, k, v, attn_mask=mask).view_as(query)

        return run

    return [call(table) for table in cache.tables]


DecodeWay = Callable[[Tensor, PagedCache, int], list[Callable[[], Tensor]]]

DECODE_WAYS: tuple[tuple[str, DecodeWay], ...] = (
    (paged_flashinfer.NAME, paged_flashinfer.decode_calls),
    (paged_flash.NAME, paged_flash.decode_calls),
    ("gathered window and SDPA", gathered),
)


def _decode_candidates(
    arena: Arena, query: Tensor, cache: PagedCache, window: int, precision: str
) -> Iterator[HeadsCandidate]:
    for name, way in DECODE_WAYS:
        question = (name, "window", cache.heads, precision)
        yield HeadsCandidate(
            name,
            lambda way=way: way(query, cache, window),  # type: ignore[misc]
            lambda way=way, question=question: arena.once(  # type: ignore[misc]
                question, lambda: decode_agrees(way, arena, cache.heads, precision)
            ),
        )


def decode_agrees(way: DecodeWay, arena: Arena, heads: Heads, precision: str) -> bool:
    """Whether a kernel gives the result of dense attention over the window, of a sequence shorter
    than it and of a longer one."""
    for length in (50, 131):
        cache = make_cache(arena, (length,) * 3, heads, precision, copies=2)
        query = make_query(arena, 3, heads, precision).clone()
        for turn, call in enumerate(way(query, cache, 100)):
            right = reference(query, cache, turn, 100)
            if not close(call().view_as(right), right, TOLERANCE[precision]):
                return False
    return True


# Prompts


def _prefill(point: BenchPoint, arena: Arena) -> BenchWork:
    heads, window = _heads(point), point.size("window")
    batch, tokens, context = (point.size(name) for name in ("batch", "tokens", "context"))
    if arena.device.facts.kind == "cpu":
        cache = make_cache(arena, (context + tokens,) * batch, heads, point.precision)
        query = arena.take((batch * tokens, heads.q, heads.size), point.precision)[0]
        before = stored_before(arena, point.precision)
        return BenchWork(one_by_one(query, cache, window), NAME, before=before)
    operands = make_operands(arena, batch, tokens, context, heads, point.precision)
    name, calls = first_right(
        _prefill_candidates(arena, operands, batch, window, heads, point.precision)
    )
    return BenchWork(calls, name)


def masked(
    query: Tensor, keys: Tensor, values: Tensor, batch: int, window: int
) -> Callable[[], Tensor]:
    """The last resort on CUDA: a mask over all tokens and their contexts."""
    attend = torch.nn.functional.scaled_dot_product_attention
    tokens, whole = query.shape[0] // batch, keys.shape[0] // batch
    q, k, v = (
        part.view(batch, -1, part.shape[1], part.shape[2]).transpose(1, 2)
        for part in (query, keys, values)
    )
    own = torch.arange(whole - tokens, whole, device=query.device)[:, None]
    places = torch.arange(whole, device=query.device)
    mask = (places <= own) & (places > own - window)
    grouped = q.shape[1] != k.shape[1]
    return lambda: attend(q, k, v, attn_mask=mask, enable_gqa=grouped).transpose(1, 2)


PrefillWay = Callable[[Tensor, Tensor, Tensor, int, int], Callable[[], Tensor]]

PREFILL_WAYS: tuple[tuple[str, PrefillWay], ...] = (
    (paged_flash.NAME, paged_flash.prefill_call),
    ("SDPA, masked", masked),
)


def _prefill_candidates(
    arena: Arena, operands: Operands, batch: int, window: int, heads: Heads, precision: str
) -> Iterator[HeadsCandidate]:
    for name, way in PREFILL_WAYS:
        question = (name, "window prefill", heads, precision)
        yield HeadsCandidate(
            name,
            lambda way=way: [way(*one, batch, window) for one in operands],  # type: ignore[misc]
            lambda way=way, question=question: arena.once(  # type: ignore[misc]
                question, lambda: prefill_agrees(way, arena, heads, precision)
            ),
        )


def prefill_agrees(way: PrefillWay, arena: Arena, heads: Heads, precision: str) -> bool:
    """Whether a way gives the result of dense attention, for a whole prompt and for a chunk."""
    for tokens, context in ((57, 0), (21, 50)):
        ((query, keys, values), *_) = make_operands(arena, 2, tokens, context, heads, precision)
        result = way(query, keys, values, 2, 30)().reshape(2, tokens, heads.q, heads.size)
        for i in range(2):
            q = query.view(2, tokens, heads.q, -1)[i]
            k, v = (part.view(2, -1, heads.kv, heads.size)[i] for part in (keys, values))
            right = dense_attention(q, k, v, 30)
            if not close(result[i], right, prefill_attention.TOLERANCE[precision]):
                return False
    return True
