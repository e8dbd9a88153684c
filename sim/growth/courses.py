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

NOTHING: Counts = np.zeros(1, dtype=np.int64)
"""What is gained after no iteration."""

FIRST = 1024
"""Iterations for which sums are kept to begin with."""


class DraftCourse:
    """What a request gains while it stays in a batch: ``gained[i]`` tokens after i iterations, from
    0 to all that it lacks. Of its last iteration ``cut`` accepted drafts are too many. ``right`` is
    how many drafts in a row are right in each iteration, of the most that are ever made."""

    __slots__ = ("cut", "gained", "last", "right")

    def __init__(self, right: Counts, lacks: int, drafts: int, most: int) -> None:
        self.right = right
        self.cut = self.last = 0
        self.gained = NOTHING
        self.go_on(0, lacks, drafts, most)

    def go_on(self, done: int, lacks: int, drafts: int, most: int) -> None:
        """``done`` iterations are past, and ``lacks`` tokens to come, with so many ``drafts`` in
        each iteration from now on, of the ``most`` that are ever made."""
        right, gained = self.right[done : done + lacks], self.gained
        reached = (right + 1 if drafts == most else np.minimum(right, drafts) + 1).cumsum()
        more = int(reached.searchsorted(lacks)) + 1
        self.last = last = done + more
        self.gained = np.empty(last + 1, dtype=np.int64)
        self.gained[: done + 1] = gained[: done + 1]
        self.gained[done + 1 :] = reached[:more]
        if done:
            self.gained[done + 1 :] += gained[done]
        self.cut = int(reached[more - 1]) - lacks
        self.gained[last] -= self.cut


class DraftCourses:
    """The courses of the requests of one replica under ``speculation``, by the seed of the run.

    ``drafts``  how many are checked for each sequence in an iteration, at present
    ``length``  tokens that a sequence then gets of it, on average

    >>> always = DraftCourses(Speculation("ngram", 2, (1.0, 1.0)), seed=1)
    >>> request = Request(0, arrival=0.0, prompt_tokens=5, output_tokens=9)
    >>> request.generated = 1
    >>> always.begin(request).gained.tolist()
    [0, 3, 6, 8]
    >>> always.drafts = 1
    >>> always.turn(request, 1).gained.tolist()  # after the first iteration
    [0, 3, 5, 7, 8]
    """

    def __init__(self, speculation: Speculation, seed: int) -> None:
        self.speculation = speculation
        self.drafts = speculation.num_tokens
        self._generator = numbered(seed, "acceptance")
        # ascending, so that the number of rates above a draw is that of accepted drafts
        self._rates = np.array(speculation.rates[::-1])
        self._most = len(self._rates)
        self._now: dict[Request, DraftCourse] = {}
        self._past: dict[Request, int] = {}  # iterations of decoding before it was preempted

    def __getitem__(self, request: Request) -> DraftCourse:
        """The course of a request that decodes."""
        return self._now[request]

    @property
    def length(self) -> float:
        """The acceptance length with as many drafts as there are at present."""
        return self.speculation.length_of(self.drafts)

    def begin(self, request: Request) -> DraftCourse:
        """The course of ``request``, which joins a batch and lacks at least one token."""
        lacks = request.output_tokens - request.generated
        past = self._past.get(request, 0)
        drawn = self._generator(request.id).random(past + lacks)
        right = self._most - self._rates.searchsorted(drawn[past:] if past else drawn, "right")
        course = self._now[request] = DraftCourse(right, lacks, self.drafts, self._most)
        return course

    def turn(self, request: Request, done: int) -> DraftCourse:
        """The course of ``request`` from now on, ``done`` iterations after it began, when the
        number of drafts has changed."""
        course = self._now[request]
        lacks = int(course.gained[-1] - course.gained[done])
        course.go_on(done, lacks, self.drafts, self._most)
        return course

    def end(self, request: Request, iterations: int) -> None:
        """``request`` leaves its batch after so many of them."""
        course = self._now.pop(request)
        if iterations < course.last:
            self._past[request] = self._past.get(request, 0) + iterations
        elif self._past:
            self._past.pop(request, None)


class Upcoming:
    """Whole numbers by iteration, for the iterations that are to come: sums over courses."""

    __slots__ = ("_base", "_sums")

    def __init__(self) -> None:
        self._base = 0  # the iteration of the first number
        self._sums: Counts = np.zeros(FIRST, dtype=np.int64)

    def clear(self) -> None:
        """Forget all of them."""
        self._sums[:] = 0

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
