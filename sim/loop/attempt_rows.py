"""Records the attempts of requests that came to nothing, and the outages that some of them met.

One packed row each. Times in seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.loop.recorder import CHUNK, packer
from sim.request import Request

TIMED_OUT, LOST, UNAVAILABLE, CANCELLED = range(4)
"""How an attempt ended: the client's patience was at an end; its replica failed; there was none to
go to; the client went away when the trace says."""

OUTCOMES = ("timed out", "lost with its replica", "no replica", "cancelled")
"""The end of an attempt in words, in the order of the codes above."""

ATTEMPT = np.dtype(
    [
        ("request", "i8"),  # id
        ("attempt", "i4"),  # from 1
        ("outcome", "i4"),  # index into ``OUTCOMES``
        ("replica", "i4"),  # -1: it reached none
        ("generated", "i4"),  # output tokens that were computed
        ("sent", "f8"),
        ("scheduled", "f8"),
        ("first_token", "f8"),
        ("ended", "f8"),  # for the client
    ]
)
OUTAGE = np.dtype(
    [
        ("replica", "i4"),
        ("lost", "i4"),  # requests that were waiting or running there
        ("since", "f8"),
        ("until", "f8"),  # infinite: it never came back
        ("computing", "f8"),  # for which the iteration that did not end had run (s)
    ]
)

SENT = np.dtype([("request", "i8"), ("time", "f8")])

_pack_attempt = packer(ATTEMPT)
_pack_outage = packer(OUTAGE)
_pack_sent = packer(SENT)


class AttemptRows(NamedTuple):
    """``failed`` has a row (``ATTEMPT``) for each attempt that came to nothing, ``outages`` one
    (``OUTAGE``) for each that had begun before the run ended, ``again`` one (``SENT``) for each
    time that a request was sent after the first; ``unsent`` has the ids of those that were to be
    sent again when the run ended. ``chunks`` are what earlier attempts than the last one had
    computed of prompts."""

    failed: NDArray[np.void]
    outages: NDArray[np.void]
    again: NDArray[np.void]
    unsent: list[int]
    chunks: NDArray[np.void]

    def of_last(
        self, plans: PlanRows, trail: tuple[NDArray[np.void], NDArray[np.void]]
    ) -> tuple[AttemptRows, tuple[NDArray[np.void], NDArray[np.void]]]:
        """The rows with the chunks of earlier attempts, and ``trail`` without: its chunks and
        absences are those of the last attempt of each request."""
        chunks, absences = trail
        last = np.full(1 + max(int(rows["request"].max(initial=0)) for rows in trail), -np.inf)
        again = self.again[self.again["request"] < len(last)]
        last[again["request"]] = again["time"]  # in order of time: the last one stays
        last[[number for number in self.unsent if number < len(last)]] = np.inf
        earlier = plans["start"][chunks["plan"]] < last[chunks["request"]]
        kept = absences[absences["time"] >= last[absences["request"]]]
        return self._replace(chunks=chunks[earlier]), (chunks[~earlier], kept)


class AttemptRecorder:
    """Collects the rows."""

    def __init__(self) -> None:
        self._failed = bytearray()
        self._outages = bytearray()
        self._again = bytearray()
        self.unsent: list[int] = []

    @property
    def any(self) -> bool:
        """Whether an attempt came to nothing, or a replica failed."""
        return bool(self._failed or self._outages)

    def sent_again(self, request: Request, now: float) -> None:
        """``request`` is sent once more."""
        self._again += _pack_sent(request.id, now)

    def failed(
        self,
        request: Request,
        number: int,
        outcome: int,
        replica: int,
        generated: int,
        sent: float,
        ended: float,
    ) -> None:
        """Note that an attempt of ``request``, which was ``sent`` then, came to nothing."""
        times = sent, request.scheduled, request.first_token, ended
        self._failed += _pack_attempt(request.id, number, outcome, replica, generated, *times)

    def outage(self, replica: int, lost: int, since: float, computing: float, until: float) -> None:
        """A replica failed with that many requests, and was back at ``until``."""
        self._outages += _pack_outage(replica, lost, since, until, computing)

    def rows(self) -> AttemptRows:
        """All that was recorded: attempts in the order in which they ended for their clients, since
        that in which engines dropped them is another one with leaps; outages as they began."""
        failed = np.frombuffer(self._failed, ATTEMPT)
        outages = np.frombuffer(self._outages, OUTAGE)
        return AttemptRows(
            failed[np.lexsort((failed["attempt"], failed["request"], failed["ended"]))],
            outages[np.lexsort((outages["replica"], outages["since"]))],
            np.frombuffer(self._again, SENT),
            self.unsent,
            np.empty(0, CHUNK),
        )
