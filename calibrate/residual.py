"""Makes a smooth table of the errors that a form leaves. Errors are logarithms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, vstack
from scipy.sparse.linalg import spsolve

from calibrate.data import Data
from sim.cost.kernels.form import Ceilings, Form, hat_weights
from sim.profile import Residual


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
