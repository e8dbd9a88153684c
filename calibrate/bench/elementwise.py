"""Measures the operators around products and attention, all of which only move data.

Norms with their residual, rotary embedding, the write to the KV cache, the gated activation, the
embedding look-up, quantisation to 8 bits, and sampling: an operator each, since their costs differ
severalfold. ``bytes`` is the least a fused kernel must move, as the simulator counts it: an
implementation in several kernels shows as a lower bandwidth. On CUDA the operators are compiled by
``torch.compile`` where it works, elsewhere they run as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calibrate.bench import of_model, vllm_cpu
from calibrate.bench.arena import Arena, dtype
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Kernels, Rows, Scope, element
from calibrate.bench.heads import HeadsCandidate, first_right
from calibrate.lazy_torch import Tensor, optional, torch

LOGIT_BYTES = 4
FP8_LARGEST = 448.0
EPSILON = 1e-6
MOST_COMPILED = 32
"""Versions of one function that PyTorch may compile: for each type, for single rows, for operands
that begin their pool. Past its usual 8 it refuses."""

SAMPLED_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

PASSES = {"norm": 4.0, "activation": 3.0, "rotary": 2.0, "kv_write": 2.0, "embedding": 2.0}
"""Times that each element of the width is read or written: a norm reads input and residual and
writes both, the activation reads gate and up and writes their product. The width of a write to the
cache is that of keys and values together."""

CACHED_TOKENS = 8192
"""Tokens of the cache that new keys and values are written into, at places that follow no order."""


def stream_point(operator: str, precision: str, rows: int, width: int) -> BenchPoint:
    """An operator of ``PASSES`` over ``rows`` x ``width`` elements."""
    traffic = PASSES[operator] * rows * width * element(precision)
    shape = {"m": rows, "k": width, "bytes": traffic}
    memory = 2 * traffic + WORKSPACE
    return BenchPoint(operator, precision, shape, traffic, 0.0, memory)


def quantise_point(rows: int, width: int) -> BenchPoint:
    """16-bit activations read, 8-bit ones written."""
    traffic = 3.0 * rows * width
    shape = {"m": rows, "k": width, "bytes": traffic}
    return BenchPoint("quantise", "fp8", shape, traffic, 0.0, 2 * traffic + WORKSPACE)


def sampling_point(rows: int, vocabulary: int) -> BenchPoint:
    """Logits in 32 bits read and written once more, as the simulator counts it."""
    traffic = 2.0 * LOGIT_BYTES * rows * vocabulary
    shape = {"m": rows, "n": vocabulary, "bytes": traffic}
    return BenchPoint("sampling", "fp32", shape, traffic, 0.0, 3 * traffic + WORKSPACE)


class Elementwise:
    """Operators that move data."""

    shares: Mapping[str, float] = {
        **{"norm": 0.4, "rotary": 0.3, "kv_write": 0.3, "activation": 0.5, "embedding": 0.3},
        **{"quantise": 0.7, "sampling": 0.4},
    }

    def __init__(self, kernels: Kernels = "torch") -> None:
        self._own = OWN[kernels]

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Each operator at the widths of the chosen models."""
        hidden = sorted({model.hidden_size for model in scope.models} | {1024, 4096, 8192})
        own = [each for model in scope.models for each in of_model.widths(model)]
        inner, heads, cached = (
            sorted({width for name, width in own if name == operator} | extra)
            for operator, extra in (("activation", set()), ("rotary", set()), ("kv_write", {1024}))
        )
        widths = {"norm": hidden, "activation": inner, "rotary": heads, "embedding": hidden}
        widths["kv_write"] = cached
        for precision in scope.sixteen_bit():
            for operator, chosen in widths.items():
                for width in chosen:
                    for rows in Rows().values:
                        yield stream_point(operator, precision, rows, width)
        if "fp8" in scope.precisions:
            for width in sorted({*hidden, *inner}):
                for rows in Rows().values:
                    yield quantise_point(rows, width)
        for vocabulary in sorted({model.vocab_size for model in scope.models}):
            for rows in SAMPLED_ROWS:
                yield sampling_point(rows, vocabulary)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Inputs in turn; results are written in place or to fresh memory, as the operator does."""
        if point.operator == "quantise":
            function, operands = _quantise(arena, point)
        elif point.operator == "sampling":
            function, operands = _sampling(arena, point)
        else:
            makers = {
                "norm": _norm,
                "activation": _activation,
                "rotary": _rotary,
                "embedding": _embedding,
                "kv_write": _kv_write,
            }
            function, operands = makers[point.operator](arena, point)
        if (own := self._own.get(point.operator)) is not None:
            vllm_cpu.operators()  # loaded once
            return BenchWork(_calls(own, operands), vllm_cpu.NAME)
        name, calls = first_right(_ways(arena, function, operands))
        before = rotary_call(arena, point.precision) if point.operator == "kv_write" else None
        return BenchWork(calls, name, before=before)


Function = Callable[..., Any]

OWN: Mapping[Kernels, Mapping[str, Function]] = {
    "torch": {},
    "vllm": {"norm": vllm_cpu.norm, "activation": vllm_cpu.gated},
}
"""The engine's own operators, on the operands of PyTorch's."""
Made = tuple[Function, Sequence[tuple[Tensor, ...]]]


def _ways(
    arena: Arena, function: Function, operands: Sequence[tuple[Tensor, ...]]
) -> Iterator[HeadsCandidate]:
    best = compiled(arena, function)
    if best is not function:
        yield HeadsCandidate("torch.compile", lambda: _calls(best, operands))
    yield HeadsCandidate("torch", lambda: _calls(function, operands))


def compiled(arena: Arena, function: Function) -> Function:
    """The function as one kernel where that is possible (compiled when it is first called, once for
    all shapes), otherwise as it is."""
    if arena.device.facts.kind != "cuda" or optional("triton") is None:
        return function
    torch._dynamo.config.recompile_limit = MOST_COMPILED
    made: Function = torch.compile(function, dynamic=True, fullgraph=True)
    return made


def _calls(
    function: Function, operands: Sequence[tuple[Tensor, ...]]
) -> list[Callable[[], object]]:
    return [lambda given=given: function(*given) for given in operands]  # type: ignore[misc]


def norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The sum with the residual, and the RMS norm of it; returns both."""
    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, EPSILON), total


def store(keys: Tensor, values: Tensor, slots: Tensor, new: Tensor) -> None:
    """Put new keys and values, side by side in ``new``, at their slots of the cache."""
    first, second = new.chunk(2, dim=1)
    keys.index_copy_(0, slots, first)
    values.index_copy_(0, slots, second)


def gated(x: Tensor) -> Tensor:
    """SiLU of the first half times the second half."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of tokens x heads x size: pairs are an element of each half."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row in e4m3 with a scale of its own; returns both."""
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / FP8_LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def draw(logits: Tensor, generator: Any = None) -> Tensor:
    """A token for each row, drawn from its softmax by dividing by exponential noise."""
    shares = logits.softmax(dim=-1)
    noise = torch.empty_like(shares).exponential_(generator=generator)
    return shares.div_(noise).argmax(dim=-1)


def look_up(table: Tensor, tokens: Tensor) -> Tensor:
    """The embedding of each token."""
    return torch.nn.functional.embedding(tokens, table)


def _rows(
    point: BenchPoint, arena: Arena, widen: float = 1.0, parts: int = 1
) -> list[list[Tensor]]:
    """Inputs in turn: lists of ``parts`` tensors of rows x (width * widen)."""
    m, width = point.size("m"), int(point.size("k") * widen)
    precision = "bf16" if point.precision == "fp8" else point.precision
    copies = arena.copies(parts * m * width * element(precision))
    flat = arena.take((m, width), precision, copies * parts)
    return [flat[i * parts : (i + 1) * parts] for i in range(copies)]


def _norm(arena: Arena, point: BenchPoint) -> Made:
    (weight,) = arena.take((point.size("k"),), point.precision)
    return norm, [(x, y, weight) for x, y in _rows(point, arena, parts=2)]


def _activation(arena: Arena, point: BenchPoint) -> Made:
    return gated, [(x,) for (x,) in _rows(point, arena, widen=2)]


def _rotary(arena: Arena, point: BenchPoint) -> Made:
    m, width = point.size("m"), point.size("k")
    size = math.gcd(width, 64)
    angles = torch.rand(m, 1, size // 2, device=arena.device.torch_name) * 6.28
    cos, sin = (f(angles).to(dtype(point.precision)) for f in (torch.cos, torch.sin))
    return rotate, [(x.view(m, width // size, size), cos, sin) for (x,) in _rows(point, arena)]


def rotary_call(arena: Arena, precision: str) -> Callable[[], object]:
    """Rotates a few heads: the step of a pass before it writes to the cache."""
    function, operands = _rotary(arena, stream_point("rotary", precision, 1, 128))
    return lambda: function(*operands[0])


def store_call(arena: Arena, precision: str) -> Callable[[], object]:
    """The steps of a pass before attention, with a token's write to the cache."""
    turn = rotary_call(arena, precision)
    function, operands = _kv_write(arena, stream_point("kv_write", precision, 1, 128))

    def run() -> None:
        turn()
        function(*operands[0])

    return run


def _embedding(arena: Arena, point: BenchPoint) -> Made:
    m, width = point.size("m"), point.size("k")
    entries = max(2048, int(arena.turnover / (width * element(point.precision))))
    (table,) = arena.take((entries, width), point.precision)
    where = arena.device.torch_name
    return look_up, [(table, torch.randint(entries, (m,), device=where)) for _ in range(16)]


def _kv_write(arena: Arena, point: BenchPoint) -> Made:
    m, width = point.size("m"), point.size("k") // 2
    places = max(CACHED_TOKENS, m)
    keys, values = arena.take((places, width), point.precision, 2, pool="kv")
    return store, [
        (keys, values, arena.shuffled(places)[:m].long(), new) for (new,) in _rows(point, arena)
    ]


def _quantise(arena: Arena, point: BenchPoint) -> Made:
    return quantise, [(x,) for (x,) in _rows(point, arena)]


def _sampling(arena: Arena, point: BenchPoint) -> Made:
    m, n = point.size("m"), point.size("n")
    return draw, [(x,) for x in arena.take((m, n), "fp32", arena.copies(m * n * LOGIT_BYTES))]
