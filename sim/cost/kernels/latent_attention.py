"""Predicts one layer's attention over latent keys and values (MLA), in seconds.

When every sequence adds one token, the up-projection is absorbed into the queries, so that all
heads of a GPU share one latent vector for each token of context, of ``latent + rope`` numbers:
scores are taken over all of them, and values over the ``latent`` ones. Then

- ``memory``     = latent vectors of the contexts / (bandwidth x share)
- ``arithmetic`` = FLOP of the heads, padded to tiles of 64 rows / (peak x compute)
- seconds        = floor + p-norm(memory, arithmetic; blend) + wave x waves
                   + query x (queries and results) / bandwidth

where ``waves`` are the tiles over the SMs, rounded up. In the context that is a line. Unlike
attention over keys and values of its own, it is bound by compute where a GPU has all of 128 heads.

Prompts are multiplied by keys and values that were projected up: multi-head attention whose keys
are wider than its values. ``prefill_heads`` says what stands for it in
``sim.cost.kernels.prefill_attention``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import prefill_attention
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

ROWS = 64
"""Query heads that a tile holds; fewer take as long."""

QUERY_BYTES = 2.0
"""Of a number of a query or a result, whatever the cache's."""

DECODE_PARAMETERS = (
    Parameter("floor", 1e-7, 1e-5, 1e-3, "s", "a call, however little it reads"),
    Parameter("share", 0.05, 0.9, 1.0, "1", "share of the memory bandwidth that long reads see"),
    Parameter("compute", 0.02, 0.7, 1.6, "1", "share of the peak FLOP/s on full tiles"),
    Parameter("blend", 1.0, 5.0, 12.0, "1", "exponent of the p-norm of memory and arithmetic"),
    Parameter("wave", 1e-9, 3e-6, 1e-4, "s", "an SM's start and end of one tile"),
    Parameter("query", 0.1, 2.0, 30.0, "1", "queries and results, in times of moving them once"),
)

PREFILL_SAME = {
    "rows": float(prefill_attention.ROWS),
    "packing": 0.0,
    "unit_width": 0.0,
    "alone_unit": 1.0,
    "cache_share": 1.0,
    "cache_speed": 1.0,
}
"""Parameters of prefill attention that say nothing where each head has keys of its own and all
heads are as wide; and the rows of a tile, unless a fit to the kernels of a GPU gives others."""


def read_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes that have to move in decoding: the latent cache once, queries in and results out."""
    cached = shape["batch"] * shape["context"] * (shape["latent"] + shape["rope"])
    total: Floats = cached * kv_bytes + query_bytes(shape)
    return total


def flops(shape: Shape) -> Floats:
    """FLOP that have to be done in decoding: scores and weighted latent values, unpadded."""
    pairs = shape["batch"] * shape["context"] * shape["q_heads"]
    total: Floats = 2 * pairs * (2 * shape["latent"] + shape["rope"])
    return total


def decode(precision: str) -> Form:
    """The form of decoding for a cache in ``precision``; ceilings are those of 16-bit arithmetic.

    Raises ValueError for a precision that sim.specs.precision does not know.
    """
    kv_bytes = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        tiles = np.ceil(shape["q_heads"] / ROWS)
        padded = flops(shape) * (tiles * ROWS / shape["q_heads"])
        arithmetic = padded / (ceilings.peak * p["compute"])
        moved = read_bytes(shape, kv_bytes) - query_bytes(shape)
        memory = moved / (ceilings.bandwidth * p["share"])
        longer, shorter = np.maximum(arithmetic, memory), np.minimum(arithmetic, memory)
        both = longer * (1 + (shorter / longer) ** p["blend"]) ** (1 / p["blend"])
        waves = np.ceil(shape["batch"] * tiles / ceilings.sms)
        queries = p["query"] * query_bytes(shape) / ceilings.bandwidth
        total: Floats = p["floor"] + both + p["wave"] * waves + queries
        return total

    return Form(
        "mla_decode",
        ("batch", "context", "q_heads", "latent", "rope"),
        ("q_heads", "latent", "rope"),
        DECODE_PARAMETERS,
        seconds,
        coordinates,
        regime,
    )


def prefill(precision: str) -> Form:
    """The form of prefill attention for a cache in ``precision``; heads by ``prefill_heads``."""
    form = prefill_attention.form(precision)
    return replace(form, parameters=(*form.parameters, prefill_attention.TILE)).given(
        **PREFILL_SAME
    )


def prefill_heads(heads: int, key_width: int, value_width: int) -> tuple[int, int, float]:
    """Query heads, KV heads and head size with the same FLOP and the same bytes.

    >>> prefill_heads(128, 192, 128)
    (128, 128, 160.0)
    """
    return heads, heads, (key_width + value_width) / 2


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of batch, context and heads."""
    return {name: np.log2(shape[name]) for name in ("batch", "context", "q_heads")}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By the numbers of latent cache that a layer reads, and by the batch."""
    cached = shape["batch"] * shape["context"] * (shape["latent"] + shape["rope"])
    sizes = np.array(["KV below 4M", "KV 4M to 32M", "KV from 32M"])
    batches = np.array(["batch 1 to 8", "batch 16 to 128", "batch from 256"])
    size = sizes[np.searchsorted([4e6, 32e6], cached, side="right")]
    batch = batches[np.searchsorted([9, 129], shape["batch"], side="right")]
    return np.char.add(np.char.add(size, ", "), batch)


def query_bytes(shape: Shape) -> Floats:
    """Bytes of queries over latent vectors and positions in, results over latent vectors out."""
    widths = 2 * shape["latent"] + shape["rope"]
    total: Floats = shape["batch"] * shape["q_heads"] * widths * QUERY_BYTES
    return total
