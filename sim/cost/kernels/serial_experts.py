"""Predicts the experts of a layer where one is computed after the other, as on a CPU. Seconds.

From the router's scores to the sum of the results, as ``sim.cost.kernels.moe``, but without tiles.
Each expert that has rows multiplies them by its matrices as ``serial.product`` does: ``half`` rows'
worth of arithmetic are lost each time, and there are calls of its own (``expert``). A single row is
a vector, for which libraries have another kernel: it counts as ``alone`` rows.

    busy     = 2 x (rows - single + half x (touched - single) + alone x single)
               x hidden x columns of all matrices / (peak x compute)
    memory   = weights of the experts touched / (bandwidth x share)
    seconds  = latency + expert x touched + token x tokens + p-norm(busy, memory; norm)
               + moved x activations of the rows / bandwidth
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sim.cost.kernels import moe
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape

PARAMETERS = (
    Parameter("latency", 1e-6, 5e-5, 1e-2, "s", "a call, however little it computes"),
    Parameter("expert", 1e-7, 2e-5, 1e-2, "s", "the calls of each expert that has rows"),
    Parameter("token", 1e-9, 1e-6, 1e-3, "s", "choosing a token's experts, sorting its rows"),
    Parameter("compute", 1e-3, 0.8, 1.2, "1", "share of the peak FLOP/s with many rows"),
    Parameter("bandwidth", 1e-2, 0.6, 1.5, "1", "share of the peak bandwidth that weights see"),
    Parameter("half", 1e-3, 4.0, 512.0, "rows", "rows of an expert at half the rate of many"),
    Parameter("alone", 0.1, 5.0, 512.0, "rows", "what an expert's only row counts as"),
    Parameter("norm", 1.0, 2.0, 12.0, "1", "exponent that joins the two: 1 adds them up"),
    Parameter("moved", 1e-3, 2.0, 100.0, "1", "activations, in times of moving them once"),
)


def parts(p: Parameters, shape: Shape, ceilings: Ceilings, precision: str) -> moe.ExpertParts:
    """Seconds by cause."""
    held = moe.FORMATS[precision]
    columns = shape["matrices"] * (shape["width"] / shape["gpus"])
    several = shape["rows"] - shape["single"] + p["half"] * (shape["touched"] - shape["single"])
    rows = several + p["alone"] * shape["single"]
    busy = 2 * rows * shape["hidden"] * columns / (ceilings.peak * p["compute"])
    memory = moe.weight_bytes(shape, held.weight) / (ceilings.bandwidth * p["bandwidth"])
    longer, shorter = np.maximum(busy, memory), np.minimum(busy, memory)
    both = longer * (1 + (shorter / longer) ** p["norm"]) ** (1 / p["norm"])
    widths = 2 * shape["hidden"] + columns
    moving = p["moved"] * shape["rows"] * widths * held.activation / ceilings.bandwidth
    calls = p["latency"] + p["expert"] * shape["touched"] + p["token"] * shape["tokens"]
    return moe.ExpertParts(busy, memory, calls + both + moving)


VARIABLES = (*moe.VARIABLES[: -len(moe.TILES)], "single")
"""Variables of ``moe`` without the tiles, and the experts that have a single row."""


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithm of the rows of an expert that has some, on average."""
    return {"each": np.log2(shape["rows"] / shape["touched"])}


def form(precision: str) -> Form:
    """The form of experts in ``precision``, a key of ``moe.FORMATS`` (KeyError otherwise)."""
    seconds = partial(_seconds, precision)
    return Form(*("moe", VARIABLES, moe.GROUP, PARAMETERS, seconds, coordinates, moe.regime))


def _seconds(precision: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return parts(p, shape, ceilings, precision).total
