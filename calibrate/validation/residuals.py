"""Finds the few terms of the cost model that explain how observed iterations differ from it.

Robust regression of the residuals, a term at a time as long as one helps. Terms that explain nearly
as much as the one taken are named with it: this run cannot tell them apart. Seconds, and
relative changes of kernels.

Some iterations are odd and most are decodes: large errors count by their size only (soft L1), and
iterations with prompts and those without weigh the same in sum, however few there are of one kind.
TTFT depends on the former, TPOT on the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibrate.validation.expected import Expected
from calibrate.validation.iterations import Floats
from sim.specs.engine import EngineSpec

SCALE = 0.02
"""Relative error from which on an error counts by its size and no longer by its square: about the
scatter of single iterations."""

BLOCKS = 10
"""Stretches of the run that are left out in turn, to see how far the answer depends on them."""

STUDENT = 2.262
"""Of 9 degrees of freedom, 97.5 %: what goes with ``BLOCKS`` stretches."""

LEAST_SHARE = 0.01
"""A kind of which there are fewer iterations than this share does not weigh as much as the other:
one of them would count as fifty of the rest, and its own scatter decide the fit."""


def balanced(with_prompts: NDArray[np.bool_]) -> Floats:
    """Weights of iterations, one on average."""
    count, prompts = len(with_prompts), int(with_prompts.sum())
    others = count - prompts
    if min(prompts, others) < LEAST_SHARE * count:
        return np.ones(count)
    weights: Floats = np.where(with_prompts, count / 2 / prompts, count / 2 / others)
    return weights


def solve(matrix: NDArray[np.float64], target: Floats, weights: Floats, low: Floats) -> Floats:
    """``x`` of at least ``low`` for which ``matrix @ x`` comes closest to ``target``."""

    def loss(squares: Floats) -> NDArray[np.float64]:
        root = np.sqrt(1.0 + squares)
        values: NDArray[np.float64] = np.array([2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3])
        return values * weights

    found = least_squares(
        lambda x: matrix @ x - target,
        np.maximum(0.0, low),
        jac=lambda x: matrix,
        bounds=(low - 1e-12, np.inf),
        loss=loss,
        f_scale=SCALE,
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
    )
    changes: Floats = found.x
    return changes


def left_over(errors: Floats, weights: Floats) -> float:
    """The sum that ``solve`` makes small."""
    return float((weights * 2.0 * (np.sqrt(1.0 + (errors / SCALE) ** 2) - 1.0)).sum())


def stretches(count: int) -> Iterator[NDArray[np.bool_]]:
    """``BLOCKS`` masks of ``count`` iterations, each without another stretch of the run."""
    stretch = np.arange(count) * BLOCKS // max(count, 1)
    return (stretch != block for block in range(BLOCKS))


def half_widths(fits: NDArray[np.float64]) -> Floats:
    """Half-widths of 95 % intervals from a row of changes for each stretch left out (jackknife)."""
    apart = ((fits - fits.mean(axis=0)) ** 2).sum(axis=0)
    found: Floats = STUDENT * np.sqrt((BLOCKS - 1) / BLOCKS * apart)
    return found


HOST = ("per_iteration", "per_sequence", "per_new_request")
KERNELS = ("tokens", "decode_attention", "prefill_attention")

MOST_TERMS = 4
LEAST_GAIN = 0.05
"""A further term must explain this share of all residuals."""

LEAST_EFFECT = 0.005
"""And move the busy time by this share."""

RIVAL_GAIN, RIVAL_LEFT, RIVAL_LEAST = 0.8, 0.25, 0.01
"""A term cannot be distinguished from the chosen one if it explains this share of what that one
does, and leaves over no more than it by these shares of what that one leaves and explains."""

MOST_ROWS = 20_000
"""Of more iterations evenly spaced ones are taken."""

LOWEST = -0.8
"""No kernel takes less than a fifth of its predicted time."""


class Term(NamedTuple):
    """A change that the residuals ask for: seconds for host terms, else a relative change of a
    kernel's time, with its 95 % interval. ``rivals`` would explain about as much."""

    name: str
    value: float
    low: float
    high: float
    rivals: tuple[str, ...]


class _Problem(NamedTuple):
    """Residuals and columns, both over the observed duration, so that errors are relative."""

    target: Floats
    columns: Mapping[str, Floats]
    least: Mapping[str, float]
    seconds: Floats
    weights: Floats


def explain(duration: Floats, expected: Expected, engine: EngineSpec) -> list[Term]:
    """The terms that explain ``duration`` on top of ``expected``, most important first, if any."""
    problem = _problem(duration, expected, engine)
    nothing = _loss(problem, [], np.zeros(0))
    chosen: list[str] = []
    rivals: dict[str, tuple[str, ...]] = {}
    loss = nothing
    while len(chosen) < MOST_TERMS and nothing > 0:
        losses = {
            name: _loss(problem, [*chosen, name], _fit(problem, [*chosen, name]))
            for name in problem.columns
            if name not in chosen
        }
        best = min(losses, key=lambda name: losses[name], default=None)
        if best is None or loss - losses[best] < LEAST_GAIN * nothing:
            break
        gain = loss - losses[best]
        most = min(loss - RIVAL_GAIN * gain, losses[best] * (1.0 + RIVAL_LEFT) + RIVAL_LEAST * gain)
        rivals[best] = tuple(n for n in losses if n != best and losses[n] <= most)
        chosen.append(best)
        loss = losses[best]
    return _told(problem, chosen, rivals)


def _problem(duration: Floats, expected: Expected, engine: EngineSpec) -> _Problem:
    rows = np.flatnonzero(duration > 0)
    rows = rows[:: -(-len(rows) // MOST_ROWS) or 1]
    seconds = duration[rows]
    whole = {
        "per_iteration": np.ones(len(duration)),
        "per_sequence": expected.sequences,
        "per_new_request": expected.admitted,
        "tokens": expected.growth,
        "decode_attention": expected.decode_attention,
        "prefill_attention": expected.prefill_attention,
    }
    least = {name: -float(getattr(engine, name)) for name in HOST}
    columns = {name: column[rows] / seconds for name, column in whole.items() if column[rows].any()}
    least |= dict.fromkeys(KERNELS, LOWEST)
    target = (seconds - expected.seconds[rows]) / seconds
    return _Problem(target, columns, least, seconds, balanced(expected.prompts[rows] > 0))


def _matrix(problem: _Problem, names: Sequence[str]) -> NDArray[np.float64]:
    return np.column_stack([problem.columns[name] for name in names])


def _fit(problem: _Problem, names: Sequence[str], rows: NDArray[np.bool_] | None = None) -> Floats:
    """The changes of ``names`` that fit best, over all iterations or some."""
    matrix, target, weights = _matrix(problem, names), problem.target, problem.weights
    if rows is not None:
        matrix, target, weights = matrix[rows], target[rows], weights[rows]
    return solve(matrix, target, weights, np.array([problem.least[name] for name in names]))


def _loss(problem: _Problem, names: Sequence[str], changes: Floats) -> float:
    """The remaining residual, as the fit weighs it."""
    errors = problem.target - (_matrix(problem, names) @ changes if len(names) else 0.0)
    return left_over(errors, problem.weights)


def _told(
    problem: _Problem, chosen: Sequence[str], rivals: Mapping[str, tuple[str, ...]]
) -> list[Term]:
    """The terms that matter, with their intervals."""
    if not chosen:
        return []
    values = _fit(problem, chosen)
    spread = _spread(problem, chosen)
    terms = []
    for place, name in enumerate(chosen):
        effect = abs(values[place]) * (problem.columns[name] * problem.seconds).sum()
        if effect < LEAST_EFFECT * problem.seconds.sum():
            continue
        value, off = float(values[place]), float(spread[place])
        terms.append(Term(name, value, value - off, value + off, rivals[name]))
    return terms


def _spread(problem: _Problem, chosen: Sequence[str]) -> Floats:
    """Half-widths of 95 % intervals; infinite where there are too few iterations."""
    count = len(problem.target)
    if count < 2 * BLOCKS:
        return np.full(len(chosen), np.inf)
    return half_widths(np.array([_fit(problem, chosen, rows) for rows in stretches(count)]))
