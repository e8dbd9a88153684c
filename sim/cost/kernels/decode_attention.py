"""Predicts the time of one layer's attention when every sequence adds one token, in seconds.

One KV head of one sequence is a unit of work: the query heads that share it are packed into a tile
of up to 64 rows. An SM takes ``unit`` to start and finish it and then walks the context; a kernel
may split the context into 2, 4, ... 128 parts, which are combined at the end. For each split

- ``waves``  = units x parts / SMs, at least one, in part rounded up (``quantised``)
- ``work``   = (waves - 1) x unit + waves x (keys of a part beyond the first tile) x FLOP / SM rate
- ``memory`` = (KV cache + queries + results) / (bandwidth x share)
- seconds    = floor + combine x log2(parts) + p-norm(work, memory; blend)

and the kernel is taken to choose the best. The first wave's unit is part of ``floor``: nothing
hides it. Where there is nothing to pack (one query head per KV head) many kernels are other
kernels: the ``alone_`` ratios scale floor, SM rate, unit and combine there; one that does not split
at all has a large ``alone_combine``. ``regroup`` is the copy that some kernels need to pack queries
of several sequences and several KV heads.

Every term is continuous and non-decreasing in the context, so is the least of the splits. Sequences
of unequal length share the SMs, but the longest is walked by no more than its own parts: ``skew``,
longest over mean, replaces a single wave where it is larger.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

PARAMETERS = (
    Parameter("floor", 1e-7, 1e-5, 1e-3, "s", "a call, however little it reads"),
    Parameter("share", 0.05, 0.9, 1.2, "1", "share of the memory bandwidth that long reads see"),
    Parameter("compute", 0.005, 0.5, 4.0, "1", "share of an SM's peak FLOP/s on a tile of 64 rows"),
    Parameter("unit", 1e-8, 3e-6, 1e-4, "s", "an SM's start and end of one unit of 128-wide heads"),
    Parameter("tile", 8.0, 96.0, 256.0, "tokens", "keys of 128-wide heads covered by ``unit``"),
    Parameter("combine", 1e-8, 1e-6, 1e-2, "s", "each doubling of the parts of a context"),
    Parameter("regroup", 1e-8, 1e-7, 1e-4, "s", "copy of the queries, to pack them"),
    Parameter("blend", 1.0, 2.0, 8.0, "1", "exponent of the p-norm of work and memory"),
    Parameter("quantised", 0.0, 0.8, 1.0, "1", "how far waves are rounded up", log=False),
    Parameter("floor_width", -1.0, 0.1, 2.0, "1", "exponent of head_dim / 128 in floor", log=False),
    Parameter("unit_width", -1.0, 0.4, 2.0, "1", "exponent of head_dim / 128 in unit", log=False),
    Parameter("alone_floor", 0.3, 1.0, 3.0, "1", "ratio of floor with one query head per KV head"),
    Parameter("alone_compute", 0.02, 1.0, 20.0, "1", "the same of compute"),
    Parameter("alone_unit", 0.1, 1.0, 10.0, "1", "the same of unit"),
    Parameter("alone_combine", 0.01, 1.0, 1e5, "1", "the same of combine"),
    Parameter("cache_share", 0.1, 0.8, 1.5, "1", "share of the cache that a repeated call refills"),
    Parameter("cache_speed", 1.0, 2.0, 10.0, "1", "bandwidth of the cache over the memory's"),
)

ROWS = 64
"""Query rows of a tile: what tensor cores of Hopper and Blackwell multiply at once, and what the
kernels for older parts pad to."""

WIDTH = 128
"""Head size that ``unit`` and ``tile`` refer to."""

SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Parts a context may be split into; 128 is the limit of FlashAttention."""

SHARPNESS = 16.0
"""How suddenly a working set stops fitting the cache: least-recently-used replacement under a
cyclic read goes from all hits to none within a few percent of the size."""

ACTIVATION_BYTES = 2.0
"""Of a query or result with a cache of 16 bits and fewer; with one of 32 it is as wide."""


def query_bytes(kv_bytes: float) -> float:
    """Bytes of one number of a query or result, over a cache of ``kv_bytes`` each."""
    return max(ACTIVATION_BYTES, kv_bytes)


def read_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes that have to move: the KV cache once, queries in and results out."""
    cached = 2 * shape["batch"] * shape["context"] * shape["kv_heads"] * shape["head_dim"]
    queries = shape["batch"] * shape["q_heads"] * shape["head_dim"]
    total: Floats = cached * kv_bytes + 2 * queries * query_bytes(kv_bytes)
    return total


def flops(shape: Shape) -> Floats:
    """FLOP that have to be done: scores and weighted values of every query head, unpadded."""
    pairs = shape["batch"] * shape["context"] * shape["q_heads"]
    total: Floats = 4 * pairs * shape["head_dim"]
    return total


def form(precision: str) -> Form:
    """The form for a KV cache in ``precision``; ceilings are those of 16-bit arithmetic.

    Raises ValueError for a precision that sim.specs.model does not know.
    """
    kv_bytes = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        least: Floats = np.asarray(np.inf)
        for total in _splits(p, shape, ceilings, kv_bytes):
            least = np.minimum(least, total)
        return _floor(p, shape) + least

    return Form(
        "decode_attention",
        ("batch", "context", "skew", "q_heads", "kv_heads", "head_dim"),
        ("q_heads", "kv_heads", "head_dim"),
        PARAMETERS,
        seconds,
        coordinates,
        regime,
    )


def _floor(p: Parameters, shape: Shape) -> Floats:
    alone = shape["q_heads"] == shape["kv_heads"]
    packs = ~alone & (shape["batch"] > 1) & (shape["kv_heads"] > 1)
    floor = p["floor"] * (shape["head_dim"] / WIDTH) ** p["floor_width"]
    total: Floats = np.where(alone, p["alone_floor"], 1.0) * floor + p["regroup"] * packs
    return total


def _splits(p: Parameters, shape: Shape, ceilings: Ceilings, kv_bytes: float) -> Iterator[Floats]:
    """For each split: seconds above the floor."""
    context, width = shape["context"], shape["head_dim"]
    group = shape["q_heads"] / shape["kv_heads"]
    alone = group == 1
    memory = _memory(p, read_bytes(shape, kv_bytes), ceilings)
    raised = memory ** p["blend"]
    units = shape["batch"] * shape["kv_heads"] * np.ceil(group / ROWS)
    unit = p["unit"] * (width / WIDTH) ** p["unit_width"] * np.where(alone, p["alone_unit"], 1.0)
    rate = ceilings.peak / ceilings.sms * p["compute"] * np.where(alone, p["alone_compute"], 1.0)
    per_key = 4 * ROWS * width / rate
    tile = p["tile"] * WIDTH / width
    combine = p["combine"] * np.where(alone, p["alone_combine"], 1.0)
    for parts in SPLITS:
        waves = units * (parts / ceilings.sms)
        rounded = p["quantised"] * np.ceil(waves)
        waves = rounded + (1 - p["quantised"]) * np.maximum(waves, 1)
        keys = np.maximum(context / parts - tile, 0)
        work = (waves - 1) * unit + np.maximum(waves, shape["skew"]) * keys * per_key
        both = (work ** p["blend"] + raised) ** (1 / p["blend"])
        yield both + combine * np.log2(parts)


def _memory(p: Parameters, moved: Floats, ceilings: Ceilings) -> Floats:
    """Seconds to move that many bytes, part of them from the cache if the benchmark allows it."""
    rate = ceilings.bandwidth * p["share"]
    if not ceilings.cache:
        return moved / rate
    fill = moved / (ceilings.cache * p["cache_share"])
    missing = 1 / (1 + fill**-SHARPNESS)
    total: Floats = moved * (missing + (1 - missing) / p["cache_speed"]) / rate
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of everything but skew, of the group, and of the units of work."""
    logs = {name: np.log2(shape[name]) for name in ("batch", "context", "kv_heads", "head_dim")}
    group = np.log2(shape["q_heads"]) - logs["kv_heads"]
    return {**logs, "group": group, "units": logs["batch"] + logs["kv_heads"]}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By the elements of KV cache that a layer reads, and by the batch."""
    cached = 2 * shape["batch"] * shape["context"] * shape["kv_heads"] * shape["head_dim"]
    sizes = np.array(["KV below 4M", "KV 4M to 32M", "KV from 32M"])
    batches = np.array(["batch 1 to 8", "batch 16 to 128", "batch from 256"])
    size = sizes[np.searchsorted([4e6, 32e6], cached, side="right")]
    batch = batches[np.searchsorted([9, 129], shape["batch"], side="right")]
    return np.char.add(np.char.add(size, ", "), batch)
