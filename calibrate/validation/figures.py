"""Computes how far off each metric of the run is, and whether by more than the engine's own noise.

Metrics are those of ``summary.json``; errors are predicted over observed, less one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np

from sim.metrics.terms.definitions import LATENCIES, METRIC

TYPICAL_NOISE = 0.02
"""By how much means and totals of two runs of one engine differ where it was not measured: 0.3
to 3 % on a quiet machine."""

TYPICAL_TAIL_NOISE = 0.08
"""By how much 99th percentiles of two runs of one engine differ: 7 to 10 %. 95th percentiles are
taken for no steadier."""

RANKS = ("mean", "p50", "p90", "p95", "p99")
TOTALS = ("request_throughput", "output_throughput", "total_token_throughput", "duration")
BANDS = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2el": "tpot"}
HEADLINES = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "output_throughput", "duration")
"""The metrics by which a prediction is judged at a glance."""


class ValidatedFigure(NamedTuple):
    """One row of the error table. ``noise`` is how far repetitions of the observed run lie apart
    (relative standard deviation, None without repetitions). ``band`` is the share by which
    iterations may be off, ``stated`` the 90 % band of this figure, from least to most, where the
    prediction states one; ``within_band`` whether the observed value lies in it, or else in
    ``band`` (None without either)."""

    key: str
    unit: str
    observed: float
    predicted: float
    noise: float | None
    band: float | None
    stated: tuple[float, float] | None = None

    @property
    def error(self) -> float:
        """Predicted over observed, less one."""
        return self.predicted / self.observed - 1.0

    @property
    def within_band(self) -> bool | None:
        """Whether the observed value lies within the band around the predicted one."""
        if self.stated is not None:
            low, high = self.stated
            return low <= self.observed <= high
        if self.band is None:
            return None
        return abs(self.observed / self.predicted - 1.0) <= self.band

    @property
    def expected_noise(self) -> float:
        """The difference between two runs of the engine: as measured, else as usual."""
        usual = TYPICAL_TAIL_NOISE if self.key.startswith(("p95", "p99")) else TYPICAL_NOISE
        return usual if self.noise is None else max(self.noise, LEAST_NOISE)


LEAST_NOISE = 0.005
"""Nothing is repeatable to less, however close a few repetitions happen to lie."""


def figures(
    observed: Mapping[str, Any], predicted: Mapping[str, Any], repeats: Sequence[Mapping[str, Any]]
) -> list[ValidatedFigure]:
    """The error table; rows that one side lacks are left out. ``repeats`` are the summaries of
    further observations of the same traffic."""
    band = predicted["infersim"]["error_band"]
    stated = (predicted["infersim"].get("bands") or {}).get("figures", {})
    found = []
    for key, unit, of_band in keys():
        ours, theirs = _number(observed, key), _number(predicted, key)
        if ours is None or theirs is None:
            continue
        others = [value for run in repeats if (value := _number(run, key)) is not None]
        noise, own = _noise([ours, *others]), _ends(stated.get(key))
        found.append(ValidatedFigure(key, unit, ours, theirs, noise, band[of_band], own))
    return found


def keys() -> list[tuple[str, str, str]]:
    """(key, unit, entry of the band) of every row, in the order of the table."""
    rows = [(f"{rank}_{name}_ms", "ms", BANDS[name]) for name in LATENCIES for rank in RANKS]
    return [*rows, *((key, METRIC[key].unit, "throughput") for key in TOTALS)]


def mean_error(rows: Sequence[ValidatedFigure]) -> float:
    """One number for a whole table: the mean of the errors' sizes, as ratios, so that half and
    double count the same."""
    sizes = [abs(log(row.predicted / row.observed)) for row in rows]
    return float(np.mean(sizes)) if sizes else 0.0


def _ends(stated: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """The ends of a figure's 90 % band; None where it has none, or is open."""
    low, high = (None, None) if stated is None else stated["band90"]
    return None if low is None else (low, math.inf if high is None else high)


def _number(summary: Mapping[str, Any], key: str) -> float | None:
    """The figure; None where there is none, or nothing to divide by."""
    value = summary.get(key)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _noise(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.mean(values))
