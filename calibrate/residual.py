"""Makes a smooth table of the errors that a form leaves, and places its knots.

Errors are natural logarithms, knots are base-2 logarithms, as the forms' coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, vstack
from scipy.sparse.linalg import spsolve

from calibrate.data import Data
from sim.cost.kernels.form import Ceilings, Floats, Form, hat_weights
from sim.specs.profile import Residual

MOST_KNOTS = 6
MOST_CELLS = 200
"""Size of a residual table: knots on an axis, and in all."""

JUMPY_ROWS = 128
"""Rows up to which the products of a CPU jump from one number to the next."""

JUMPY_KNOTS, OTHER_KNOTS = 6, 3
"""Knots of the rows beyond, and of the other axes, where there is one for each of those."""

FEW_SIZES = 5
"""Up to this number of distinct sizes of a model's matrices have a knot each."""

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
    """The axes for products of a CPU: each number of rows that was measured has a knot of its own,
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


def residual_table(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    parameters: Mapping[str, float],
    axes: Mapping[str, tuple[float, ...]],
    ridge: float,
) -> Residual:
    """The smooth table that explains most of what ``parameters`` leave over.

    Least squares on the grid's corners, with a pull of ``ridge`` on the second differences along
    each axis and a tenth of it on the values: where nothing was measured the table goes to its
    neighbours, and then to no correction.
    """
    rest = np.log(data.seconds) - np.log(form.seconds(parameters, data.shape, ceilings))
    scale = max(2 * float(np.median(np.abs(rest))), 1e-6)
    weight = data.weight / np.sqrt(1 + (rest / scale) ** 2)  # outliers pull less
    sizes = [len(knots) for knots in axes.values()]
    total = int(np.prod(sizes))
    rows, columns, values = [], [], []
    for index, share in hat_weights(axes, form.coordinates(data.shape)):
        rows.append(np.arange(len(data)))
        columns.append(np.broadcast_to(index, len(data)))
        values.append(np.broadcast_to(share, len(data)))
    design = coo_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(len(data), total),
    ).tocsr()
    pull = vstack([*_second_differences(sizes), csr_matrix(np.sqrt(0.1) * np.eye(total))])
    root = design.multiply(np.sqrt(weight)[:, None]).tocsr()
    matrix = (root.T @ root + ridge * (pull.T @ pull)).tocsc()
    solution = spsolve(matrix, root.T @ (np.sqrt(weight) * rest))
    return Residual(dict(axes), tuple(np.round(solution, 4).tolist()))


def _second_differences(sizes: list[int]) -> list[csr_matrix]:
    """For each axis the operator that takes second differences along it."""
    grid = np.arange(int(np.prod(sizes))).reshape(sizes)
    found = []
    for axis, size in enumerate(sizes):
        if size < 3:
            continue
        left, middle, right = (
            np.take(grid, range(i, size - 2 + i), axis=axis).reshape(-1) for i in range(3)
        )
        rows = np.arange(len(left))
        ones = np.ones(len(left))
        found.append(
            coo_matrix(
                (
                    np.concatenate([ones, -2 * ones, ones]),
                    (np.tile(rows, 3), np.concatenate([left, middle, right])),
                ),
                shape=(len(left), grid.size),
            ).tocsr()
        )
    return found
