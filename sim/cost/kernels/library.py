"""Predicts what the general library (NCCL) takes for a collective over the GPUs of one node, in s.

``g`` GPUs: ``ring_floor + ring_step (g-1)``, and the bytes that each sends at a rate of its own for
2, 4 and 8 GPUs (``ring4`` and ``ring8`` are ratios to that of two; in between logarithmic). A
``knee`` makes middling tensors slower: its square root over the tensor's bytes is added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Parameter, Parameters, Shape

PARAMETERS = (
    Parameter("ring_floor", 1e-7, 6e-6, 1e-3, "s", "library, however small the tensor"),
    Parameter("ring_step", 1e-9, 2e-6, 1e-4, "s", "library, each GPU beyond the first"),
    Parameter(
        "ring_share", 0.02, 0.8, 10.0, "1", "share of the link that the library reaches on 2"
    ),
    Parameter("ring4", 0.05, 1.0, 3.0, "1", "the same on 4 GPUs, over that on 2"),
    Parameter("ring8", 0.02, 1.0, 3.0, "1", "the same on 8 GPUs, over that on 2"),
    Parameter("knee", 1.0, 1e5, 1e9, "bytes", "size at which the library reaches half its rate"),
)


def seconds(p: Parameters, shape: Shape, ceilings: Ceilings, sent: Floats) -> Floats:
    """A tensor of ``bytes`` over ``gpus``, of which each GPU sends ``sent`` bytes.

    The ceilings' ``bandwidth`` is the link's, bytes/s per GPU in one direction.
    """
    ratio = np.exp(
        np.interp(np.log2(shape["gpus"]), [1, 2, 3], np.log([1.0, p["ring4"], p["ring8"]]))
    )
    transfer = sent / (ceilings.bandwidth * p["ring_share"] * ratio)
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
