"""Fits changes to iterations, of which some are odd and most are decodes.

Least squares on relative errors, in which large errors count by their size only (soft L1).
Iterations with prompts and those without weigh the same in sum, however few there are of one kind:
TTFT hangs on the former, TPOT on the latter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.validation.iterations import Floats

SCALE = 0.02
"""Relative error from which on an error counts by its size and no longer by its square: about the
scatter of single iterations."""

BLOCKS = 10
"""Stretches of the run that are left out in turn, to see how far the answer depends on them."""

STUDENT = 2.262
"""Of 9 degrees of freedom, 97.5 %: what goes with ``BLOCKS`` stretches."""

LEAST_SHARE = 0.01
"""A kind of which there are fewer iterations than this share does not weigh as much as the other.
"""


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
