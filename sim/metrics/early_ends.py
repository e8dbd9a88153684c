"""Finds the sessions that ended early since a request of theirs got no answer, and why."""

from __future__ import annotations

import numpy as np

from sim.loop.attempt_rows import CANCELLED, LOST, OUTCOMES, TIMED_OUT, UNAVAILABLE
from sim.loop.recorder import GAVE_UP, REJECTED
from sim.loop.session_rows import REFUSED
from sim.metrics.run_record import RunRecord
from sim.metrics.states import Word


class EarlyEnd(Word):
    """Why a session ended early, in the words of a note."""

    REJECTED = "a request was rejected"
    TIMED_OUT = "a request timed out, and its client gave up"
    LOST = "a request was lost with its replica"
    UNAVAILABLE = "a request found no replica in service"
    CANCELLED = "its client went away"


GIVEN_UP = {
    OUTCOMES[TIMED_OUT]: EarlyEnd.TIMED_OUT,
    OUTCOMES[LOST]: EarlyEnd.LOST,
    OUTCOMES[UNAVAILABLE]: EarlyEnd.UNAVAILABLE,
    OUTCOMES[CANCELLED]: EarlyEnd.CANCELLED,
}
"""Why a session ends, by the reason for which its request was given up."""


def early_ends(run: RunRecord) -> dict[int, EarlyEnd]:
    """Why each session that ended early did, by its number: what became of the first request that
    got no answer. Not those that were outgrown, nor any of a trace, which sends them all."""
    rows = run.sessions
    if rows is None or rows.ended is None:
        return {}
    status, numbers = run.requests["status"], rows.turns["session"]
    over = rows.ended["session"][rows.ended["ending"] == REFUSED]
    places = np.flatnonzero(np.isin(status, (REJECTED, GAVE_UP)) & np.isin(numbers, over))
    found: dict[int, EarlyEnd] = {}
    for number, place in zip(numbers[places].tolist(), places.tolist(), strict=True):
        if number not in found:
            row = run.requests[place]
            given_up = row["status"] == GAVE_UP
            found[number] = GIVEN_UP[run.reasons[row["reason"]]] if given_up else EarlyEnd.REJECTED
    return found
