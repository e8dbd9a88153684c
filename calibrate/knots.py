"""Places the knots of a residual table. Base-2 logarithms, as the forms' coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from calibrate.data import Data
from sim.cost.kernels.form import Floats, Form

MOST_KNOTS = 6
MOST_CELLS = 200
"""Size of a residual table: knots on an axis, and in all."""

JUMPY_ROWS = 128
"""Rows up to which the products of a CPU jump from one number to the next."""

JUMPY_KNOTS, OTHER_KNOTS = 6, 3
"""Knots of the rows beyond, and of the other axes, where there is one for each of those."""

FEW_SIZES = 5
"""As many distinct sizes of a model's matrices have a knot each."""

Axes = Mapping[str, tuple[float, ...]]


def axes_of(form: Form, data: Data) -> Axes | None:
    """Quantiles of each coordinate, fewer of them the more coordinates vary. None where nothing
    varies enough."""
    varied = _varied(form, data)
    if not varied:
        return None
    knots = MOST_KNOTS
    while knots > 2 and knots ** len(varied) > min(MOST_CELLS, len(data) / 2):
        knots -= 1
    axes = {name: _quantiles(values, knots) for name, values in varied.items()}
    return axes if np.prod([len(axis) for axis in axes.values()]) <= MOST_CELLS else None


def jumpy_axes_of(form: Form, data: Data) -> Axes | None:
    """The same for products of a CPU: each number of rows that was measured has a knot of its own,
    up to ``JUMPY_ROWS``."""
    axes = {
        name: _quantiles(v, len(v) if len(v) <= FEW_SIZES else OTHER_KNOTS)
        for name, v in _varied(form, data).items()
    }
    if "m" not in axes:
        return axes or None
    rows = np.unique(np.round(form.coordinates(data.shape)["m"], 6))
    few, many = rows[rows <= math.log2(JUMPY_ROWS)], rows[rows > math.log2(JUMPY_ROWS)]
    beyond = _quantiles(many, JUMPY_KNOTS) if len(many) else ()
    axes["m"] = (*np.round(few, 3).tolist(), *beyond)
    return axes


def _varied(form: Form, data: Data) -> dict[str, Floats]:
    """The distinct values of each coordinate that has more than one."""
    found = {n: np.unique(np.round(c, 6)) for n, c in form.coordinates(data.shape).items()}
    return {name: values for name, values in found.items() if len(values) > 1}


def _quantiles(values: Floats, knots: int) -> tuple[float, ...]:
    shares = np.linspace(0, 1, knots)
    return tuple(np.unique(np.round(np.quantile(values, shares), 3)).tolist())
