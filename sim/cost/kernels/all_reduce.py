"""Predicts the time of an all-reduce: the sum of a tensor over the GPUs of one node, in seconds.

Three ways to do it, ``g`` GPUs and ``S`` bytes on each:

- one shot: every GPU reads the tensor of every other; ``(g-1) S`` over the link, joined by a p-norm
  with the barrier, ``one_floor + one_step (g-1)``
- two shots: each GPU sums its part and then reads the others' parts, ``2 (g-1)/g S``, after
  ``two_floor + two_step log2 g``
- the general library (NCCL, ``library``): ``2 (g-1)/g S`` at a rate of its own

The first two are kernels of the serving frameworks for tensors of up to ``limit`` bytes, and the
better one is taken; beyond, the library does it. Without NVLink those kernels join two GPUs only.
"""

from __future__ import annotations

import numpy as np

from sim.cost.kernels import library
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
    *library.PARAMETERS,
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
        other = library.seconds(p, shape, ceilings, moved_bytes(shape))
        total: Floats = (1 - beyond) * own + beyond * other
        return total

    return Form(
        "all_reduce",
        ("bytes", "gpus"),
        ("bytes",),
        PARAMETERS,
        seconds,
        library.coordinates,
        library.regime,
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
