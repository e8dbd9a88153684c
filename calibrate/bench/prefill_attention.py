"""Measures causal attention of whole prompts, and of a chunk on top of tokens already cached.

``batch`` prompts with ``tokens`` new tokens each, ``context`` tokens of each cached before them.
Queries of a chunk see the whole cache and the tokens of the chunk before them. On CUDA PyTorch's
variable-length flash attention is timed where it is available and correct, otherwise
``scaled_dot_product_attention``; on a CPU a gather from a paged cache and that, sequence by
sequence. ``kernel`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calibrate.bench import by_sequence, paged_flash, vllm_cpu
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
from calibrate.bench.paged import PagedCache, blocks_for, make_cache
from calibrate.lazy_torch import Tensor, optional, torch

BATCHES = (1, 2, 4, 8, 16)
TOKENS = (16, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768)
CHUNKS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
CHECKS = (2, 3, 4, 5, 9)
"""Tokens of a sequence whose drafts are checked: attention by sequence takes them as a chunk."""

CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
MOST_TOKENS = 65536
"""Tokens of all prompts together at most; no engine takes more in one pass."""

TOLERANCE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 2e-2}
MATERIALISED = 4
"""A CPU keeps one mask entry in 4 bytes for each pair of a chunk's tokens and its context."""


def point(
    precision: str, batch: int, tokens: int, context: int, heads: Heads, weight: float = 1.0
) -> BenchPoint:
    """One layer's attention: keys and values of context and prompt once, queries, outputs."""
    shape = {
        "batch": batch,
        "tokens": tokens,
        "context": context,
        "q_heads": heads.q,
        "kv_heads": heads.kv,
        "head_dim": heads.size,
    }
    stored = element(precision)
    kept = 2.0 * batch * (context + tokens) * heads.kv * heads.size * stored
    queries = 2.0 * batch * tokens * heads.q * heads.size * stored
    pairs = tokens * context + tokens * (tokens + 1) / 2
    flops = 4.0 * batch * heads.q * heads.size * pairs
    mask = tokens * (context + tokens) * MATERIALISED if context else 0
    memory = kept + 2 * queries + mask + WORKSPACE
    return BenchPoint("prefill_attention", precision, shape, kept + queries, flops, memory, weight)


class PrefillAttention:
    """Attention of prompts and of chunks of them."""

    shares: Mapping[str, float] = {"prefill_attention": 3.0}

    def __init__(self, kernels: Kernels = "torch") -> None:
        self._kernels = kernels

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Whole prompts in batches, then single chunks behind a context."""
        for precision in scope.sixteen_bit():
            for heads, weight in layouts(scope).items():
                for tokens in (n for n in TOKENS if n <= scope.longest):
                    for batch in BATCHES:
                        if batch * tokens <= MOST_TOKENS:
                            yield point(precision, batch, tokens, 0, heads, weight)
                for tokens in (*CHECKS, *CHUNKS) if scope.kind == "cpu" else CHUNKS:
                    for context in (n for n in CONTEXTS if n + tokens <= scope.longest):
                        yield point(precision, 1, tokens, context, heads, weight)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Queries, keys and values in turn, as the projections leave them: token by token."""
        heads = Heads(*(point.size(name) for name in ("q_heads", "kv_heads", "head_dim")))
        batch, tokens, context = (point.size(name) for name in ("batch", "tokens", "context"))
        if self._kernels == "vllm":
            lengths = (context + tokens,) * batch
            return vllm_cpu.attention(arena, heads, point.precision, (tokens,) * batch, lengths)
        if arena.device.facts.kind == "cpu":
            cache = make_cache(arena, (context + tokens,) * batch, heads, point.precision)
            query = arena.take((batch * tokens, heads.q, heads.size), point.precision)[0]
            before = store_call(arena, point.precision)
            return BenchWork(one_by_one(query, cache), by_sequence.NAME, before=before)
        operands = make_operands(arena, batch, tokens, context, heads, point.precision)
        name, calls = first_right(candidates(arena, operands, batch, point.precision))
        return BenchWork(calls, name)


def one_by_one(query: Tensor, cache: PagedCache) -> list[Callable[[], Tensor]]:
    """The engine's computation on a CPU for the last tokens of each sequence of ``cache``, of
    which ``query`` has the same number for each. The mask is the pass's, not the layer's."""
    tokens = len(query) // len(cache.lengths)
    out, gather = torch.empty_like(query), by_sequence.Gather()
    spans = [
        (
            slice(i * tokens, (i + 1) * tokens),
            blocks_for([length]),
            length,
            by_sequence.additive_mask(length - tokens, length, 0, query)
            if length > tokens
            else None,
        )
        for i, length in enumerate(cache.lengths)
    ]

    def call(table: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            for own, (rows, blocks, length, mask) in zip(table, spans, strict=True):
                keys, values = gather(cache.keys, cache.values, own[:blocks], length)
                out[rows] = by_sequence.prefill(query[rows], keys, values, mask)
            return out

        return run

    return [call(table) for table in cache.tables]


Operands = list[tuple[Tensor, Tensor, Tensor]]
Maker = Callable[[Tensor, Tensor, Tensor, int], Callable[[], Tensor]]


def make_operands(
    arena: Arena, batch: int, tokens: int, context: int, heads: Heads, precision: str
) -> Operands:
    """Queries (all tokens x heads x size), keys and values (all of each context x KV heads x
    size), as often as it takes for keys and values to outgrow the cache."""
    kept = batch * (context + tokens)
    size = 2 * kept * heads.kv * heads.size * element(precision)
    copies = arena.copies(size)
    parts = arena.take((kept, heads.kv, heads.size), precision, 2 * copies, pool="kv")
    query = arena.take((batch * tokens, heads.q, heads.size), precision)[0]
    return [(query, parts[2 * i], parts[2 * i + 1]) for i in range(copies)]


def candidates(
    arena: Arena, operands: Operands, batch: int, precision: str
) -> Iterator[HeadsCandidate]:
    """The ways to compute it, best first."""
    ways: list[tuple[str, Maker]] = [("SDPA", dense)]
    if arena.device.facts.kind == "cuda":
        ways.insert(0, (paged_flash.NAME, paged_flash.prefill_call))
    query, keys, _ = operands[0]
    heads = Heads(query.shape[1], keys.shape[1], query.shape[2])
    for name, make in ways:
        yield HeadsCandidate(
            name,
            lambda make=make: [make(q, k, v, batch) for q, k, v in operands],  # type: ignore[misc]
            lambda name=name, make=make: arena.once(  # type: ignore[misc]
                (name, "prefill", heads, precision),
                lambda: agrees(make, arena, heads, precision),
            ),
        )


def dense(query: Tensor, keys: Tensor, values: Tensor, batch: int) -> Callable[[], Tensor]:
    """PyTorch's own choice of kernel; a chunk's mask is aligned to the end of its context."""
    attend = torch.nn.functional.scaled_dot_product_attention
    tokens, context = query.shape[0] // batch, keys.shape[0] // batch
    q, k, v = (
        part.view(batch, -1, part.shape[1], part.shape[2]).transpose(1, 2)
        for part in (query, keys, values)
    )
    grouped = q.shape[1] != k.shape[1]
    if tokens == context:
        return lambda: attend(q, k, v, is_causal=True, enable_gqa=grouped)
    bias = optional("torch.nn.attention.bias")
    if bias is None:
        raise UnsupportedError("this PyTorch has no mask aligned to the end of a context")
    mask = bias.causal_lower_right(tokens, context)
    if query.device.type == "cpu":
        mask = mask._materialize(query.device)
    return lambda: attend(q, k, v, attn_mask=mask, enable_gqa=grouped)


def agrees(make: Maker, arena: Arena, heads: Heads, precision: str) -> bool:
    """Whether a way gives the result of dense attention, for a whole prompt and for a chunk."""
    for tokens, context in ((37, 0), (21, 50)):
        ((query, keys, values), *_) = make_operands(arena, 2, tokens, context, heads, precision)
        result = make(query, keys, values, 2)()
        if result.dim() == 4:
            result = result.transpose(1, 2)
        result = result.reshape(2, tokens, heads.q, heads.size)
        for i in range(2):
            q = query.view(2, tokens, heads.q, -1)[i]
            k, v = (part.view(2, -1, heads.kv, heads.size)[i] for part in (keys, values))
            if not close(result[i], dense_attention(q, k, v), TOLERANCE[precision]):
                return False
    return True
