"""Predicts the time of matrix products of ``m`` rows by ``n`` columns over ``k``.

Projections and the LM head. Seconds, bytes and FLOP. The output is cut into tiles, each computed by
one SM; for few tiles the sum over ``k`` may be split among several of them ("split-K"). For one
tile size and one split

    waves    = tiles * splits / SMs, the last one costing between its share and a whole wave
    busy     = waves * k / splits * (a tile's FLOP per unit of k / the FLOP/s of an SM)
    memory   = (weights + inputs + output + partial sums) / (bandwidth * share)
    seconds  = (busy ** norm + memory ** norm) ** (1 / norm) + waves * wave + split

and the kernel library is taken to choose the best of ``TILES`` and ``SPLITS``. On top of that come
a launch and, where inputs are converted to the arithmetic's width first (fp8, nvfp4), that
conversion. A tile of nvfp4 takes a least time for each unit of ``k`` ("depth"): up to 128 rows its
published timings are a line in ``k``, whatever ``m`` and ``n`` are. Long products run at a lower
clock ("droop"). Kernels that work in blocks of ``BLOCK`` rows and slow down where the last one is
not full ("ragged") are the only case in which more rows may take less time; otherwise seconds never
fall with ``m``, ``n`` or ``k``.

With many rows this goes to FLOP / (peak * compute * (1 - droop)), with one to weight bytes /
(bandwidth * share). The idea of tiles in waves is NVIDIA's ("tile and wave quantisation" in its
guide to matrix multiplication for deep learning); what each parameter is on which GPU is fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

TILES = (
    (256, 128, "huge"),
    (128, 256, "huge"),
    (128, 128, "large"),
    (64, 128, "small"),
    (64, 64, "tiny"),
    (16, 128, "narrow"),
)
"""Rows and columns of the tiles to choose from. Hopper's timings need no huge ones; those of A100
and L40S step where a wave of huge tiles is full, and are a fifth better with them for prompts. The
narrow one is what keeps weights of 8 and 4 bits bound by memory for a few rows."""

SPLITS = (1, 2, 4, 8, 16)
BLOCK = 256
SHARP = 4
"""How suddenly repeated reads stop hitting the cache as they outgrow it."""

PARTIAL_SUM = 8.0
"""Bytes that one output of one split costs: a 32-bit sum written and read again."""


class Widths(NamedTuple):
    """Bytes of one weight, of one input as it is multiplied, and of one output; and how many bytes
    move for one input before that, to convert it (read at 16 bits, written at 8)."""

    weight: float
    input: float
    output: float
    converted: float


WIDTHS = {
    "fp32": Widths(4, 4, 4, 0),
    "bf16": Widths(2, 2, 2, 0),
    "fp16": Widths(2, 2, 2, 0),
    "fp8": Widths(1, 1, 2, 3),
    "int8": Widths(1, 1, 2, 3),
    "fp8-block": Widths(precision_bytes("fp8-block"), 1, 2, 3),
    "nvfp4": Widths(*(precision_bytes("nvfp4"),) * 2, 2, 2 + precision_bytes("nvfp4")),
    "mxfp4": Widths(*(precision_bytes("mxfp4"),) * 2, 2, 2 + precision_bytes("mxfp4")),
    "int8-weights": Widths(1, 2, 2, 0),
    "int4-weights": Widths(0.5, 2, 2, 0),
}
"""By precision; ``-weights`` ones convert weights as they are read and multiply at 16 bits."""

PARAMETERS = (
    Parameter("compute", 0.02, 0.8, 1.15, "1",
              "share of the peak FLOP/s inside a large tile; boost clocks may lift it above 1"),
    Parameter("bandwidth", 0.02, 0.88, 1.0, "1", "share of the peak bandwidth that weights see"),
    Parameter("latency", 1e-8, 3e-6, 1e-3, "s", "what a product takes however small it is"),
    Parameter("wave", 1e-9, 1e-6, 1e-4, "s", "filling and draining the SMs, each wave"),
    Parameter("norm", 1.0, 3.0, 12.0, "1",
              "exponent that joins compute and memory: 1 adds them, large takes the longer"),
    Parameter("partial", 0.0, 0.3, 1.0, "1",
              "how far the last wave counts as a whole one: 0 its share, 1 all of it", log=False),
    Parameter("droop", 0.0, 0.1, 0.5, "1", "share of the speed lost in long products", log=False),
    Parameter("long", 1e-5, 5e-4, 1e-2, "s", "length at which half of that is lost"),
    Parameter("huge", 0.5, 1.0, 1.6, "1", "speed of a 256 x 128 tile relative to a large one"),
    Parameter("small", 0.2, 0.9, 1.0, "1", "speed of a 64 x 128 tile relative to a large one"),
    Parameter("tiny", 0.2, 0.8, 1.0, "1", "speed of a 64 x 64 tile relative to a large one"),
    Parameter("narrow", 0.1, 0.5, 1.0, "1", "speed of a 16 x 128 tile relative to a large one"),
    Parameter("split", 1e-8, 2e-6, 1e-3, "s", "adding up partial sums; large: never split"),
    Parameter("cached", 1.0, 1.5, 6.0, "1", "bandwidth of the last-level cache over memory's"),
    Parameter("ragged", 0.0, 0.1, 3.0, "1",
              "time of a missing row in the last block over that of one present", log=False),
)  # fmt: skip

CONVERSION = (
    Parameter("convert", 0.0, 1.0, 20.0, "1",
              "moving inputs to convert them, in times of doing so at full bandwidth", log=False),
    Parameter("row", 0.0, 1e-9, 1e-7, "s", "converting one row, however short", log=False),
)  # fmt: skip
"""Parameters that only products with converted inputs have."""

DEPTH = Parameter("depth", 1e-12, 5e-10, 1e-8, "s", "a unit of k in a tile, at the least")
"""A parameter that only products in nvfp4 have: timings of other formats do not tell it from 0."""


class Parts(NamedTuple):
    """Seconds of a product by cause: arithmetic, memory traffic, and what overlaps with neither."""

    compute: Floats
    memory: Floats
    rest: Floats
    total: Floats


def parts(p: Parameters, shape: Shape, ceilings: Ceilings, widths: Widths) -> Parts:
    """The parts of the best choice of tile and split."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    bandwidth = ceilings.bandwidth * p["bandwidth"]
    reading = _memory(p, shape, ceilings, widths) / bandwidth
    norm = p["norm"]
    best: Parts | None = None
    for waves, splits, tile in _candidates(p, m, n, ceilings):
        busy = waves * tile * k / splits
        busy = busy / (1 - p["droop"] * busy / (busy + p["long"]))
        memory = reading + (splits > 1) * splits * m * n * PARTIAL_SUM / ceilings.bandwidth
        longer = np.maximum(busy, memory)
        shorter = np.minimum(busy, memory)
        joined = longer * (1 + (shorter / longer) ** norm) ** (1 / norm)
        rest = waves * p["wave"] + (p["split"] if splits > 1 else 0.0)
        found = Parts(busy, memory, rest, joined + rest)
        best = found if best is None else _faster(best, found)
    assert best is not None
    extra: Floats = np.asarray(p["latency"])
    if widths.converted:
        moving = p["convert"] * k * widths.converted / ceilings.bandwidth
        extra = extra + m * (moving + p["row"])
    return Parts(best.compute, best.memory, best.rest + extra, best.total + extra)


def _faster(one: Parts, other: Parts) -> Parts:
    chosen = other.total < one.total
    return Parts(*(np.where(chosen, b, a) for a, b in zip(one, other, strict=True)))


def _candidates(
    p: Parameters, m: Floats, n: Floats, ceilings: Ceilings
) -> Iterator[tuple[Floats, int, float]]:
    """Waves, splits, and seconds of one tile for one unit of ``k``."""
    rate = ceilings.peak * p["compute"] / ceilings.sms
    least = p.get("depth", 0.0)  # which only products in nvfp4 have
    missing = np.where(m > BLOCK / 2, np.ceil(m / BLOCK) * BLOCK - m, 0.0)
    for rows, columns, name in TILES:
        speed = rate * (1.0 if name == "large" else p[name])
        across = np.ceil(n / columns)
        tiles = np.ceil(m / rows) * across
        ragged = missing / rows * across * (p["ragged"] / ceilings.sms)
        for splits in SPLITS:
            waves = tiles * splits / ceilings.sms
            whole = np.floor(waves)
            rest = waves - whole
            last = np.where(rest > 0, rest + (1 - rest) * p["partial"], 0.0)
            filled = np.maximum(whole + last, 1.0) + ragged * splits
            yield filled, splits, max(2 * rows * columns / speed, least)


def _memory(p: Parameters, shape: Shape, ceilings: Ceilings, widths: Widths) -> Floats:
    """Bytes that come from memory; what a benchmark finds in the cache again counts as fewer."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    moved: Floats = widths.weight * n * k + widths.input * m * k + widths.output * m * n
    if ceilings.cache == 0:
        return moved
    hits = 1 / (1 + (moved / ceilings.cache) ** SHARP)
    return moved * (1 - hits + hits / p["cached"])


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Rows, columns and depth."""
    return {name: np.log2(shape[name]) for name in ("m", "n", "k")}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By rows: decoding, larger batches, chunks of prompts, prompts, bulk."""
    names = np.array(
        ["1 to 16 rows", "17 to 128 rows", "129 to 1024 rows", "1025 to 4096 rows", "above"]
    )
    at = np.searchsorted([17, 129, 1025, 4097], shape["m"], side="right")
    return names[at]


def _seconds(widths: Widths, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return parts(p, shape, ceilings, widths).total


def form(precision: str) -> Form:
    """The form of products in ``precision``, a key of ``WIDTHS`` (KeyError otherwise)."""
    widths = WIDTHS[precision]
    parameters = (*PARAMETERS, *CONVERSION) if widths.converted else PARAMETERS
    if precision == "nvfp4":
        parameters = (*parameters, DEPTH)
    seconds = partial(_seconds, widths)
    return Form("gemm", ("m", "n", "k"), ("n", "k"), parameters, seconds, coordinates, regime)
