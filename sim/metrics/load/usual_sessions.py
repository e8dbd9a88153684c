"""Works out what the traffic of sessions is like once they come and go evenly, and which end early.

A run begins without any session under way. For as long as a session lasts, its traffic lacks later
turns, which are the longest. What sessions are to have is drawn when they begin, so it is known of
those, too, that outlast the run: means over those that end within it are means over the short ones.
Times in seconds, lengths in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED, LOST, OUTCOMES, TIMED_OUT, UNAVAILABLE
from sim.loop.recorder import GAVE_UP, REJECTED
from sim.loop.session_rows import REFUSED
from sim.metrics.latency.intervals import rounded_up
from sim.metrics.record.cut_short import TENTH
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import Word

LASTING = 1 / TENTH
"""How many times as long as a token of a session comes after its start, on average, a run must
last: it lacks the tokens of its last lag."""


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


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual session: it lasts ``duration`` seconds, and a token of a prompt or an answer comes
    ``lag`` seconds after its start, on average over all that the started sessions are to have.

    Pauses are those that were drawn, and a turn is answered in the mean time of those in the run.
    ``unsent`` is the share of the tokens that were still to come when the run ended; ``enough``
    requests come in a run that lasts long enough.
    """

    duration: float
    lag: float
    unsent: float
    enough: int

    def outlasts(self, seconds: float) -> bool:
        """Whether a run of that many ``seconds`` lacks more than a tenth of the tokens."""
        return seconds < LASTING * self.lag


def usual(run: RunRecord) -> Usual | None:
    """The usual session of a run; None where none are drawn, or no turn was answered. Those that
    ended early (``early_ends``) have nothing to come: they count in the requests/s alone."""
    rows = run.sessions
    if rows is None or rows.planned is None or not len(rows.planned):
        return None
    answered = _answered(run)
    if answered is None:
        return None
    planned, requests = rows.planned, run.requests
    had, going_on = planned["requests"], np.ones(len(requests), dtype=bool)
    if early := early_ends(run):
        numbers, first, count = np.unique(
            rows.turns["session"], return_index=True, return_counts=True
        )
        begun = np.argsort(first)  # they are planned in the order in which they begin
        kept = ~np.isin(numbers[begun], list(early))
        if not kept.any():
            return None
        planned, had = planned[: len(kept)], np.where(kept, had[: len(kept)], count[begun])
        planned = planned[kept]
        going_on = ~np.isin(rows.turns["session"], list(early))
    tokens = int(planned["tokens"].sum())
    lag = float(planned["pauses_before"].sum() + answered * planned["turns_before"].sum()) / tokens
    sent = int((requests["prompt_tokens"] + requests["output_tokens"])[going_on].sum())
    rate = len(requests) / run.duration
    if run.steady_rate is not None:
        rate = run.steady_rate * float(had.mean())
    return Usual(
        duration=float(planned["pauses"].mean() + answered * planned["turns"].mean()),
        lag=lag,
        unsent=max(0.0, 1 - sent / tokens),
        enough=rounded_up(max(1.0, rate * LASTING * lag)),
    )


def _answered(run: RunRecord) -> float | None:
    """Seconds from sending a turn to the last of its answers, on average."""
    assert run.sessions is not None
    turns = run.sessions.turns
    done = run.completed & (turns["session"] >= 0)
    if not done.any():
        return None
    order = np.lexsort((turns["turn"][done], turns["session"][done]))
    mine, requests = turns[done][order], run.requests[done][order]
    begins = np.flatnonzero(np.append(True, mine[1:] != mine[:-1]))
    ends = np.maximum.reduceat(requests["finish"], begins)
    return float((ends - np.minimum.reduceat(requests["arrival"], begins)).mean())


def usual_shares(run: RunRecord) -> NDArray[np.float64] | None:
    """The share of each accepted request in the usual mix, where sessions come at a steady rate;
    None elsewhere: all count alike.

    The first half of the run does not count: there sessions are young, and caches fill. In the
    second half a turn that comes at some age of its session is seen of those that began at least
    so long before the end. So the older it is than the half, the more it stands for; a request
    that is seen of less than a ``LASTING``-th of the run counts as one of that.
    """
    rows = run.sessions
    if rows is None or rows.planned is None or run.steady_rate is None:
        return None
    numbers, arrival = rows.turns["session"], run.requests["arrival"]
    begun = np.full(int(numbers.max()) + 1, np.inf)
    np.minimum.at(begun, numbers, arrival)
    end = float(arrival.max())
    half = end / 2
    seen = end - np.maximum(half, arrival - begun[numbers])
    counts = np.where(arrival >= half, half / np.maximum(seen, end / LASTING), 0.0)
    counts = counts[run.requests["status"] != REJECTED]
    return counts / counts.sum() if counts.any() else None
