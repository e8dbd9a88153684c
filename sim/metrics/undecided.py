"""Tells requests that broke a limit from those that ended before they could break or keep it.

A request that the run leaves unfinished, or whose client goes away, has broken a limit if it was
beyond it by then, whatever would have come later. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED
from sim.metrics.recorded import Recorded


def undecided(
    run: Recorded,
    limits: Mapping[str, float],
    ended: NDArray[np.bool_],
    at: float | NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Which of the requests that ``ended`` at some time without their last token had broken none of
    ``limits`` (metric -> seconds) until then."""
    lasted = at - run.requests["arrival"]
    started = ~np.isnan(run.ttft)
    steps = np.maximum(run.requests["output_tokens"] - 1.0, 1.0)
    least = {
        "ttft": np.where(started, run.ttft, lasted),
        "tpot": np.where(started, (lasted - run.ttft) / steps, 0.0),
        "e2el": lasted,
    }
    open_ = ended.copy()
    for metric, limit in limits.items():
        open_ &= least[metric] <= limit
    return open_


def set_aside(run: Recorded, limits: Mapping[str, float]) -> NDArray[np.bool_]:
    """Which requests are neither within ``limits`` (metric -> seconds) nor beyond them: their
    clients went away before one had passed."""
    gone = np.zeros(len(run.requests), dtype=bool)
    if run.attempts is None:
        return gone
    rows = run.attempts.failed[run.attempts.failed["outcome"] == CANCELLED]
    if not len(rows):
        return gone
    places = np.searchsorted(run.requests["id"], rows["request"])
    at = np.zeros(len(run.requests))
    gone[places], at[places] = True, rows["ended"]
    return undecided(run, limits, gone, at)
