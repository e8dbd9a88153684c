"""Records the conversations of a run: one packed row per request, and one per session that ends.

Times in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import packer
from sim.workload.sessions import SessionTurn

WHOLE, OUTGROWN, REFUSED = 0, 1, 2
"""How a session ended: after all its turns; before one that would have been longer than the model
takes; since a replica refused a request."""

ENDINGS = {"whole": WHOLE, "outgrown": OUTGROWN}

TURN = np.dtype([("session", "i8"), ("turn", "i8")])
SESSION = np.dtype(
    [
        ("session", "i8"),
        ("start", "f8"),
        ("end", "f8"),  # of the last answer
        ("requests", "i8"),  # that were sent
        ("ending", "i8"),
    ]
)

PLAN = np.dtype(
    [
        ("requests", "i8"),
        ("turns", "i8"),
        ("tokens", "i8"),  # of all prompts and answers
        ("pauses", "f8"),  # all delays between turns
        ("pauses_before", "f8"),  # the delays before a token's turn, summed over the tokens
        ("turns_before", "f8"),  # likewise, the turns before it
    ]
)

_pack_turn = packer(TURN)
_pack_session = packer(SESSION)
_pack_plan = packer(PLAN)


class SessionRows(NamedTuple):
    """The conversations of a run. ``turns`` has the session (-1: none) and the number of the turn,
    from 0, of each request in the order of their ids; ``ended`` a row per session that ended before
    the run did, and ``planned`` one per session that was started, with all that it is to have
    (``PLAN``), both None where only a trace says which requests belong together."""

    turns: NDArray[np.void]
    ended: NDArray[np.void] | None
    planned: NDArray[np.void] | None


class SessionRecorder:
    """Collects the rows."""

    def __init__(self) -> None:
        self._turns = bytearray()
        self._ended = bytearray()
        self._planned = bytearray()

    def started(self, turns: Sequence[SessionTurn]) -> None:
        """A session begins that is to have these turns."""
        requests = tokens = 0
        pauses = pauses_before = turns_before = 0.0
        for number, turn in enumerate(turns):
            pauses += turn.delay
            here = sum(map(sum, turn.requests))
            requests += len(turn.requests)
            tokens += here
            pauses_before += here * pauses
            turns_before += here * number
        self._planned += _pack_plan(
            requests, len(turns), tokens, pauses, pauses_before, turns_before
        )

    def sent(self, session: int, turn: int) -> None:
        """The next request belongs to that turn."""
        self._turns += _pack_turn(session, turn)

    def ended(self, session: int, start: float, end: float, requests: int, ending: int) -> None:
        """A session has had its last answer."""
        self._ended += _pack_session(session, start, end, requests, ending)

    def rows(self) -> SessionRows:
        """All that was recorded."""
        turns, ended = np.frombuffer(self._turns, TURN), np.frombuffer(self._ended, SESSION)
        return SessionRows(turns, ended, np.frombuffer(self._planned, PLAN))


def rows_of_trace(sessions: NDArray[np.int64]) -> SessionRows:
    """The rows of requests whose ``sessions`` a trace has, in their order; turns are counted by it.

    >>> rows_of_trace(np.array([5, 7, 5, -1])).turns["turn"].tolist()
    [0, 0, 1, 0]
    """
    turns = np.zeros(len(sessions), TURN)
    turns["session"] = sessions
    order = np.argsort(sessions, kind="stable")
    begins = np.flatnonzero(np.diff(sessions[order], prepend=sessions[order[:1]] - 1))
    sizes = np.diff(begins, append=len(sessions))
    turns["turn"][order] = np.arange(len(sessions)) - np.repeat(begins, sizes)
    turns["turn"][sessions < 0] = 0
    return SessionRows(turns, None, None)
