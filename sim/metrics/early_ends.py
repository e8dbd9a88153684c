"""Finds the sessions that ended early since a request of theirs got no answer, and why."""

from __future__ import annotations

import numpy as np

from sim.loop.attempt_rows import CANCELLED, LOST, OUTCOMES, TIMED_OUT, UNAVAILABLE
from sim.loop.recorder import GAVE_UP, REJECTED
from sim.loop.session_rows import REFUSED
from sim.metrics.run_record import RunRecord

WAS_REJECTED = "a request was rejected"

WHY = {
    OUTCOMES[TIMED_OUT]: "a request timed out, and its client gave up",
    OUTCOMES[LOST]: "a request was lost with its replica",
    OUTCOMES[UNAVAILABLE]: "a request found no replica in service",
    OUTCOMES[CANCELLED]: "its client went away",
}
"""Why a session ends, by the reason for which its request was given up."""


def early_ends(run: RunRecord) -> dict[int, str]:
    """Why each session that ended early did, by its number: what became of the first request that
    got no answer. Not those that were outgrown, nor any of a trace, which sends them all."""
    rows = run.sessions
    if rows is None or rows.ended is None:
        return {}
    status, numbers = run.requests["status"], rows.turns["session"]
    over = rows.ended["session"][rows.ended["ending"] == REFUSED]
    places = np.flatnonzero(np.isin(status, (REJECTED, GAVE_UP)) & np.isin(numbers, over))
    found: dict[int, str] = {}
    for number, place in zip(numbers[places].tolist(), places.tolist(), strict=True):
        if number not in found:
            row = run.requests[place]
            given_up = row["status"] == GAVE_UP
            found[number] = WHY[run.reasons[row["reason"]]] if given_up else WAS_REJECTED
    return found
