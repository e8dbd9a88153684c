"""Draws how many tokens decoding sequences get from each iteration where tokens are speculated.

A request has a random stream of its own, and an iteration of its decoding one number of it: which
replica serves it, in which batch, or when it was preempted makes no difference to what is accepted.
So the whole course of a request is known when it joins a batch, and what a batch does in an
iteration is a sum over courses, which are added when requests join and taken off when they leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.request import Request
from sim.rng import numbered
from sim.specs.speculation import Speculation

Counts = NDArray[np.int64]

FIRST = 1024
"""Iterations for which sums are kept to begin with."""


class DraftCourse:
    """What a request gains while it stays in a batch: ``gained[i]`` tokens after i iterations, from
    0 to all that it lacks. Of its last iteration ``cut`` accepted drafts are too many."""

    __slots__ = ("cut", "gained", "last")

    def __init__(self, gained: Counts, cut: int) -> None:
        self.gained = gained
        self.cut = cut
        self.last = len(gained) - 1


class DraftCourses:
    """The courses of the requests of one replica under ``speculation``, by the seed of the run.

    >>> always = DraftCourses(Speculation("ngram", 2, (1.0, 1.0)), seed=1)
    >>> request = Request(0, arrival=0.0, prompt_tokens=5, output_tokens=9)
    >>> request.generated = 1
    >>> always.begin(request).gained.tolist()
    [0, 3, 6, 8]
    """

    def __init__(self, speculation: Speculation, seed: int) -> None:
        self.speculation = speculation
        self._generator = numbered(seed, "acceptance")
        # ascending, so that the number of rates above a draw is that of accepted drafts
        self._rates = np.array(speculation.rates[::-1])
        self._most = 1 + len(self._rates)
        self._now: dict[Request, DraftCourse] = {}
        self._past: dict[Request, int] = {}  # iterations of decoding before it was preempted

    def __getitem__(self, request: Request) -> DraftCourse:
        """The course of a request that decodes."""
        return self._now[request]

    def begin(self, request: Request) -> DraftCourse:
        """The course of ``request``, which joins a batch and lacks at least one token."""
        lacks = request.output_tokens - request.generated
        past = self._past.get(request, 0)
        drawn = self._generator(request.id).random(past + lacks)[past:]
        reached = (self._most - self._rates.searchsorted(drawn, "right")).cumsum()
        last = int(reached.searchsorted(lacks))
        gained = np.empty(last + 2, dtype=np.int64)
        gained[0] = 0
        gained[1:] = reached[: last + 1]
        cut = int(gained[-1]) - lacks
        gained[-1] = lacks
        course = self._now[request] = DraftCourse(gained, cut)
        return course

    def end(self, request: Request, iterations: int) -> None:
        """``request`` leaves its batch after so many of them."""
        course = self._now.pop(request)
        if iterations < course.last:
            self._past[request] = self._past.get(request, 0) + iterations
        else:
            self._past.pop(request, None)


class Upcoming:
    """Whole numbers by iteration, for the iterations that are to come: sums over courses."""

    __slots__ = ("_base", "_sums")

    def __init__(self) -> None:
        self._base = 0  # the iteration of the first number
        self._sums: Counts = np.zeros(FIRST, dtype=np.int64)

    def add(self, now: int, amounts: NDArray[np.signedinteger[Any]]) -> None:
        """Add one amount for each iteration from ``now`` on; what was before is forgotten."""
        first = now - self._base
        last = first + len(amounts)
        if last > len(self._sums):
            first, last = self._move(now, len(amounts))
        self._sums[first:last] += amounts

    def _move(self, now: int, more: int) -> tuple[int, int]:
        """Put ``now`` first, with room for twice as much as is needed."""
        kept = self._sums[now - self._base :]
        size = max(FIRST, 2 * max(more, len(kept)))
        self._sums = np.zeros(size, dtype=np.int64)
        self._sums[: len(kept)] = kept
        self._base = now
        return 0, more

    def at(self, iteration: int) -> int:
        """The number of one iteration."""
        place = iteration - self._base
        return int(self._sums[place]) if place < len(self._sums) else 0

    def total(self, now: int, iterations: int) -> int:
        """The sum over the next so many."""
        place = now - self._base
        if iterations == 1:
            return self.at(now)
        return int(self._sums[place : place + iterations].sum())

    def within(self, now: int, iterations: int, limit: int) -> int:
        """How many of the next so many iterations have a sum of at most ``limit``."""
        place = now - self._base
        reached = self._sums[place : place + iterations].cumsum()
        if not len(reached) or reached[-1] <= limit:
            return iterations
        return int(reached.searchsorted(limit, "right"))
