"""How are a form's parameters found, and how wrong is it on shapes it has not seen?

Errors are logarithms of predicted over measured, so that a microsecond and a second weigh the same
and twice as slow is as bad as twice as fast. Least squares with a soft-L1 loss (scipy) keeps
outliers from pulling. Points are held out by shape, never at random: neighbours of a held-out point
that share its shape would give the answer away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.sparse import coo_matrix, csr_matrix, vstack
from scipy.sparse.linalg import spsolve

from sim.cost.kernels.form import Ceilings, Floats, Form, hat_weights, interpolate
from sim.profile import KernelFit, Residual, Score
from sim.rng import stream

HELD_OUT = 0.2
"""Share of the shapes that the fit does not see."""

TOLERANCE = 0.05
"""Scale of the soft-L1 loss: errors well beyond 5 % count linearly, not squared."""

FOLDS = 4
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Candidate strengths of the residual table's smoothing; cross-validation chooses."""

WORTH = 0.98
"""A residual table is kept if it lowers the cross-validated median error at least to this share."""


@dataclass(frozen=True, slots=True)
class Data:
    """Measurements of one operator in one precision: columns by variable, and seconds.

    ``weight`` counts a point more or less than others (all alike without it).
    """

    shape: Mapping[str, Floats]
    seconds: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: NDArray[np.bool_]) -> Data:
        """The chosen points."""
        columns = {name: column[chosen] for name, column in self.shape.items()}
        return Data(columns, self.seconds[chosen], self.weight[chosen])


def groups(form: Form, data: Data) -> NDArray[np.int64]:
    """Number of the shape that each point belongs to."""
    columns = np.column_stack([data.shape[name] for name in form.group])
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1]).reshape(-1)


def split(form: Form, data: Data, seed: int = 0) -> NDArray[np.bool_]:
    """Which points are held out: all of a fifth of the shapes, drawn under ``seed``."""
    group = groups(form, data)
    count = int(group.max()) + 1
    drawn = stream(seed, f"holdout/{form.operator}").permutation(count)
    return np.isin(group, drawn[: max(1, round(HELD_OUT * count))])


def score(predicted: Floats, measured: Floats) -> Score:
    """Median and 90th percentile of the relative error, and its bias."""
    error = predicted / measured - 1
    size = np.abs(error)
    return Score(
        float(np.median(size)),
        float(np.percentile(size, 90)),
        float(np.median(error)),
        len(error),
    )


def fit(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    *,
    axes: Mapping[str, tuple[float, ...]] | None = None,
    kernel: str = "",
    seed: int = 0,
) -> KernelFit:
    """Fit ``form`` to ``data``: scored on held-out shapes, then fitted once more to all points.

    ``axes`` gives the knots of a residual table; it is used where it lowers the error in
    cross-validation over shapes. Raises ValueError with fewer than three shapes to tell apart.
    """
    if groups(form, data).max() < 2:
        raise ValueError(f"{form.operator}: at least three shapes are needed to hold one out")
    out = split(form, data, seed)
    known, unseen = data.take(~out), data.take(out)
    parameters, _ = solve(form, known, ceilings)
    ridge = None if axes is None else choose_ridge(form, known, ceilings, parameters, axes, seed)
    trial = _assembled(form, known, ceilings, parameters, axes, ridge)
    predicted = form.price(trial, unseen.shape, ceilings)
    regimes = form.regime(unseen.shape)
    final, intervals = solve(form, data, ceilings, start=parameters)
    whole = _assembled(form, data, ceilings, final, axes, ridge)
    return KernelFit(
        parameters=final,
        ranges={n: (float(c.min()), float(c.max())) for n, c in data.shape.items()},
        holdout=score(predicted, unseen.seconds),
        intervals=intervals,
        regimes={
            str(name): score(predicted[regimes == name], unseen.seconds[regimes == name])
            for name in np.unique(regimes)
        },
        residual=whole.residual,
        kernel=kernel,
    )


def solve(
    form: Form, data: Data, ceilings: Ceilings, start: Mapping[str, float] | None = None
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Parameters of least robust error, and a 95 % interval for each from the curvature there."""
    specs = form.parameters
    forward = [np.log if spec.log else float for spec in specs]
    back = [np.exp if spec.log else float for spec in specs]
    low = np.array([f(spec.low) for f, spec in zip(forward, specs, strict=True)])
    high = np.array([f(spec.high) for f, spec in zip(forward, specs, strict=True)])
    first = {spec.name: spec.start for spec in specs} if start is None else start
    x0 = np.array([f(first[spec.name]) for f, spec in zip(forward, specs, strict=True)])
    x0 = np.clip(x0, low + 1e-9, high - 1e-9)
    target, weight = np.log(data.seconds), np.sqrt(data.weight)

    def named(x: Floats) -> dict[str, float]:
        return {s.name: float(g(v)) for s, g, v in zip(specs, back, x, strict=True)}

    def errors(x: Floats) -> Floats:
        predicted = form.seconds(named(x), data.shape, ceilings)
        return np.asarray(weight * (np.log(predicted) - target))

    found = least_squares(
        errors, x0, bounds=(low, high), loss="soft_l1", f_scale=TOLERANCE, x_scale="jac"
    )
    degrees = max(1, len(data) - len(specs))
    variance = float((found.fun**2).sum()) / degrees
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * variance
    half = 1.96 * np.sqrt(np.diag(covariance))
    below, above = np.maximum(found.x - half, low), np.minimum(found.x + half, high)
    intervals = {
        spec.name: (float(g(a)), float(g(b)))
        for spec, g, a, b in zip(specs, back, below, above, strict=True)
    }
    return named(found.x), intervals


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


def choose_ridge(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    parameters: Mapping[str, float],
    axes: Mapping[str, tuple[float, ...]],
    seed: int = 0,
) -> float | None:
    """The smoothing with the least cross-validated error over shapes; None: better without."""
    group = groups(form, data)
    fold = stream(seed, f"folds/{form.operator}").permutation(int(group.max()) + 1)[group] % FOLDS
    plain = form.seconds(parameters, data.shape, ceilings)
    bare = score(plain, data.seconds).median
    best, chosen = WORTH * bare, None
    for ridge in RIDGES:
        correction = np.zeros(len(data))
        for number in range(FOLDS):
            unseen = fold == number
            if not unseen.any() or unseen.all():
                continue
            table = residual_table(form, data.take(~unseen), ceilings, parameters, axes, ridge)
            correction[unseen] = interpolate(table, form.coordinates(data.take(unseen).shape))
        error = score(plain * np.exp(correction), data.seconds).median
        if error < best:
            best, chosen = error, ridge
    return chosen


def _assembled(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    parameters: Mapping[str, float],
    axes: Mapping[str, tuple[float, ...]] | None,
    ridge: float | None,
) -> KernelFit:
    """The fit with its residual table, if one was chosen, and nothing said of its error yet."""
    table = None
    if axes is not None and ridge is not None:
        table = residual_table(form, data, ceilings, parameters, axes, ridge)
    return KernelFit(dict(parameters), {}, Score(0.0, 0.0, 0.0, 0), residual=table)
