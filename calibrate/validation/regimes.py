"""Computes in which kinds of iterations the cost model is off, and by how much. Seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.expected import Expected
from calibrate.validation.iterations import Floats, ObservedIterations

SIZES = (1, 4, 16, 64, 256)
"""Classes of batches that only decode: up to that many sequences each, and larger ones."""

PREFILL, MIXED = "prefill only", "mixed"


class Regime(NamedTuple):
    """Iterations of one kind: how many, how long (medians and sums), and how far off.

    ``error`` is that of their sum, ``typical`` the median of the single ones, without sign.
    ``share`` is their part of the observed time.
    """

    name: str
    iterations: int
    share: float
    observed: float
    predicted: float
    busy_observed: float
    busy_predicted: float
    typical: float

    @property
    def error(self) -> float:
        """Predicted over observed, less one."""
        return self.busy_predicted / self.busy_observed - 1.0 if self.busy_observed else 0.0


def _decode_names() -> list[str]:
    names, low = [], 1
    for high in SIZES:
        names.append(f"decode, {low}" if low == high else f"decode, {low} to {high}")
        low = high + 1
    return [*names, f"decode, {low} and more"]


NAMES = (*_decode_names(), PREFILL, MIXED)
"""All regimes, in the order in which they are shown."""


def regime_of(iterations: ObservedIterations) -> NDArray[np.intp]:
    """The place in ``NAMES`` of each iteration."""
    computed, prompts = iterations.sequences, iterations.prefill_seqs > 0
    place = np.searchsorted(SIZES, computed, side="left")
    place = np.where(prompts, NAMES.index(MIXED), place)
    return np.where(prompts & (computed == 0), NAMES.index(PREFILL), place)


def by_regime(iterations: ObservedIterations, expected: Expected) -> list[Regime]:
    """The regimes that occur."""
    places = regime_of(iterations)
    total = float(iterations.duration.sum())
    return [
        _regime(name, iterations.duration[mine], expected.seconds[mine], total)
        for place, name in enumerate(NAMES)
        if (mine := places == place).any()
    ]


def all_iterations(iterations: ObservedIterations, expected: Expected) -> Regime:
    """The comparison over all iterations: the busy time."""
    total = float(iterations.duration.sum())
    return _regime("all", iterations.duration, expected.seconds, total)


def _regime(name: str, observed: Floats, predicted: Floats, total: float) -> Regime:
    known = observed > 0
    ratios = predicted[known] / observed[known]
    return Regime(
        name=name,
        iterations=len(observed),
        share=float(observed.sum()) / total if total else 0.0,
        observed=float(np.median(observed)),
        predicted=float(np.median(predicted)),
        busy_observed=float(observed.sum()),
        busy_predicted=float(predicted.sum()),
        typical=float(np.median(np.abs(ratios - 1.0))) if len(ratios) else 0.0,
    )


FEW = 20
"""Pairs of neighbours from which a scatter is computed."""


def scatter(iterations: ObservedIterations) -> float | None:
    """How far two iterations of nearly the same work lie apart: the median relative difference of
    neighbours that decode as many sequences, of one of them. None where there are too few."""
    duration, computed = iterations.duration, iterations.sequences
    alone = (iterations.prefill_seqs == 0) & (duration > 0)
    pairs = alone[1:] & alone[:-1] & (computed[1:] == computed[:-1])
    if pairs.sum() < FEW:
        return None
    apart = np.abs(np.log(duration[1:][pairs] / duration[:-1][pairs]))
    return float(np.median(apart) / np.sqrt(2.0))
