"""Fits a form's parameters, and estimates its error on shapes that it has not seen.

Errors are logarithms of predicted over measured, so that a microsecond and a second weigh the same
and twice as slow is as bad as twice as fast. Least squares with a soft-L1 loss (scipy) limits the
pull of outliers. Points are held out by shape, never at random: neighbours of a held-out point
that share its shape would give the answer away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibrate.data import Data
from calibrate.residual import residual_table
from sim.cost.kernels.form import Ceilings, Floats, Form, interpolate
from sim.rng import stream
from sim.specs.profile import KernelFit, Score

HELD_OUT = 0.2
"""Share of the shapes that the fit does not see."""

TOLERANCE = 0.05
"""Scale of the soft-L1 loss: errors well beyond 5 % count linearly, not squared."""

PROGRESS = 1e-5
"""A step that improves the loss or moves the parameters by less than this share ends the fit."""

FOLDS = 4
WORTH = 0.98
"""A residual table is kept if it lowers the cross-validated error at least to this share."""


class FitTrial(NamedTuple):
    """How a residual table is tried: candidate strengths of its smoothing, of which
    cross-validation chooses, and by how many standard errors over the shapes it has to be
    better."""

    ridges: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    sure: float = 3.0


SMOOTH = FitTrial()
JUMPY = FitTrial((0.003,), 1.0)
"""For kernels that jump between neighbouring sizes: a table that follows them at the shapes that
were measured, as long as shapes that were not are rather better off with it."""

ENOUGH = 7000
"""Points that settle a form's parameters: of larger tables as many are drawn, which makes the fit
several times quicker and moved no parameter of a GEMM fit beyond its interval."""


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
    judged: NDArray[np.bool_] | None = None,
    trial: FitTrial = SMOOTH,
) -> KernelFit:
    """Fit ``form`` to ``data``: scored on held-out shapes, then fitted once more to all points.

    ``axes`` gives the knots of a residual table; it is used where it lowers the error in
    cross-validation over shapes, as ``trial`` has it. With ``judged`` the score is of these points,
    each of them predicted by one of ``FOLDS`` fits that had not seen its shape; without, of a fifth
    of the shapes. Raises ValueError with fewer than three shapes to tell apart (two with
    ``judged``), or nothing to judge.
    """
    least, word = (3, "three") if judged is None else (2, "two")
    if groups(form, data).max() + 1 < least:
        raise ValueError(f"{form.operator}: at least {word} shapes are needed to hold one out")
    if judged is not None and not judged.any():
        raise ValueError(f"{form.operator}: no point to judge the fit by")
    out = split(form, data, seed)
    known = data.take(~out)
    parameters, _ = solve(form, known, ceilings)
    ridge = None
    if axes is not None:
        ridge = choose_ridge(form, known, ceilings, parameters, axes, seed, trial)
    if judged is None:
        unseen = data.take(out)
        found = _assembled(form, known, ceilings, parameters, axes, ridge)
        predicted = form.predict(found, unseen.shape, ceilings)
    else:
        unseen = data.take(judged)
        predicted = cross_predict(form, data, ceilings, parameters, axes, ridge, seed)[judged]
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


def cross_predict(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    start: Mapping[str, float],
    axes: Mapping[str, tuple[float, ...]] | None = None,
    ridge: float | None = None,
    seed: int = 0,
) -> Floats:
    """Seconds of every point, each by a fit to the folds that its shape is not in.

    The fits begin at ``start``, which only makes them quicker.
    """
    fold = folds(form, data, seed)
    predicted = np.zeros(len(data))
    for number in np.unique(fold):
        unseen = fold == number
        known = data.take(~unseen)
        parameters, _ = solve(form, known, ceilings, start)
        trial = _assembled(form, known, ceilings, parameters, axes, ridge)
        predicted[unseen] = form.predict(trial, data.take(unseen).shape, ceilings)
    return predicted


def folds(form: Form, data: Data, seed: int = 0) -> NDArray[np.int64]:
    """One of ``FOLDS`` numbers for each point, the same for all points of a shape."""
    group = groups(form, data)
    drawn = stream(seed, f"folds/{form.operator}").permutation(int(group.max()) + 1)
    return np.asarray(drawn[group] % FOLDS)


def solve(
    form: Form, data: Data, ceilings: Ceilings, start: Mapping[str, float] | None = None
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Parameters of least robust error, and a 95 % interval for each from the curvature there.

    A parameter whose bounds are equal is given, not fitted. Of more than ``ENOUGH`` points, as many
    are drawn.
    """
    if len(data) > ENOUGH:
        chosen = np.zeros(len(data), dtype=bool)
        chosen[stream(0, f"sample/{form.operator}").permutation(len(data))[:ENOUGH]] = True
        data = data.take(chosen)
    given = {spec.name: spec.low for spec in form.parameters if spec.low == spec.high}
    specs = [spec for spec in form.parameters if spec.low < spec.high]
    forward = [np.log if spec.log else float for spec in specs]
    back = [np.exp if spec.log else float for spec in specs]
    low = np.array([f(spec.low) for f, spec in zip(forward, specs, strict=True)])
    high = np.array([f(spec.high) for f, spec in zip(forward, specs, strict=True)])
    first = {spec.name: spec.start for spec in specs} if start is None else start
    x0 = np.array([f(first[spec.name]) for f, spec in zip(forward, specs, strict=True)])
    x0 = np.clip(x0, low + 1e-9, high - 1e-9)
    target, weight = np.log(data.seconds), np.sqrt(data.weight)
    ordered = form.parameters

    def named(x: Floats) -> dict[str, float]:
        free = {s.name: float(g(v)) for s, g, v in zip(specs, back, x, strict=True)}
        return {spec.name: given.get(spec.name, free.get(spec.name, 0.0)) for spec in ordered}

    def errors(x: Floats) -> Floats:
        predicted = form.seconds(named(x), data.shape, ceilings)
        return np.asarray(weight * (np.log(predicted) - target))

    found = least_squares(
        errors,
        x0,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=TOLERANCE,
        x_scale="jac",
        ftol=PROGRESS,
        xtol=PROGRESS,
    )
    half = 1.96 * _deviations(found.jac, found.fun)
    x = np.where(np.isfinite(half), found.x, x0)  # what the data do not touch stays put,
    if not np.allclose(errors(x), found.fun, atol=1e-9):  # unless it led the others elsewhere
        x = found.x
    below, above = np.maximum(x - half, low), np.minimum(x + half, high)
    intervals = {
        spec.name: (float(g(a)), float(g(b)))
        for spec, g, a, b in zip(specs, back, below, above, strict=True)
    }
    return named(x), intervals


def _deviations(jacobian: Floats, errors: Floats) -> Floats:
    """Standard deviation of each parameter; infinite for one that changes nothing."""
    variance = float((errors**2).sum()) / max(1, len(errors) - jacobian.shape[1])
    length = np.sqrt((jacobian**2).sum(axis=0))
    scaled = jacobian / np.where(length > 0, length, 1)  # or the inverse drops the small ones
    diagonal = np.diag(np.linalg.pinv(scaled.T @ scaled)) * variance
    unknown = np.full(len(length), np.inf)
    known = np.sqrt(np.maximum(diagonal, 0))
    return np.asarray(np.divide(known, length, out=unknown, where=length > 0))


def choose_ridge(
    form: Form,
    data: Data,
    ceilings: Ceilings,
    parameters: Mapping[str, float],
    axes: Mapping[str, tuple[float, ...]],
    seed: int = 0,
    trial: FitTrial = SMOOTH,
) -> float | None:
    """The smoothing with the least cross-validated error over shapes; None: better without.

    Error is the geometric mean of median and 90th percentile: neither the bulk nor the tail may
    pay for the other. Beyond ``WORTH`` the gain has to be more than chance would give, judged by
    how it varies from shape to shape.
    """
    fold = folds(form, data, seed)
    plain = form.seconds(parameters, data.shape, ceilings)
    coordinates = form.coordinates(data.shape)
    best, chosen = WORTH * _typical(plain, data.seconds), None
    for ridge in trial.ridges:
        correction = np.zeros(len(data))
        for number in np.unique(fold):
            unseen = fold == number
            if unseen.all():
                continue
            table = residual_table(form, data.take(~unseen), ceilings, parameters, axes, ridge)
            at = {name: column[unseen] for name, column in coordinates.items()}
            correction[unseen] = interpolate(table, at)
        corrected = plain * np.exp(correction)
        error = _typical(corrected, data.seconds)
        gain = _gain(plain, corrected, data.seconds, groups(form, data))
        if error < best and gain > trial.sure:
            best, chosen = error, ridge
    return chosen


def _typical(predicted: Floats, measured: Floats) -> float:
    found = score(predicted, measured)
    return float(np.sqrt(found.median * found.p90))


def _gain(plain: Floats, other: Floats, measured: Floats, group: NDArray[np.int64]) -> float:
    """By how many standard errors over the groups ``other`` errs less."""
    gain = np.abs(np.log(plain / measured)) - np.abs(np.log(other / measured))
    means = np.bincount(group, gain) / np.bincount(group)
    return float(means.mean() / max(means.std() / np.sqrt(len(means)), 1e-12))


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
