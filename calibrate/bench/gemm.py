"""Measures matrix products: ``m`` rows times an ``n`` x ``k`` weight, in every precision.

Shapes are the four projections and the LM head of real models, shared out over 1 to 8 GPUs, and a
grid in addition, so that a handful of widths does not dominate a fit. Weights take turns (they are
read from memory in every pass); inputs stay where they are, and on a GPU so do outputs. Weights lie
as ``n`` x ``k``, the inner dimension contiguous, as engines store them. bf16 results for quantised
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calibrate.bench.arena import Arena
from calibrate.bench.base import (
    WORKSPACE,
    BenchPoint,
    BenchWork,
    Scope,
    UnsupportedError,
    element,
    rows_for,
)
from calibrate.bench.of_model import products
from calibrate.bench.vllm_cpu import Products
from calibrate.dense import dense_layer, is_dense
from calibrate.lazy_torch import Tensor, torch
from sim.specs.model import ModelSpec

PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "int8", "int8-weights", "int4-weights")
GRID_N = (512, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 28672)
GRID_K = (512, 1024, 2048, 4096, 8192, 14336)
GRID_WEIGHT, HEAD_WEIGHT = 0.5, 0.7
HEAD_ROWS = 1024
"""Only positions that sample a token go through the LM head, so few rows matter there."""

INT4_GROUP = 128
INT8_ROWS = 32
"""``_int_mm`` on CUDA takes more than 16 rows, and shapes in eights."""

LINEAR = "torch.nn.functional.linear"
KERNELS = {"fp32": "torch.mm", "bf16": "torch.mm", "fp16": "torch.mm"}


def layer_shapes(model: ModelSpec, tensor_parallel: int) -> dict[str, tuple[int, int]]:
    """(n, k) of each matrix of one layer, and of the LM head, on one of the GPUs sharing a model.

    Empty if the heads cannot be shared out.
    """
    attention, mlp, _ = dense_layer(model)
    if attention.num_heads % tensor_parallel or mlp.intermediate_size % tensor_parallel:
        return {}
    query = attention.query_size // tensor_parallel
    kv = max(1, attention.num_kv_heads // tensor_parallel) * attention.head_dim
    inner = mlp.intermediate_size // tensor_parallel
    return {
        "qkv": (query + 2 * kv, model.hidden_size),
        "output": (model.hidden_size, query),
        "gate_up": ((mlp.mlp_matrices - 1) * inner, model.hidden_size),
        "down": (model.hidden_size, inner),
        "head": (-(-model.vocab_size // tensor_parallel), model.hidden_size),
    }


def matrices(model: ModelSpec, tensor_parallel: int) -> dict[str, tuple[int, int]]:
    """The matrices of layers of any kind that has benchmarks; those that are not dense are whole on
    one GPU, and their experts, which are multiplied together, are left out."""
    if is_dense(model):
        return layer_shapes(model, tensor_parallel)
    found = {f"matrix {number}": shape for number, shape in enumerate(products(model))}
    return found | {"head": (model.vocab_size, model.hidden_size)}


def point(precision: str, m: int, n: int, k: int, weight: float = 1.0) -> BenchPoint:
    """One product, with what it reads, writes and computes."""
    stored, moved = element(precision), 2.0
    if precision == "fp32":
        moved = 4.0
    inputs = element(precision) if precision in ("fp8", "int8") else moved
    traffic = n * k * stored + m * k * inputs + m * n * moved
    wide = 4.0 if precision == "int8" else moved
    memory = n * k * stored + m * k * inputs + m * n * wide + WORKSPACE
    return BenchPoint(
        "gemm", precision, {"m": m, "n": n, "k": k}, traffic, 2.0 * m * n * k, memory, weight
    )


class Gemm:
    """Products of activations and weights."""

    shares: Mapping[str, float] = {"gemm": 5.0}

    def __init__(self, engine: Products | None = None) -> None:
        """``engine`` multiplies in PyTorch's place where it is given."""
        self._engine = engine

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Layer shapes of the chosen models, then the grid."""
        shapes: dict[tuple[int, int], tuple[float, int]] = {}
        for model in scope.models:
            for gpus in scope.tensor_parallel if is_dense(model) else (1,):
                for name, shape in matrices(model, gpus).items():
                    head = name == "head"
                    shapes.setdefault(shape, (HEAD_WEIGHT, HEAD_ROWS) if head else (1.0, 2**31))
        for n in GRID_N if scope.kernels == "torch" else ():
            for k in GRID_K:
                shapes.setdefault((n, k), (GRID_WEIGHT, 2**31))
        for precision in (p for p in scope.precisions if p in PRECISIONS):
            for (n, k), (weight, most) in shapes.items():
                if precision in ("fp8", "int8", "int4-weights") and (n % 16 or k % INT4_GROUP):
                    continue
                for m in rows_for(scope.kind):
                    if m <= most:
                        yield point(precision, m, n, k, weight)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Weights in turn, one input, one output."""
        if self._engine is not None and point.precision in KERNELS:
            return self._engine.work(point, arena)
        m, n, k = (point.size(name) for name in ("m", "n", "k"))
        makers: dict[str, Callable[[Arena, int, int, int], tuple[list[Call], str]]] = {
            "fp8": _fp8,
            "int8": _int8,
            "int8-weights": _int8_weights,
            "int4-weights": _int4_weights,
        }
        if point.precision in makers:
            calls, kernel = makers[point.precision](arena, m, n, k)
        else:
            calls, kernel = _plain(arena, m, n, k, point.precision)
        return BenchWork(calls, kernel)


Call = Callable[[], object]


def _plain(arena: Arena, m: int, n: int, k: int, precision: str) -> tuple[list[Call], str]:
    (a,) = arena.take((m, k), precision)
    weights = arena.take((n, k), precision, arena.copies(n * k * element(precision)))
    if arena.device.facts.kind == "cpu":  # as the engine calls it, the result in new memory
        linear = torch.nn.functional.linear
        return [lambda w=w: linear(a, w) for w in weights], LINEAR  # type: ignore[misc]
    out, mm = arena.empty((m, n), precision), torch.mm
    return [_bound(mm, a, w.t(), out) for w in weights], KERNELS[precision]


def _bound(mm: Callable[..., object], a: Tensor, b: Tensor, out: Tensor) -> Call:
    return lambda: mm(a, b, out=out)


def _fp8(arena: Arena, m: int, n: int, k: int) -> tuple[list[Call], str]:
    """A product with both sides in e4m3 with one scale each; quantising the input is an operator of
    its own."""
    (a,) = arena.take((m, k), "fp8")
    weights = arena.take((n, k), "fp8", arena.copies(n * k))
    one = torch.ones((), dtype=torch.float32, device=arena.device.torch_name)
    scaled, wide = torch._scaled_mm, torch.bfloat16

    def call(b: Tensor) -> Call:
        return lambda: scaled(a, b, scale_a=one, scale_b=one, out_dtype=wide, use_fast_accum=True)

    return [call(w.t()) for w in weights], "torch._scaled_mm"


def _int8(arena: Arena, m: int, n: int, k: int) -> tuple[list[Call], str]:
    """int8 by int8 with 32-bit sums; few rows are padded where the kernel wants more."""
    padded = m
    if arena.device.facts.kind == "cuda":
        padded = max(INT8_ROWS, -(-m // 8) * 8)
    (a,) = arena.take((padded, k), "int8")
    weights = arena.take((n, k), "int8", arena.copies(n * k))
    product = torch._int_mm
    out = arena.empty((padded, n), "int32")
    return [_bound(product, a, w.t(), out) for w in weights], "torch._int_mm"


def _int8_weights(arena: Arena, m: int, n: int, k: int) -> tuple[list[Call], str]:
    """bf16 by int8 with a scale for each output column."""
    (a,) = arena.take((m, k), "bf16")
    (scales,) = arena.take((n,), "bf16")
    weights = arena.take((n, k), "int8", arena.copies(n * k))
    product = torch._weight_int8pack_mm

    def call(w: Tensor) -> Call:
        return lambda: product(a, w, scales)

    return [call(w) for w in weights], "torch._weight_int8pack_mm"


def _int4_weights(arena: Arena, m: int, n: int, k: int) -> tuple[list[Call], str]:
    """bf16 by int4 in groups of 128; any bits are a valid packing of some weights."""
    (a,) = arena.take((m, k), "bf16")
    (scales,) = arena.take((k // INT4_GROUP, n, 2), "bf16")
    copies = arena.copies(n * k / 2)
    if arena.device.facts.kind == "cpu":
        weights = arena.take((n, k // 2), "uint8", copies)
        product, name = torch.ops.aten._weight_int4pack_mm_for_cpu, "_weight_int4pack_mm_for_cpu"
    else:
        if torch.cuda.get_device_capability(arena.device.index) < (8, 0):
            raise UnsupportedError("int4 weights need compute capability 8.0")
        weights = arena.take((n // 8, k // 128, 32, 4), "int32", copies)
        product, name = torch._weight_int4pack_mm, "_weight_int4pack_mm"

    def call(w: Tensor) -> Call:
        return lambda: product(a, w, INT4_GROUP, scales)

    return [call(w) for w in weights], f"torch.{name}"
