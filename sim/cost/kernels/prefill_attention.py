"""Predicts the time of one layer's attention over the new tokens of prompts, in seconds.

Queries are cut into tiles of 128 ``rows``, 256 where a fit says so. A kernel either gives each
query head tiles of its own or packs the heads that share a KV head into the rows of one tile, which
saves tiles when prompts are short; ``packing`` says how far. A tile sees all keys up to its last
row (causal, and whatever was cached before), so an SM takes ``unit`` plus keys x FLOP / rate for
it, where ``softmax`` is what the exponentials cost, expressed in elements of the head. Then

- ``busy``       = sum over all tiles / SMs + ``tail`` x the longest tile
- ``arithmetic`` = busy, or nearer the longest tile where that takes longer: kernels that cut long
                   tiles among idle SMs get ``split`` of the way back (geometric). Beyond
                   milliseconds clocks fall, by ``droop``
- ``memory``     = (queries + results + keys and values read) / (bandwidth x share)
- ``writing``    = ``write`` x (new keys and values read, and written to the cache) / (bandwidth x
                   share) + ``copy`` x new tokens: a block of threads each, narrower (and more of
                   them at once) below ``BLOCK`` elements
- seconds        = floor + p-norm(arithmetic, memory; blend) + writing

Each sum is additive over prompts of different lengths; see ``sim.cost.kernels.prompts``.

A shape may have a ``window``: then each query sees that many tokens at most, its own included, and
a tile the window of its first row up to its last row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.decode_attention import query_bytes
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

PARAMETERS = (
    Parameter("floor", 1e-7, 1e-5, 1e-3, "s", "a call, however little it computes"),
    Parameter("unit", 1e-8, 3e-6, 1e-4, "s", "an SM's start and end of one tile of 128-wide heads"),
    Parameter("unit_width", -1.0, 0.3, 2.0, "1", "exponent of head_dim / 128 in unit", log=False),
    Parameter("alone_unit", 0.1, 1.0, 10.0, "1", "ratio of unit with one query head per KV head"),
    Parameter("compute", 0.02, 0.6, 2.5, "1", "share of an SM's peak FLOP/s inside a tile"),
    Parameter("softmax", 1.0, 20.0, 512.0, "elements", "exponentials, as a wider head"),
    Parameter("packing", 0.0, 0.5, 1.0, "1", "how far heads are packed into tiles", log=False),
    Parameter("tail", 0.0, 0.3, 1.0, "1", "share of the longest tile that ends alone", log=False),
    Parameter("split", 0.0, 0.5, 1.0, "1", "how far idle SMs shorten the longest tile", log=False),
    Parameter("droop", 0.0, 0.1, 1.0, "1", "slowing of kernels far above 2 ms", log=False),
    Parameter("share", 0.05, 0.8, 1.2, "1", "share of the memory bandwidth"),
    Parameter("write", 0.0, 1.0, 4.0, "1", "copies of new keys and values to the cache", log=False),
    Parameter("copy", 1e-12, 1e-9, 1e-7, "s", "each new token's block of threads in that copy"),
    Parameter("blend", 1.0, 2.0, 8.0, "1", "exponent of the p-norm of arithmetic and memory"),
    Parameter("cache_share", 0.1, 0.8, 1.5, "1", "share of the cache that a repeated call refills"),
    Parameter("cache_speed", 1.0, 2.0, 10.0, "1", "bandwidth of the cache over the memory's"),
)

ROWS = 128
"""Query rows of a tile in FlashAttention 2 and 3 and in the kernels that follow them."""

TILE = Parameter("rows", 64.0, float(ROWS), 512.0, "rows", "queries of a tile", before=float(ROWS))
"""A parameter of forms whose kernels differ in it; given, since rounding up has no slope."""
BEFORE = {TILE.name: float(ROWS)}

WIDTH = 128
"""Head size that ``unit`` refers to."""

BLOCK = 512
"""Elements of a token's keys that fill a block of threads of the copy: vLLM's limit."""

WARM = 2e-3
"""Seconds after which half of ``droop`` has set in: the time scale on which power is regulated."""

SHARPNESS = 16.0
"""How suddenly a working set stops fitting the cache; see the decode form."""


def pairs(shape: Shape) -> Floats:
    """Query-key pairs of one query head, causal: what has to be computed, unpadded."""
    new, past = shape["tokens"], shape["context"]
    if "window" in shape:
        rising = np.minimum(new, np.maximum(0.0, shape["window"] - past))
        seen = rising * past + rising * (rising + 1) / 2 + (new - rising) * shape["window"]
        return np.asarray(shape["batch"] * seen)
    total: Floats = shape["batch"] * (new * past + new * (new + 1) / 2)
    return total


def flops(shape: Shape) -> Floats:
    """FLOP that have to be done: scores and weighted values of every query head, unpadded."""
    total: Floats = 4 * pairs(shape) * shape["q_heads"] * shape["head_dim"]
    return total


def read_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes of queries, results, and keys and values read once by attention itself."""
    queries = shape["batch"] * shape["tokens"] * shape["q_heads"] * shape["head_dim"]
    past = shape["context"]
    if "window" in shape:
        past = np.minimum(past, shape["window"] - 1)
    keys = shape["batch"] * (shape["tokens"] + past) * shape["kv_heads"]
    wide = query_bytes(kv_bytes)
    total: Floats = 2 * queries * wide + 2 * keys * shape["head_dim"] * kv_bytes
    return total


def written_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes of copying new keys and values to the cache: in as queries are, out as they are
    kept."""
    new = 2 * shape["batch"] * shape["tokens"] * shape["kv_heads"] * shape["head_dim"]
    total: Floats = new * (query_bytes(kv_bytes) + kv_bytes)
    return total


def moved_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes of queries, results, keys and values together."""
    total: Floats = read_bytes(shape, kv_bytes) + written_bytes(shape, kv_bytes)
    return total


def form(precision: str) -> Form:
    """The form for a KV cache in ``precision``; ceilings are those of 16-bit arithmetic.

    A kernel that computes in 8 bits then has a ``compute`` of up to twice the usual. Raises
    ValueError for a precision that sim.specs.model does not know.
    """

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        arithmetic, read, written = parts(p, shape, ceilings, precision_bytes(precision))
        both = (arithmetic ** p["blend"] + read ** p["blend"]) ** (1 / p["blend"])
        total: Floats = p["floor"] + both + written
        return total

    return Form(
        "prefill_attention",
        ("batch", "tokens", "context", "q_heads", "kv_heads", "head_dim"),
        ("q_heads", "kv_heads", "head_dim"),
        PARAMETERS,
        seconds,
        coordinates,
        regime,
    )


def parts(
    p: Parameters, shape: Shape, ceilings: Ceilings, kv_bytes: float
) -> tuple[Floats, Floats, Floats]:
    """Seconds of arithmetic, of reading, and of writing the cache."""
    p = {**BEFORE, **p}
    rows = p["rows"]
    width, group = shape["head_dim"], shape["q_heads"] / shape["kv_heads"]
    tiles, keys = _tiles(p["packing"], rows, shape, group)
    unit = p["unit"] * (width / WIDTH) ** p["unit_width"]
    unit = unit * np.where(group == 1, p["alone_unit"], 1.0)
    per_key = 4 * rows * (width + p["softmax"]) * ceilings.sms / (ceilings.peak * p["compute"])
    heads = shape["batch"] * shape["kv_heads"]
    most = shape["context"] + shape["tokens"]
    if "window" in shape:
        most = np.minimum(most, shape["window"] - 1 + rows)
    longest = most * per_key
    busy = heads * (tiles * unit + keys * per_key) / ceilings.sms + p["tail"] * longest
    arithmetic = np.maximum(busy, longest ** (1 - p["split"]) * busy ** p["split"])
    arithmetic = arithmetic * (1 + p["droop"] * arithmetic / (arithmetic + WARM))
    read, written = read_bytes(shape, kv_bytes), written_bytes(shape, kv_bytes)
    per_byte: Floats = np.asarray(1 / (ceilings.bandwidth * p["share"]))
    if ceilings.cache:
        missing = 1 / (1 + ((read + written) / (ceilings.cache * p["cache_share"])) ** -SHARPNESS)
        per_byte = per_byte * (missing + (1 - missing) / p["cache_speed"])
    block = np.minimum(shape["kv_heads"] * width / BLOCK, 1)
    blocks = p["copy"] * shape["batch"] * shape["tokens"] * block
    return arithmetic, read * per_byte, p["write"] * written * per_byte + blocks


def _tiles(packing: float, rows: float, shape: Shape, group: Floats) -> tuple[Floats, Floats]:
    """Per prompt and KV head: number of tiles, and the keys that all of them see in sum."""
    new, past = shape["tokens"], shape["context"]
    apart = np.ceil(new / rows)
    packed = np.ceil(new * group / rows)
    if "window" in shape:
        keys_apart = seen_by_tiles(new, past, shape["window"], apart, rows)
        keys_packed = seen_by_tiles(new, past, shape["window"], packed, rows / group)
    else:
        keys_apart = (apart - 1) * (past + rows * apart / 2) + past + new
        keys_packed = (packed - 1) * (past + rows / group * packed / 2) + past + new
    tiles = packing * packed + (1 - packing) * group * apart
    keys = packing * keys_packed + (1 - packing) * group * keys_apart
    return tiles, keys


def seen_by_tiles(
    tokens: Floats, context: Floats, window: Floats, tiles: Floats, step: Floats | float
) -> Floats:
    """Keys that ``tiles`` of ``step`` tokens each, the last of them of what is left, see in sum.

    >>> one = np.ones(1)
    >>> seen_by_tiles(300 * one, 100 * one, 200 * one, 3 * one, 128.0).tolist()
    [798.0]
    """
    most = window - 1 + step
    rising = np.clip(np.ceil((most - context) / step) - 1, 0, tiles - 1)
    before = rising * context + step * rising * (rising + 1) / 2 + (tiles - 1 - rising) * most
    last = tokens - step * (tiles - 1)
    total: Floats = before + np.minimum(context + tokens, window - 1 + last)
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms: tokens of a prompt, query rows of all heads, head size, and the group."""
    rows = shape["batch"] * shape["tokens"] * shape["q_heads"]
    return {
        "rows": np.log2(rows),
        "tokens": np.log2(shape["tokens"]),
        "group": np.log2(shape["q_heads"] / shape["kv_heads"]),
        "head_dim": np.log2(shape["head_dim"]),
    }


def regime(shape: Shape) -> NDArray[np.str_]:
    """By the new tokens of a prompt."""
    names = np.array(["below 128 tokens", "128 to 1,023", "1,024 to 4,095", "from 4,096"])
    return names[np.searchsorted([128, 1024, 4096], shape["tokens"], side="right")]
