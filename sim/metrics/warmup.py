"""Finds the requests at the start of a run that the statistics leave out.

Times in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED
from sim.metrics.stability import warmup_length

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord


def warmup(run: RunRecord) -> NDArray[np.bool_]:
    """Which requests are left out: those that the scenario says, else a start that differs from the
    rest while requests arrive at a steady rate.

    The start that is found ends before the first trouble. An outage makes requests slower, and
    those that were given up have no latency at all: to the search both look like a fleet that is
    still filling up, and the SLO would be judged without what is to be judged.
    """
    count, setting = len(run.requests), run.scenario.run.warmup
    if setting.seconds is not None:
        return np.asarray(run.requests["arrival"] < setting.seconds)
    skipped = setting.requests
    if skipped is None:
        arrivals = run.scenario.workload.arrivals
        steady = arrivals is not None and arrivals.kind in ("poisson", "gamma", "constant")
        served = np.flatnonzero(run.completed)
        cut = warmup_length(run.e2el[served]) if steady else 0
        skipped = min(int(served[cut]), _first_trouble(run)) if cut else 0
    return np.arange(count) < skipped


def _first_trouble(run: RunRecord) -> int:
    """The place of the first request that timed out, was lost or found no replica, or came after
    the first replica had failed; the number of requests where there is none."""
    found = [len(run.requests)]
    if run.attempts is not None:
        failed, outages = run.attempts.failed, run.attempts.outages
        hit = failed["request"][failed["outcome"] != CANCELLED]
        if len(hit):
            found.append(int(np.searchsorted(run.requests["id"], hit.min())))
        if len(outages):
            since = outages["since"].min()
            found.append(int(np.count_nonzero(run.requests["arrival"] < since)))
    return min(found)
