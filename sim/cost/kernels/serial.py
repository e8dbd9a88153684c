"""Predicts kernels that do one thing after the other: a CPU's, or an engine's loop over sequences.

There are no tiles spread over many processors here. Work is proportional to FLOP and bytes, a call
costs what it costs, and a few rows at a time use vector units badly (``half``, ``least``). With a
single row, or very few, the weights are walked as they lie, row by row (``direct``); with more they
are copied into panels first, which takes as long as so many rows more (``half``). The library does
what is quicker.
Attention first copies keys and values out of their blocks and then multiplies, so its parts add up.
What outgrows the core's own cache takes longer by a byte (``near``, ``slow``), and results so large
that the system hands out fresh pages for them longer still (``large``, ``fresh``). Seconds, bytes
and FLOP.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import decode_attention, gemm, prefill_attention, stream
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

NAME = "serial"
"""How a fit says that it is one of these."""

NEVER_DIRECT = 1e-30
"""Share of the peak at which no product is computed row by row: of older profiles, in which all
products are by panels."""

PRODUCT = (
    Parameter("compute", 1e-3, 0.8, 1.2, "1", "share of the peak FLOP/s with many rows"),
    Parameter("bandwidth", 1e-2, 0.6, 1.5, "1", "share of the peak bandwidth"),
    Parameter("latency", 1e-8, 5e-6, 1e-2, "s", "a product, however small"),
    Parameter("column", 1e-13, 5e-9, 1e-5, "s", "each column of the weights, however short"),
    Parameter("half", 1e-3, 4.0, 512.0, "rows", "rows that run at half the rate of many"),
    Parameter(
        "direct",
        1e-4,
        0.1,
        1.2,
        "1",
        "share of the peak FLOP/s row by row, without panels",
        before=NEVER_DIRECT,
    ),
    Parameter("norm", 1.0, 2.0, 12.0, "1", "exponent that joins the two: 1 adds them up"),
)

NEAR = (
    Parameter("near", 1e4, 1e6, 1e9, "bytes", "what stays in the core's own cache"),
    Parameter("slow", 0.0, 0.5, 20.0, "1", "time added to a byte beyond it", log=False),
)

ATTENTION = (
    Parameter("floor", 1e-8, 2e-5, 1e-2, "s", "a pass, however little it reads"),
    Parameter("sequence", 1e-9, 2e-5, 1e-2, "s", "each sequence's own calls"),
    Parameter("share", 1e-2, 0.4, 4.0, "1", "share of the bandwidth at which KV is copied out"),
    Parameter("compute", 1e-4, 0.3, 4.0, "1", "share of the peak FLOP/s"),
    *NEAR,
)

CHUNK = (
    *ATTENTION,
    Parameter("head", 1e-9, 1e-6, 1e-2, "s", "each query head of a sequence"),
    Parameter("least", 0.1, 8.0, 512.0, "tokens", "queries that one more block of them costs"),
    Parameter("softmax", 0.1, 20.0, 1024.0, "elements", "exponentials, as a wider head"),
    Parameter("mask", 1e-13, 1e-10, 1e-7, "s", "each pair of a mask, which a context needs"),
    Parameter("pack", 1e-14, 1e-10, 1e-7, "s", "each number of the keys, for each query head"),
)

MOVER = (
    *stream.PARAMETERS,
    *NEAR,
    Parameter("large", 1e6, 6e7, 1e11, "bytes", "what the allocator keeps from call to call"),
    Parameter("fresh", 0.0, 1.0, 20.0, "1", "time added to a byte beyond it", log=False),
)

BLOCKS = ((0, 32), (192, 64), (768, 256))
"""New tokens from which PyTorch's kernel takes that many queries together."""

KEYS = 512
"""Keys that it takes together, of which those that causality hides are computed too."""

SUDDEN = 8
"""How suddenly an allocation becomes too large to be kept: a limit, met by tensors of a few
sizes."""


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
    panels = 2 * (m + p["half"]) * n * k / (ceilings.peak * p["compute"])
    by_rows = 2 * m * n * k / (ceilings.peak * p.get("direct", NEVER_DIRECT))
    compute = np.minimum(panels, by_rows)
    memory = moved / (ceilings.bandwidth * p["bandwidth"])
    joined = (compute ** p["norm"] + memory ** p["norm"]) ** (1 / p["norm"])
    rest = np.asarray(p["latency"] + n * p["column"])
    return gemm.Parts(compute, memory, rest, joined + rest)


def _product_seconds(precision: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return product_parts(precision, p, shape, ceilings).total


def decode(precision: str) -> Form:
    """Decode attention over a KV cache in ``precision``, sequence by sequence."""
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        read = decode_attention.read_bytes({**shape, "batch": np.ones(())}, kept)
        copied = read / (ceilings.bandwidth * p["share"]) * slowed(p, read)
        multiplied = decode_attention.flops(shape) / (ceilings.peak * p["compute"])
        total: Floats = p["floor"] + shape["batch"] * (p["sequence"] + copied) + multiplied
        return total

    usual = decode_attention.form(precision)
    return Form(
        *("decode_attention", usual.variables, usual.group, ATTENTION, seconds),
        _sizes,
        decode_attention.regime,
    )


def _sizes(shape: Shape) -> dict[str, Floats]:
    """Contexts and heads; batches are sums of sequences, and need no correction of their own."""
    return {name: np.log2(shape[name]) for name in ("context", "kv_heads", "head_dim")}


def slowed(p: Parameters, moved: Floats) -> Floats:
    """Factor on the time of a byte where that many are moved at once."""
    factor: Floats = 1 + p["slow"] / (1 + (p["near"] / moved) ** 2)
    return factor


def prefill(precision: str) -> Form:
    """Attention of new tokens of prompts, sequence by sequence.

    Each query head walks the keys once for each block of queries (``BLOCKS``). Without a context
    whole blocks of keys that causality hides are skipped; on top of one all pairs of new tokens and
    keys are multiplied, under a mask that is read for each.
    """
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        new, past, heads = shape["tokens"], shape["context"], shape["q_heads"]
        one = {**shape, "batch": np.ones(())}
        width, keys = shape["head_dim"], past + new
        pairs = np.where(past > 0, new * keys, causal_pairs(new))
        held = 2 * keys * shape["kv_heads"] * width * kept
        again = p["least"] * np.ceil(new / block_of(new)) / new * slowed(p, held)
        work = 4 * pairs * heads * (width + p["softmax"] + again * width)
        each = (
            p["sequence"]
            + p["head"] * heads
            + prefill_attention.read_bytes(one, kept) / (ceilings.bandwidth * p["share"])
            + p["pack"] * heads * width * keys
            + np.where(past > 0, p["mask"] * pairs, 0.0)
            + work / (ceilings.peak * p["compute"])
        )
        total: Floats = p["floor"] + shape["batch"] * each
        return total

    usual = prefill_attention.form(precision)
    return Form(
        *("prefill_attention", usual.variables, usual.group, CHUNK, seconds),
        _none,
        prefill_attention.regime,
    )


def _none(shape: Shape) -> dict[str, NDArray[np.float64]]:
    """No residual table: the event loop times a prompt without one."""
    return {}


def block_of(new: Floats) -> Floats:
    """Queries that are taken together when there are ``new`` of them.

    >>> block_of(np.array([16, 191, 192, 768])).tolist()
    [32, 32, 64, 256]
    """
    starts = [start for start, _ in BLOCKS]
    sizes = np.array([size for _, size in BLOCKS])
    return np.asarray(sizes[np.searchsorted(starts, new, side="right") - 1])


def causal_pairs(new: Floats) -> Floats:
    """Pairs of queries and keys computed for a prompt of ``new`` tokens: each query with all keys
    up to the end of its block of ``KEYS``.

    >>> causal_pairs(np.array([100.0, 512.0, 600.0])).tolist()
    [10000.0, 262144.0, 314944.0]
    """
    whole = np.floor(new / KEYS)
    rest = new - KEYS * whole
    pairs: Floats = KEYS * KEYS * whole * (whole + 1) / 2 + rest * new
    return pairs


def mover(operator: str) -> Form:
    """An operator that only moves data, by its name."""
    return Form(
        *(operator, ("bytes",), ("bytes",), MOVER, _mover_seconds),
        stream.coordinates,
        stream.regime,
    )


def _mover_seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    moved = shape["bytes"]
    beyond = slowed(p, moved) + p["fresh"] / (1 + (p["large"] / moved) ** SUDDEN)
    moving = moved / (ceilings.bandwidth * p["share"]) * beyond
    total: Floats = (p["latency"] ** p["blend"] + moving ** p["blend"]) ** (1 / p["blend"])
    return total
