"""Kernels that do one thing after the other: a CPU's, or an engine's that loops over sequences.

There are no tiles spread over many processors here. Work is proportional to FLOP and bytes, a call
costs what it costs, and a few rows at a time use vector units badly (``half``, ``least``).
Attention first copies keys and values out of their blocks and then multiplies, so its parts add up.
Seconds, bytes and FLOP.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import decode_attention, gemm, prefill_attention
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.model import precision_bytes
from sim.profile import KernelFit

NAME = "serial"
"""How a fit says that it is one of these."""

PRODUCT = (
    Parameter("compute", 1e-3, 0.8, 1.2, "1", "share of the peak FLOP/s with many rows"),
    Parameter("bandwidth", 1e-2, 0.6, 1.5, "1", "share of the peak bandwidth"),
    Parameter("latency", 1e-8, 5e-6, 1e-2, "s", "a product, however small"),
    Parameter("half", 1e-3, 4.0, 512.0, "rows", "rows that run at half the rate of many"),
    Parameter("norm", 1.0, 2.0, 12.0, "1", "exponent that joins the two: 1 adds them up"),
)
ATTENTION = (
    Parameter("floor", 1e-8, 2e-5, 1e-2, "s", "a pass, however little it reads"),
    Parameter("sequence", 1e-9, 2e-5, 1e-2, "s", "each sequence's own calls"),
    Parameter("share", 1e-2, 0.4, 2.0, "1", "share of the bandwidth at which KV is copied out"),
    Parameter("compute", 1e-4, 0.3, 1.2, "1", "share of the peak FLOP/s"),
)
CHUNK = (
    *ATTENTION,
    Parameter("least", 1.0, 16.0, 512.0, "tokens", "fewer new tokens take as long as these"),
    Parameter("softmax", 0.1, 20.0, 1024.0, "elements", "exponentials, as a wider head"),
    Parameter("block", 1.0, 256.0, 8192.0, "tokens", "queries that share the keys they skip"),
    Parameter("masked", 0.2, 1.0, 8.0, "1", "time of a pair on top of a context, over one without"),
)


def product(precision: str) -> Form:
    """Matrix products in ``precision``."""
    seconds = partial(_product_seconds, precision)
    usual = gemm.form(precision)
    return Form(
        *("gemm", usual.variables, usual.group, PRODUCT, seconds),
        gemm.coordinates,
        gemm.regime,
    )


def product_parts(precision: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> gemm.Parts:
    """Seconds of arithmetic, of memory traffic, of the call, and together."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    widths = gemm.WIDTHS[precision]
    moved = widths.weight * n * k + widths.input * m * k + widths.output * m * n
    compute = 2 * (m + p["half"]) * n * k / (ceilings.peak * p["compute"])
    memory = moved / (ceilings.bandwidth * p["bandwidth"])
    joined = (compute ** p["norm"] + memory ** p["norm"]) ** (1 / p["norm"])
    rest = np.asarray(p["latency"])
    return gemm.Parts(compute, memory, rest, joined + rest)


def _product_seconds(precision: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return product_parts(precision, p, shape, ceilings).total


def decode(precision: str) -> Form:
    """Decode attention over a KV cache in ``precision``, sequence by sequence."""
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        copied = decode_attention.read_bytes(shape, kept) / (ceilings.bandwidth * p["share"])
        multiplied = decode_attention.flops(shape) / (ceilings.peak * p["compute"])
        total: Floats = p["floor"] + shape["batch"] * p["sequence"] + copied + multiplied
        return total

    usual = decode_attention.form(precision)
    return Form(
        *("decode_attention", usual.variables, usual.group, ATTENTION, seconds),
        decode_attention.coordinates,
        decode_attention.regime,
    )


def prefill(precision: str) -> Form:
    """Attention of new tokens of prompts, sequence by sequence.

    A lone prompt skips the keys that causality hides from a whole ``block`` of queries. On top of a
    context all pairs of new tokens and keys are multiplied, under a mask that has a cost of its own
    (``masked``).
    """
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        copied = prefill_attention.read_bytes(shape, kept) / (ceilings.bandwidth * p["share"])
        new, past = shape["tokens"], shape["context"]
        seen = np.where(past > 0, past + new, np.minimum(new, (new + p["block"]) / 2))
        pairs = shape["batch"] * np.maximum(new, p["least"]) * seen
        flops = 4 * pairs * np.where(past > 0, p["masked"], 1.0)
        heads = shape["q_heads"] * (shape["head_dim"] + p["softmax"])
        multiplied = flops * heads / (ceilings.peak * p["compute"])
        total: Floats = p["floor"] + shape["batch"] * p["sequence"] + copied + multiplied
        return total

    usual = prefill_attention.form(precision)
    return Form(
        *("prefill_attention", usual.variables, usual.group, CHUNK, seconds),
        _sizes,
        prefill_attention.regime,
    )


def _sizes(shape: Shape) -> dict[str, NDArray[np.float64]]:
    return {"tokens": np.log2(shape["tokens"])}


class SerialPrompts:
    """Prices chunks of one model in the event loop, as ``prompts.Prompts`` does for tiles."""

    def __init__(
        self,
        fit: KernelFit,
        ceilings: Ceilings,
        precision: str,
        q_heads: int,
        kv_heads: int,
        head_dim: int,
    ) -> None:
        p = fit.parameters
        self.floor = p["floor"]
        rate = ceilings.bandwidth * p["share"]
        kept = precision_bytes(precision)
        query = 2 * q_heads * head_dim * decode_attention.query_bytes(kept)
        self._sequence, self._least = p["sequence"], p["least"]
        self._masked, self._block = p["masked"], p["block"]
        self._per_query = query / rate
        self._per_key = 2 * kv_heads * head_dim * kept / rate
        width = head_dim + p["softmax"]
        self._per_pair = 4 * q_heads * width / (ceilings.peak * p["compute"])

    def work(self, tokens: int, context: int) -> tuple[float, float, float, float]:
        """What a chunk of ``tokens`` adds on top of ``context`` tokens that are cached: seconds of
        arithmetic and calls, none of a longest tile, of copying, none of writing."""
        if context:
            pairs = max(tokens, self._least) * (context + tokens) * self._masked
        else:
            pairs = max(tokens, self._least) * min(tokens, (tokens + self._block) / 2)
        return (
            self._sequence + pairs * self._per_pair,
            0.0,
            tokens * self._per_query + (context + tokens) * self._per_key,
            0.0,
        )

    def seconds(self, work: float, longest: float, reading: float, writing: float) -> float:
        """One layer's pass over chunks with these sums."""
        return self.floor + work + longest + reading + writing

    def correction(self, tokens: int, chunks: int) -> float:
        """There is no residual table to correct by."""
        return 1.0

    def alone(self, tokens: int) -> float:
        """One layer's pass over a single prompt of ``tokens`` with nothing cached before it."""
        return self.seconds(*self.work(tokens, 0))
