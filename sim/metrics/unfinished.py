"""Tells an SLO that a run missed from one that only the end of the run makes a missed one.

Requests that are not finished when ``run.horizon`` or an interrupt ends a run count as beyond every
limit (``attainment``). Most of them may be on time: a run of a minute leaves those of its last
seconds behind at any load.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.loop.recorder import UNFINISHED
from sim.metrics.attainment import slo_state
from sim.metrics.objectives import look, pooled, slo_objectives
from sim.metrics.run_record import RunRecord
from sim.metrics.states import SloState
from sim.metrics.undecided import undecided


def missed_by_unfinished_alone(run: RunRecord, memory: float | None = None) -> bool:
    """Whether the other requests of a run do not miss the SLO for sure, of which requests that may
    still be within the limits make a missed one; ``memory`` as in ``precision.inflation``."""
    found = []
    for objective in slo_objectives(run.scenario):
        cut_off = np.asarray(run.requests["status"] == UNFINISHED)
        left = undecided(run, objective.limits, cut_off, run.end)[run.judged(objective.limits)]
        seen = look(run, objective)
        if left.all():
            continue
        known = pooled(objective, [replace(seen, kept=seen.kept[~left])], memory)
        found.append((known.share, known.low, known.high, objective.share))
    return bool((run.requests["status"] == UNFINISHED).any()) and (
        not found or slo_state(found) != SloState.MISSED
    )
