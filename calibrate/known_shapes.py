"""Fits what a form leaves over at each shape that was measured: a small table for each of them.

Neighbours of a shape say little of it where a library has a kernel tuned to it. So these tables are
kept apart from the form, whose error on shapes held out does not know them; their own error is on
points of the shape that were held out, all that differ in nothing but ``apart`` together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibrate.data import Data
from calibrate.fit import FOLDS, groups, score
from calibrate.residual import residual_table
from sim.cost.kernels.form import Ceilings, Floats, Form, interpolate
from sim.rng import stream
from sim.specs.profile import KernelFit, KnownShapes

RIDGES = (0.03, 0.1, 0.3, 1.0)
"""Strengths of the smoothing to choose from."""

MOST = 2.0
"""Timings of more than that many times what the form says, or less than its share, are left to it:
some tables have rows of a kernel that was chosen wrongly."""

Axes = Mapping[str, tuple[float, ...]]


def with_known(
    found: KernelFit,
    form: Form,
    data: Data,
    ceilings: Ceilings,
    axes: Axes,
    at: Sequence[str],
    judged: NDArray[np.bool_] | None = None,
    ridges: Sequence[float] = RIDGES,
) -> KernelFit:
    """``found`` with tables of every shape of ``data``, over ``axes`` as far as there are points.

    Points that agree in the variables ``at`` are held out together, to choose from ``ridges``. The
    error is that of the ``judged`` points, of all without it.
    """
    judged = np.ones(len(data), dtype=bool) if judged is None else judged
    where = form.coordinates(data.shape)
    axes = {name: _around(knots, where[name]) for name, knots in axes.items()}
    plain = replace(found, residual=None)
    shape = groups(form, data)
    fold = _folds(data, [shape, *(data.shape[name] for name in at)])
    errors = {}
    for ridge in ridges:
        predicted = np.zeros(len(data))
        for number in range(FOLDS):
            out = fold == number
            tables = _tables(plain, form, data.take(~out), ceilings, axes, ridge)
            predicted[out] = _corrected(plain, form, data.take(out), ceilings, axes, tables)
        errors[ridge] = score(predicted[judged], data.seconds[judged])
    best = min(errors, key=lambda ridge: errors[ridge].median * errors[ridge].p90)
    tables = _tables(plain, form, data, ceilings, axes, best)
    return replace(found, known=KnownShapes(form.group, dict(axes), tables, errors[best]))


def _around(knots: tuple[float, ...], values: Floats) -> tuple[float, ...]:
    """The knots between which the values lie."""
    low = max((k for k in knots if k <= values.min()), default=knots[0])
    high = min((k for k in knots if k >= values.max()), default=knots[-1])
    return tuple(k for k in knots if low <= k <= high)


def _folds(data: Data, columns: Sequence[NDArray[np.generic]]) -> NDArray[np.int64]:
    """One of ``FOLDS`` numbers for each point, the same where all ``columns`` agree."""
    found = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
    drawn = stream(0, "known shapes/folds").permutation(int(found.max()) + 1)
    return np.asarray(drawn[found] % FOLDS)


def _tables(
    fit: KernelFit, form: Form, data: Data, ceilings: Ceilings, axes: Axes, ridge: float
) -> dict[tuple[float, ...], tuple[float, ...]]:
    """The table of each shape."""
    tables = {}
    off = np.log(data.seconds / form.seconds(fit.parameters, data.shape, ceilings))
    data = data.take(np.abs(off) < np.log(MOST))
    shape = groups(form, data)
    for number in np.unique(shape):
        own = data.take(shape == number)
        name = tuple(float(own.shape[each][0]) for each in form.group)
        table = residual_table(form, own, ceilings, fit.parameters, axes, ridge)
        tables[name] = table.values
    return tables


def _corrected(
    fit: KernelFit,
    form: Form,
    data: Data,
    ceilings: Ceilings,
    axes: Axes,
    tables: dict[tuple[float, ...], tuple[float, ...]],
) -> Floats:
    """Seconds of every point with the table of its shape, if it has one."""
    seconds = np.array(form.seconds(fit.parameters, data.shape, ceilings))
    known = KnownShapes(form.group, axes, tables, fit.holdout)
    shape = groups(form, data)
    for number in np.unique(shape):
        own = shape == number
        part = data.take(own)
        residual = known.find({each: float(part.shape[each][0]) for each in form.group})
        if residual is not None:
            seconds[own] *= np.exp(interpolate(residual, form.coordinates(part.shape)))
    return seconds
