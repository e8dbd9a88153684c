"""Defines one comparison of a run with theory: its error, its tolerance, and its row of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIGMAS = 4.0
"""Standard errors that a random figure may lie from theory. Chance alone exceeds them in 3 of
10,000 comparisons if 38 batches scatter normally; waits at high load are skewed, and do so more
often."""

EXACT = 1e-9
"""Relative difference that rounding may leave in a figure that should be equal."""

_COLUMNS = "{:<41} {:>11} {:>11} {:>9} {:>8} {:>3}"


@dataclass(frozen=True, slots=True)
class Check:
    """One figure from theory and from a run, in the same unit, and how far apart they may be.

    ``standard_error`` is that of ``simulated``; None where nothing is left to chance.
    """

    name: str
    theory: float
    simulated: float
    tolerance: float
    standard_error: float | None = None

    @property
    def ok(self) -> bool:
        """Whether theory and run agree; never with a figure that is not a number."""
        return abs(self.simulated - self.theory) <= self.tolerance

    def document(self) -> dict[str, str | float | bool | None]:
        """The check as JSON can hold it: None for what is not finite."""
        figures = {
            "theory": self.theory,
            "simulated": self.simulated,
            "tolerance": self.tolerance,
            "standard_error": self.standard_error,
        }
        shown = {
            key: value if value is not None and math.isfinite(value) else None
            for key, value in figures.items()
        }
        return {"check": self.name, **shown, "ok": self.ok}


def estimate(name: str, theory: float, batches: NDArray[np.float64]) -> Check:
    """Compare the mean of ``batches`` with theory.

    Each is the mean of a stretch of one run long enough that neighbouring stretches hardly know of
    each other; their scatter gives the standard error.

    >>> check = estimate("mean", 2.0, np.array([1.0, 2.0, 3.0, 2.0]))
    >>> check.simulated, round(check.standard_error, 3), check.ok
    (2.0, 0.408, True)
    """
    error = float(np.std(batches, ddof=1)) / math.sqrt(len(batches))
    return Check(name, theory, float(np.mean(batches)), SIGMAS * error, error)


def equal(name: str, theory: float, simulated: float) -> Check:
    """Compare two figures that differ by rounding only."""
    return Check(name, theory, simulated, EXACT * abs(theory))


def header() -> str:
    """The title row of the table, and a rule; 88 columns."""
    titles = _COLUMNS.format("check", "theory", "simulated", "tolerance", "off (SE)", "ok")
    return f"{titles}\n{'-' * len(titles)}"


def row(check: Check) -> str:
    """One row of the table: ``tolerance`` is how far apart the figures may be, ``off (SE)`` how far
    they are, in standard errors."""
    off = "-"
    if check.standard_error:
        off = f"{(check.simulated - check.theory) / check.standard_error:+.1f}"
    return _COLUMNS.format(
        check.name,
        f"{check.theory:.6g}",
        f"{check.simulated:.6g}",
        f"{check.tolerance:.1e}",
        off,
        "yes" if check.ok else "NO",
    )
