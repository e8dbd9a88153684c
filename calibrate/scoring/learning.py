"""Learns how far each cause puts predictions off, from rows whose causes are known.

The logarithm of measured over predicted is taken to have the spread that ``sim.metrics.bands``
gives, with tails as heavy as Student's t with ``FREEDOM`` degrees of freedom. Spreads are those
that make the errors likeliest, held near what was known before (``BEFORE``): causes that no
measurement shows keep that. Rows of a source err together, so that a hundred of them count as a
few. Everything is done again without each source, by which that source is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.scoring.predict import Scored
from sim.catalog.spreads import Spreads
from sim.metrics.bands import CAUSES

Floats = NDArray[np.float64]

FREEDOM = 4.0
"""Tails: with 4, one error in a hundred is beyond 4.6 times the scale (of a normal law: 2.6)."""

TRUST = 0.6
"""How far, in its logarithm, a spread may usually be from ``BEFORE``: a factor of 1.8."""

ROWS_COUNT = 0.1
"""Rows of one source and quantity count together as their number to this power: hardly more than
one, since what puts one of them off puts off the others."""

BEFORE: Mapping[str, tuple[float, str]] = {
    "prompts": (0.08, "hold-out p90 of 10 to 20 % of the kernels of measured GPUs"),
    "decodes": (0.08, "the same"),
    "unmeasured": (0.20, "15 to 30 % between measured GPUs (sim/cost/trust.py)"),
    "data sheet": (0.25, "the same, and none was measured"),
    "experts": (0.23, "mean error over expert kernels (sim/cost/trust.py)"),
    "host": (0.20, "range that fits of vLLM's host time gave"),
    "host estimate": (0.35, "twice that"),
    "links": (0.20, "hold-out p90 of all-reduces, 10 to 24 %"),
    "open links": (0.70, "a factor of two: whether cards reach each other"),
    "memory": (0.15, "blocks that engines report differ by 10 to 30 % from the arithmetic"),
    "front end": (0.40, "10 to 17 ms of vLLM around 12"),
    "mixing": (0.10, "no measurement; small where the client is known"),
    "open mixing": (0.40, "how many prompts meet a batch of decodes depends on the client"),
    "admission": (0.25, "order of admission differs between engines"),
    "open admission": (0.50, "a burst at the start or not"),
    "admission at a rate": (0.10, "arrival law and order of admission"),
    "lengths": (0.40, "spread of lengths of which the mean is known"),
    "lengths, rates": (0.10, "the same: only the mean matters to throughput"),
    "open client": (0.50, "nine of ten measurements within the range of the plausible ways"),
    "arrivals": (0.05, "500 Poisson arrivals take 4 to 5 % more or less time than on average"),
    "tail": (0.15, "percentiles come of few requests"),
    "gaps": (0.15, "what a client calls a gap"),
    "run, first token": (0.08, "3 to 8 % between releases of an engine"),
    "run, rates": (0.05, "the same"),
    "run, tokens": (0.05, "the same"),
}
"""A spread for each cause before any row is seen, and why."""


class Sample(NamedTuple):
    """Rows to learn from: the ``error`` of each (logarithm of measured over predicted), the squares
    of the ``weights`` of the causes (a column each), its ``source``, and that and its quantity."""

    error: Floats
    weights: Floats
    source: NDArray[np.str_]
    group: NDArray[np.str_]

    def of(self, rows: NDArray[np.bool_]) -> Sample:
        """Some of the rows."""
        error, weights, source, group = self
        return Sample(error[rows], weights[rows], source[rows], group[rows])


def sample(rows: Sequence[Scored]) -> Sample:
    """What can be learnt from of ``rows``."""
    known = [row for row in rows if row.error is not None and row.causes and row.source]
    return Sample(
        np.array([np.log(float(row.measured or 0) / float(row.predicted or 0)) for row in known]),
        np.array([[_weight(row, name) ** 2 for name in CAUSES] for row in known]),
        np.array([row.source for row in known]),
        np.array([f"{row.source}, {row.quantity}" for row in known]),
    )


def _weight(row: Scored, cause: str) -> float:
    """The weight of a cause on the side on which the measurement lies."""
    larger = float(row.measured or 0) > float(row.predicted or 0)
    return row.causes_of_side[larger].get(cause, 0.0)


def learn(rows: Sample) -> Spreads:
    """The spreads that ``rows`` show."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import

    before = np.log([BEFORE[name][0] for name in CAUSES])
    counts = _counts(rows)
    squares = rows.error**2

    def badness(logarithms: Floats) -> tuple[float, Floats]:
        scales = np.exp(2 * logarithms)
        variance = rows.weights @ scales + 1e-6
        ratio = squares / variance
        apart = (logarithms - before) / TRUST
        tail = (FREEDOM + 1) / 2
        value = counts @ (np.log(variance) / 2 + tail * np.log1p(ratio / FREEDOM))
        slope = counts * (0.5 - tail * ratio / (FREEDOM + ratio)) / variance
        gradient = 2 * scales * (rows.weights.T @ slope) + apart / TRUST
        return float(value + (apart**2).sum() / 2), gradient

    found = np.exp(minimize(badness, before, jac=True, method="L-BFGS-B").x)
    sizes = np.abs(rows.error) / np.sqrt(rows.weights @ found**2 + 1e-6)
    half, ninety = (_quantile(sizes, counts, share) for share in (0.5, 0.9))
    named = {name: float(f"{value:.3g}") for name, value in zip(CAUSES, found, strict=True)}
    return Spreads(named, float(f"{half:.3g}"), float(f"{ninety:.3g}"))


def without_each(rows: Sample) -> dict[str, Spreads]:
    """What is learnt without each source."""
    return {str(name): learn(rows.of(rows.source != name)) for name in np.unique(rows.source)}


def sources_of_causes(rows: Sample) -> dict[str, int]:
    """In how many sources each cause has a part in the errors."""
    return {
        name: len(np.unique(rows.source[column > 0]))
        for name, column in zip(CAUSES, rows.weights.T, strict=True)
    }


def _counts(rows: Sample) -> Floats:
    """What each row counts: together those of a group less than they are."""
    _, place, size = np.unique(rows.group, return_inverse=True, return_counts=True)
    found: Floats = size.astype(np.float64) ** (ROWS_COUNT - 1)
    return found[place]


def _quantile(values: Floats, counts: Floats, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])
