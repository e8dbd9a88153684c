"""Provides vLLM's own CPU operators as calls to be timed.

Products run over matrices that were packed once, as vLLM does when it loads a model; attention runs
over its paged cache, all sequences in one call, prompts and decodes alike. The metadata about the
sequences of a call is computed once for a pass, not for each layer, so it is not timed here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from calibrate.bench.arena import Arena, dtype
from calibrate.bench.base import BenchPoint, BenchWork, UnsupportedError, element
from calibrate.bench.heads import Heads, close, dense_attention
from calibrate.lazy_torch import Tensor, torch
from calibrate.observers import lazy_vllm
from sim.errors import UsageError

NAME = "vLLM on a CPU"
BLOCK = 32
"""Tokens per block: its kernels take multiples of that."""

MOST_PACKED = 3 * 2**30
"""Bytes of packed matrices that are kept for the next point of their shape."""

PRIMITIVES = 32
"""Row counts that vLLM lets each matrix keep a kernel for."""

TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2, "fp16": 1e-2}
EPSILON = 1e-6

Call = Callable[[], object]


def operators() -> Any:
    """vLLM's operators; UnsupportedError where they are not installed, or not for a CPU."""
    try:
        found = lazy_vllm.module("vllm._custom_ops")
    except UsageError as error:
        raise UnsupportedError(str(error)) from None
    if not hasattr(torch.ops._C, "cpu_attention_with_kv_cache"):
        raise UnsupportedError("this vLLM has no operators for a CPU")
    return found


class Products:
    """Products of activations and matrices that take turns, ``turnover`` bytes of them."""

    def __init__(self, turnover: float) -> None:
        self._turnover = turnover
        self._packed: OrderedDict[tuple[int, int, str], list[Any]] = OrderedDict()

    def work(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """``m`` rows through each of the packed matrices."""
        m, n, k = (point.size(name) for name in ("m", "n", "k"))
        ops, handlers = operators(), self._handlers(arena, n, k, point.precision)
        (a,) = arena.take((m, k), point.precision)
        product = ops.onednn_mm
        return _warm([_bound(product, each, a, None) for each in handlers], f"{NAME}: oneDNN")

    def _handlers(self, arena: Arena, n: int, k: int, precision: str) -> list[Any]:
        key, size = (n, k, precision), n * k * element(precision)
        if key in self._packed:
            self._packed.move_to_end(key)
            return self._packed[key]
        copies = max(1, round(min(self._turnover, arena.turnover) / size))
        while self._packed and self._held() + copies * size > MOST_PACKED:
            self._packed.popitem(last=False)
        ops = operators()
        weights = arena.take((n, k), precision, copies)
        self._packed[key] = [ops.create_onednn_mm(w.t(), PRIMITIVES) for w in weights]
        return self._packed[key]

    def _held(self) -> float:
        return sum(len(kept) * n * k * element(p) for (n, k, p), kept in self._packed.items())


def attention(
    arena: Arena, heads: Heads, precision: str, new: Sequence[int], lengths: Sequence[int]
) -> BenchWork:
    """One layer's attention of the last ``new`` tokens of sequences of ``lengths`` tokens."""
    if not arena.once((NAME, heads, precision), lambda: _agrees(arena, heads, precision)):
        raise UnsupportedError(f"{NAME}: wrong result")
    calls, _ = _attention_calls(arena, heads, precision, new, lengths)
    return _warm(calls, f"{NAME}: attention over its paged cache")


def _isa(heads: Heads, precision: str) -> str:
    """Which instructions its attention is compiled for, as vLLM chooses."""
    backend = lazy_vllm.module("vllm.v1.attention.backends.cpu_attn")
    return str(backend._get_attn_isa(dtype(precision), BLOCK, heads.size))


def _attention_calls(
    arena: Arena, heads: Heads, precision: str, new: Sequence[int], lengths: Sequence[int]
) -> tuple[list[Call], tuple[Tensor, Tensor, list[Tensor], list[Tensor]]]:
    """Calls that take turns on parts of the cache; queries, cache, tables and results."""
    ops = operators()
    counts = [-(-length // BLOCK) for length in lengths]
    each = sum(counts)
    size = 2.0 * each * BLOCK * heads.kv * heads.size * element(precision)
    copies = arena.copies(size)
    shape = (each * copies, heads.kv, 2 * BLOCK, heads.size)
    (cache,) = arena.take(shape, precision, pool="kv")
    keys, values = cache.chunk(2, dim=2)
    (query,) = arena.take((sum(new), heads.q, heads.size), precision)
    starts = torch.tensor([0, *new]).cumsum(0, dtype=torch.int32)
    held = torch.tensor(lengths, dtype=torch.int32)
    plan = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(lengths), num_heads=heads.q, num_kv_heads=heads.kv, head_dim=heads.size,
        seq_lens=held, dtype=dtype(precision), query_start_loc=starts, causal=True,
        sliding_window_size=-1, isa=_isa(heads, precision), enable_kv_split=True,
    )  # fmt: skip
    pad = torch.nn.utils.rnn.pad_sequence
    tables = [
        pad(own.int().split(counts), batch_first=True)
        for own in arena.shuffled(each * copies).split(each)
    ]
    outs = [torch.empty_like(query) for _ in tables[:2]]

    def call(table: Tensor, out: Tensor) -> Call:
        return lambda: ops.cpu_attention_with_kv_cache(
            query=query, key_cache=keys, value_cache=values, output=out, query_start_loc=starts,
            seq_lens=held, scale=heads.size**-0.5, causal=True, alibi_slopes=None,
            sliding_window=-1, block_table=table, softcap=0.0, scheduler_metadata=plan, s_aux=None,
        )  # fmt: skip

    calls = [call(table, outs[i % len(outs)]) for i, table in enumerate(tables)]
    return calls, (query, cache, tables, outs)


def _agrees(arena: Arena, heads: Heads, precision: str) -> bool:
    """Whether its attention gives the result of dense attention, decoding and after a context. Keys
    and values are put into the cache by vLLM, whose order inside a block is internal to it."""
    ops, new, lengths = operators(), (1, 37, 21), (70, 37, 90)
    calls, (query, cache, tables, outs) = _attention_calls(arena, heads, precision, new, lengths)
    rows = torch.randn(2, sum(lengths), heads.kv, heads.size).to(dtype(precision))
    slots = [
        table.long().repeat_interleave(BLOCK)[:length] * BLOCK + torch.arange(length) % BLOCK
        for table, length in zip(tables[0], lengths, strict=True)
    ]
    keys, values = cache.chunk(2, dim=2)
    ops.cpu_attn_reshape_and_cache(
        rows[0], rows[1], keys, values, torch.cat(slots), _isa(heads, precision)
    )
    calls[0]()
    wanted = [
        dense_attention(*parts)
        for parts in zip(
            query.split(new), rows[0].split(lengths), rows[1].split(lengths), strict=True
        )
    ]
    return close(outs[0], torch.cat(wanted), TOLERANCE[precision])


def norm(x: Tensor, residual: Tensor, weight: Tensor) -> object:
    """The sum with the residual, and the RMS norm of it, both in place."""
    return torch.ops._C.fused_add_rms_norm(x, residual, weight, EPSILON)


def gated(x: Tensor) -> object:
    """SiLU of the first half times the second half."""
    out = torch.empty((x.shape[0], x.shape[1] // 2), dtype=x.dtype)
    torch.ops._C.silu_and_mul(out, x)
    return out


def _warm(calls: list[Call], kernel: str) -> BenchWork:
    """The calls, each made once: oneDNN makes a kernel for each matrix when it first meets a number
    of rows, and memory that was not touched for long is slow to come back."""
    for call in calls:
        call()
    return BenchWork(calls, kernel)


def _bound(function: Callable[..., object], *given: object) -> Call:
    return lambda: function(*given)
