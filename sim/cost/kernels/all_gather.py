"""Predicts the time of an all-gather or a reduce-scatter over the GPUs of one node, in seconds.

An all-gather brings the parts of a tensor together on each of ``g`` GPUs, a reduce-scatter sums
tensors and leaves each GPU a part: either way ``(g-1)/g`` of the tensor's bytes leave each GPU, by
the general library. ``most`` is no part of the formula: it says up to how many GPUs it was timed.
"""

from __future__ import annotations

from sim.cost.kernels import library
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape

PARAMETERS = (
    *library.PARAMETERS,
    Parameter("most", 8.0, 8.0, 8.0, "1", "GPUs of the largest one that was timed"),
)


def moved_bytes(shape: Shape) -> Floats:
    """Bytes that each GPU has to send: all but one part of the whole tensor of ``bytes``."""
    total: Floats = (shape["gpus"] - 1) / shape["gpus"] * shape["bytes"]
    return total


def form(operator: str) -> Form:
    """The form of one of ``sim.specs.profile.GATHERS``."""
    return Form(
        operator,
        ("bytes", "gpus"),
        ("bytes",),
        PARAMETERS,
        _seconds,
        library.coordinates,
        library.regime,
    )


def _seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    return library.seconds(p, shape, ceilings, moved_bytes(shape))
