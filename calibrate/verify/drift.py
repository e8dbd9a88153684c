"""Measures how much slower the machine was during a run than while it was calibrated.

An anchor step, a decode of one short sequence, is timed before and after each run, and next to the
calibrations on both sides of the round. What it took around the run, over what it took around the
calibrations, is the run's drift: times that were predicted from the calibrations grow by it. Shares
(0.05 is 5 % slower).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

RATES = ("throughput",)
"""Metrics that fall where the machine is slower; all others are times, and grow."""

LEAST = 0.02
"""Drift below which a single anchor says nothing: its own timings differ by as much."""


def drift_of(before: float, after: float, opening: float, closing: float) -> float:
    """The drift of a run between two anchor steps, in a round between two others. Seconds.

    >>> round(drift_of(before=1.2, after=1.0, opening=1.0, closing=1.0), 3)
    0.095
    """
    return math.sqrt(before * after / (opening * closing)) - 1


def corrected(metric: str, predicted: float, told: Mapping[str, Any]) -> float:
    """What the prediction of a run would have been at the speed the machine then had; runs of
    earlier versions have no drift."""
    drift = told.get("drift") or 0.0
    if abs(drift) < LEAST:
        return predicted
    return predicted / (1 + drift) if metric in RATES else predicted * (1 + drift)
