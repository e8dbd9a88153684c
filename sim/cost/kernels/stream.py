"""Predicts operators that only move data: norms, activations, rotary embedding, residuals, copies.

A launch, and then bytes at a bandwidth that small tensors do not reach: ``latency + bytes /
(bandwidth * share)``, smoothed where the first bytes travel while the launch is still paid for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape

PARAMETERS = (
    Parameter("latency", 1e-8, 2e-6, 1e-3, "s", "what the operator takes however little it moves"),
    Parameter("share", 0.01, 0.7, 1.5, "1", "share of the memory bandwidth that large tensors see"),
    Parameter("blend", 1.0, 2.0, 8.0, "1", "exponent of the p-norm of the two: 1 adds them up"),
)


def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    """``bytes`` read and written once in all."""
    moving = shape["bytes"] / (ceilings.bandwidth * p["share"])
    total: Floats = (p["latency"] ** p["blend"] + moving ** p["blend"]) ** (1 / p["blend"])
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """The size alone."""
    return {"bytes": np.log2(shape["bytes"])}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By size."""
    names = np.array(["below 1 MB", "1 to 32 MB", "from 32 MB"])
    return names[np.searchsorted([1e6, 32e6], shape["bytes"], side="right")]


def form(operator: str) -> Form:
    """The form of one such operator, by its name."""
    return Form(operator, ("bytes",), ("bytes",), PARAMETERS, seconds, coordinates, regime)
