"""Predicts the experts of a layer on one GPU: one call, from the router's scores to the sum.

Choosing experts, sorting rows by expert, quantising them where the format asks for it, two grouped
products with the activation between them, and the sum of the results; not the router's product,
shared experts, or messages between GPUs. Seconds. The rows of each expert are padded to tiles of
some height, of 128 columns. For one height

    waves    = tiles of the first product / SMs, and of the second, the last wave of each costing
               between its share and a whole one
    busy     = waves * sums of a tile * its padded FLOP / (an SM's FLOP/s at that height)
    memory   = weights of the experts touched / (bandwidth * share)
    stream   = waves * weights of a tile / (what an SM can read in a second)
    seconds  = (busy ** norm + memory ** norm + stream ** norm) ** (1 / norm) + waves * wave

and the library is taken to choose the best of ``HEIGHTS``. On top come the latency of the call,
what a call of many tokens takes more than one of a single token (``several``), what telling rows of
other ranks apart takes where that is kernels of its own (``apart``), the activations of the GPU's
own rows (``moved``), and those of all rows wherever their experts are (``all``).

Expected tiles are counted by ``sim.cost.kernels.expert_tiles``; calibration counts those that the
timed routing has. Widths that are no multiple of ``ALIGNED`` run kernels of another kind, which
take about twice as long: no form says how long.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

HEIGHTS = (16, 32, 64, 128, 256)
"""Rows of the tiles to choose from."""

COLUMNS = 128
ALIGNED = 16
SHARP = 4
"""How suddenly repeated reads stop hitting the cache as they outgrow it."""


MARLIN = "marlin"
"""The library by which vLLM and SGLang multiply int4, and mxfp4 and nvfp4 where they have nothing
quicker: one kernel for all. The first two were timed; their bytes of a weight with its scales
differ by 2 %."""


class ExpertFormat(NamedTuple):
    """Bytes of a weight with its share of the scales, the precision of the arithmetic, whether
    widths are padded to what the kernel needs, and bytes of a number of an input, of an inner
    result and of a result."""

    weight: float
    arithmetic: str
    pads: bool = False
    activation: float = 2.0

    def suits(self, inner: float) -> bool:
        """Whether an expert of ``inner`` columns on a GPU runs the usual kernel."""
        return self.pads or inner % ALIGNED == 0


FORMATS = {
    "fp32": ExpertFormat(4.0, "fp32", activation=4.0),
    "bf16": ExpertFormat(2.0, "bf16"),
    "fp16": ExpertFormat(2.0, "fp16"),
    "fp8": ExpertFormat(precision_bytes("fp8-block"), "fp8"),
    "nvfp4": ExpertFormat(precision_bytes("nvfp4"), "nvfp4"),
    "mxfp4": ExpertFormat(precision_bytes("mxfp4"), "fp8", pads=True),
    "mxfp4-inputs": ExpertFormat(precision_bytes("mxfp4"), "mxfp4", pads=True),
    "mxfp4-weights": ExpertFormat(precision_bytes("mxfp4"), "bf16", pads=True),
    "int4-weights": ExpertFormat(precision_bytes("int4-group"), "bf16"),
    "nvfp4-weights": ExpertFormat(precision_bytes("nvfp4"), "bf16"),
    MARLIN: ExpertFormat(precision_bytes("mxfp4"), "bf16", pads=True),
}
"""By the name in profiles; ``-weights`` ones convert weights as they are read and multiply at 16
bits, so does Marlin; mxfp4 is multiplied at 8 bits, or by inputs of its own format (``-inputs``).
"""

PARAMETERS = (
    Parameter("latency", 1e-6, 3e-5, 2e-4, "s", "a call of one token, however little it reads"),
    Parameter("several", 0.0, 5e-6, 1e-4, "s", "sorting the rows of several tokens", log=False),
    Parameter("compute", 0.02, 0.8, 1.3, "1", "share of the peak FLOP/s in tiles of 128 rows"),
    Parameter("bandwidth", 0.05, 0.9, 1.0, "1", "share of the peak bandwidth that weights see"),
    Parameter("norm", 1.0, 2.0, 12.0, "1", "exponent that joins arithmetic and reads"),
    Parameter("moved", 1e-3, 0.5, 30.0, "1", "activations of own rows, in times of moving them"),
    Parameter("all", 1e-3, 1.0, 30.0, "1", "activations of all rows, in times of moving them"),
    Parameter("partial", 0.0, 0.4, 1.0, "1",
              "how far the last wave counts as a whole one: 0 its share, 1 all of it", log=False),
    Parameter("wave", 1e-9, 5e-7, 2e-5, "s", "filling and draining the SMs, each wave"),
    Parameter("reader", 0.3, 3.0, 50.0, "1", "bytes/s of one SM over its share of the bandwidth"),
    Parameter("rows16", 0.05, 0.4, 1.0, "1", "speed of tiles of 16 rows over those of 128"),
    Parameter("rows32", 0.05, 0.5, 1.0, "1", "speed of tiles of 32 rows over those of 128"),
    Parameter("rows64", 0.1, 0.8, 1.0, "1", "speed of tiles of 64 rows over those of 128"),
    Parameter("rows256", 0.5, 1.0, 1.5, "1", "speed of tiles of 256 rows over those of 128"),
    Parameter("cached", 1.0, 1.5, 6.0, "1", "bandwidth of the last-level cache over memory's"),
    Parameter("apart", 0.0, 0.0, 2e-4, "s", "telling rows for experts of other ranks apart",
              log=False, before=0.0),
)  # fmt: skip
BEFORE = {each.name: each.before for each in PARAMETERS if each.before is not None}

TILES = tuple(f"tiles{height}" for height in HEIGHTS)
GROUP = ("hidden", "width", "chosen", "experts")
"""The model's own shape: hidden size, width of an expert, experts per token, experts."""

VARIABLES = (*GROUP, "gpus", "ranks", "matrices", "tokens", "rows", "touched", *TILES)
"""``gpus`` share the width of each expert, ``ranks`` hold experts of their own; ``matrices`` is 3
for gated experts, else 2. ``tokens`` are those of all ranks; ``rows``, experts ``touched`` and
tiles of each height are what falls to this GPU."""


class ExpertParts(NamedTuple):
    """Seconds by cause: arithmetic, reads of weights, and all together."""

    compute: Floats
    memory: Floats
    total: Floats


def parts(p: Parameters, shape: Shape, ceilings: Ceilings, kind: ExpertFormat) -> ExpertParts:
    """The parts of the best choice of a tile."""
    p = {**BEFORE, **p}
    norm, weight = p["norm"], kind.weight
    memory = _reading(p, shape, ceilings, weight)
    reader = ceilings.bandwidth * p["reader"] / ceilings.sms
    compute = best = np.asarray(np.inf)
    for height, name in zip(HEIGHTS, TILES, strict=True):
        first, second = _waves(p, shape, shape[name], ceilings)
        speed = 1.0 if height == 128 else p[f"rows{height}"]
        rate = ceilings.peak * p["compute"] * speed / ceilings.sms
        sums = first * shape["hidden"] + second * _inner(shape)
        busy = sums * (2 * height * COLUMNS / rate)
        least = np.maximum(first, 1) * shape["hidden"] + np.maximum(second, 1) * _inner(shape)
        stream = least * (COLUMNS * weight / reader)
        longest = np.maximum(np.maximum(busy, memory), stream)
        shares = [(each / longest) ** norm for each in (busy, memory, stream)]
        found = longest * sum(shares) ** (1 / norm) + p["wave"] * (first + second)
        compute = np.where(found < best, busy, compute)
        best = np.minimum(best, found)
    rest = p["latency"] + p["several"] * (1 - 1 / np.maximum(shape["tokens"], 1.0))
    rest = rest + p["apart"] * (shape["ranks"] > 1)
    return ExpertParts(
        compute, memory, best + rest + _activations(p, shape, kind) / ceilings.bandwidth
    )


def flops(shape: Shape) -> Floats:
    """FLOP that have to be done, without padding."""
    total: Floats = 2 * shape["rows"] * shape["hidden"] * shape["matrices"] * _inner(shape)
    return total


def weight_bytes(shape: Shape, weight: float) -> Floats:
    """Bytes of the weights of the experts that are touched."""
    total: Floats = shape["touched"] * shape["matrices"] * shape["hidden"] * _inner(shape) * weight
    return total


def moved_bytes(shape: Shape, kind: ExpertFormat) -> Floats:
    """Bytes of weights, inputs, inner results once, and results."""
    widths = 2 * shape["hidden"] + shape["matrices"] * _inner(shape)
    weights = weight_bytes(shape, kind.weight)
    total: Floats = weights + shape["rows"] * widths * kind.activation
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms: tokens, and GPUs that share a width over those that share the experts."""
    return {
        "tokens": np.log2(np.maximum(shape["tokens"], 1.0)),
        "split": np.log2(shape["gpus"] / shape["ranks"]),
    }


def regime(shape: Shape) -> NDArray[np.str_]:
    """By tokens: a single one, decoding, larger batches, chunks of prompts, prompts."""
    names = np.array(
        ["1 token", "2 to 16 tokens", "17 to 256 tokens", "257 to 2048 tokens", "above"]
    )
    return names[np.searchsorted([2, 17, 257, 2049], shape["tokens"], side="right")]


def form(precision: str) -> Form:
    """The form of experts in ``precision``, a key of ``FORMATS`` (KeyError otherwise)."""
    seconds = partial(_seconds, FORMATS[precision])
    return Form("moe", VARIABLES, GROUP, PARAMETERS, seconds, coordinates, regime)


def _seconds(kind: ExpertFormat, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return parts(p, shape, ceilings, kind).total


def _inner(shape: Shape) -> Floats:
    """Columns of one expert on this GPU."""
    return shape["width"] / shape["gpus"]


def _waves(p: Parameters, shape: Shape, tiles: Floats, ceilings: Ceilings) -> tuple[Floats, Floats]:
    """Waves of the first product, into the inner width, and of the second."""
    into = (shape["matrices"] - 1) * _inner(shape)
    return (
        _filled(p, tiles * np.ceil(into / COLUMNS) / ceilings.sms),
        _filled(p, tiles * np.ceil(shape["hidden"] / COLUMNS) / ceilings.sms),
    )


def _filled(p: Parameters, waves: Floats) -> Floats:
    return waves + p["partial"] * (np.ceil(waves) - waves)


def _reading(p: Parameters, shape: Shape, ceilings: Ceilings, weight: float) -> Floats:
    """Seconds of reading the weights; what a benchmark finds in the cache again counts as less."""
    read = weight_bytes(shape, weight)
    if ceilings.cache:
        hits = 1 / (1 + (read / ceilings.cache) ** SHARP)
        read = read * (1 - hits + hits / p["cached"])
    seconds: Floats = read / (ceilings.bandwidth * p["bandwidth"])
    return seconds


def _activations(p: Parameters, shape: Shape, kind: ExpertFormat) -> Floats:
    """Bytes of activations, each as often as its parameter says."""
    one = kind.activation
    inner = one * (shape["hidden"] + shape["matrices"] * _inner(shape))
    own = shape["rows"] * (one * shape["hidden"] + inner)
    chosen = shape["tokens"] * shape["chosen"]
    every = shape["tokens"] * one * shape["hidden"] + chosen * inner
    total: Floats = p["moved"] * own + p["all"] * every
    return total
