"""Predicts the time of an all-reduce: the sum of a tensor over the GPUs of one node, in seconds.

Three ways to do it, ``g`` GPUs and ``S`` bytes on each:

- one shot: every GPU reads the tensor of every other; ``(g-1) S`` over the link, joined by a p-norm
  with the barrier, ``one_floor + one_step (g-1)``
- two shots: each GPU sums its part and then reads the others' parts, ``2 (g-1)/g S``, after
  ``two_floor + two_step log2 g``
- the general library (NCCL): ``ring_floor + ring_step (g-1)`` and ``2 (g-1)/g S`` at a rate of its
  own for 2, 4 and 8 GPUs (``ring4`` and ``ring8`` are ratios to that of two; in between
  logarithmic); a ``knee`` makes middling tensors slower: its square root over S is added

The first two are kernels of the serving frameworks for tensors of up to ``limit`` bytes, and the
better one is taken; beyond, the library does it. Without NVLink those kernels join two GPUs only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape

PARAMETERS = (
    Parameter("one_floor", 1e-7, 4e-6, 1e-3, "s", "one shot, however small the tensor"),
    Parameter("one_step", 1e-9, 1e-7, 1e-4, "s", "one shot, each GPU beyond the first"),
    Parameter("one_share", 0.02, 0.6, 10.0, "1", "share of the link that one shot reaches"),
    Parameter("one_blend", 1.0, 1.5, 8.0, "1", "exponent of the p-norm of barrier and transfer"),
    Parameter("two_floor", 1e-7, 5e-6, 1e-3, "s", "two shots, however small the tensor"),
    Parameter("two_step", 1e-9, 1e-6, 1e-4, "s", "two shots, each doubling of the GPUs"),
    Parameter("two_share", 0.02, 0.6, 10.0, "1", "share of the link that two shots reach"),
    Parameter("limit", 1e4, 8.4e6, 1e10, "bytes", "largest tensor of the frameworks' kernels"),
    Parameter("ring_floor", 1e-7, 6e-6, 1e-3, "s", "library, however small the tensor"),
    Parameter("ring_step", 1e-9, 2e-6, 1e-4, "s", "library, each GPU beyond the first"),
    Parameter(
        "ring_share", 0.02, 0.8, 10.0, "1", "share of the link that the library reaches on 2"
    ),
    Parameter("ring4", 0.05, 1.0, 3.0, "1", "the same on 4 GPUs, over that on 2"),
    Parameter("ring8", 0.02, 1.0, 3.0, "1", "the same on 8 GPUs, over that on 2"),
    Parameter("knee", 1.0, 1e5, 1e9, "bytes", "size at which the library reaches half its rate"),
)

SHARPNESS = 12.0
"""How suddenly kernels change at ``limit``: within a few percent of the size."""


def moved_bytes(shape: Shape) -> Floats:
    """Bytes that each GPU has to send: its share of the sum, and the sum of its share."""
    total: Floats = 2 * (shape["gpus"] - 1) / shape["gpus"] * shape["bytes"]
    return total


def form(link: str) -> Form:
    """The form for a ``link`` of that kind ("nvlink", "pcie").

    The ceilings' ``bandwidth`` is the link's, bytes/s per GPU in one direction.
    """
    everywhere = link == "nvlink"

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        own = np.minimum(_one_shot(p, shape, ceilings), _two_shots(p, shape, ceilings))
        beyond = 1 / (1 + (p["limit"] / shape["bytes"]) ** SHARPNESS)
        if not everywhere:
            beyond = np.where(shape["gpus"] > 2, 1.0, beyond)
        total: Floats = (1 - beyond) * own + beyond * _library(p, shape, ceilings)
        return total

    return Form(
        "all_reduce",
        ("bytes", "gpus"),
        ("bytes",),
        PARAMETERS,
        seconds,
        coordinates,
        regime,
    )


def _one_shot(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    others = shape["gpus"] - 1
    barrier = p["one_floor"] + p["one_step"] * others
    transfer = others * shape["bytes"] / (ceilings.bandwidth * p["one_share"])
    total: Floats = (barrier ** p["one_blend"] + transfer ** p["one_blend"]) ** (1 / p["one_blend"])
    return total


def _two_shots(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    barriers = p["two_floor"] + p["two_step"] * np.log2(shape["gpus"])
    total: Floats = barriers + moved_bytes(shape) / (ceilings.bandwidth * p["two_share"])
    return total


def _library(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    ratio = np.exp(
        np.interp(np.log2(shape["gpus"]), [1, 2, 3], np.log([1.0, p["ring4"], p["ring8"]]))
    )
    transfer = moved_bytes(shape) / (ceilings.bandwidth * p["ring_share"] * ratio)
    ramp = 1 + np.sqrt(p["knee"] / shape["bytes"])
    total: Floats = p["ring_floor"] + p["ring_step"] * (shape["gpus"] - 1) + transfer * ramp
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of both."""
    return {"bytes": np.log2(shape["bytes"]), "gpus": np.log2(shape["gpus"])}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By size."""
    names = np.array(["below 64 kB", "64 kB to 1 MB", "1 to 16 MB", "from 16 MB"])
    return names[np.searchsorted([64e3, 1e6, 16e6], shape["bytes"], side="right")]
