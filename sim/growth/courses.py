"""Draws how many tokens decoding sequences get from each iteration where tokens are speculated.

A request has a random stream of its own, and an iteration of its decoding one number of it: which
replica serves it, in which batch, or when it was preempted makes no difference to what is accepted.
So the whole course of a request is known when it joins a batch, and what a batch does in an
iteration is a sum over courses, which are added when requests join and taken off when they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sim.request import Request
from sim.rng import numbered
from sim.specs.speculation import Speculation

Counts = NDArray[np.int64]

FIRST = 1024
"""Iterations for which sums are kept to begin with."""


class DraftCourse:
    """A request's gain while it stays in a batch: ``gained[i]`` tokens after ``since`` + i
    iterations, up to all ``lacks`` that it lacked; ``before`` are those of one iteration less. Of
    its ``last`` iteration ``cut`` accepted drafts are too many. ``right`` is how many drafts in a
    row are right in each iteration, of the most that are ever made, and ``drafts`` how many are
    checked."""

    __slots__ = ("before", "cut", "drafts", "gained", "lacks", "last", "right", "since")

    def __init__(self, right: Counts, lacks: int, drafts: int, most: int) -> None:
        self.right, self.lacks, self.drafts = right, lacks, drafts
        self.since = self.before = 0
        reached = (right + 1 if drafts == most else np.minimum(right, drafts) + 1).cumsum()
        self._follow(reached, int(reached.searchsorted(lacks)) + 1, 0, 0)

    def turn(self, done: int, drafts: int) -> int:
        """From now on, ``done`` iterations after it began, it is laid anew for that many
        ``drafts``; returns the tokens that it has by now."""
        at, self.drafts = done - self.since, drafts
        if at:
            self.before, self.since = int(self.gained[at - 1]), done
        return int(self.gained[at])

    @property
    def got_last(self) -> int:
        """Tokens that its last iteration brings."""
        found: int = self.gained.item(-1) - self.gained.item(-2)
        return found

    def _follow(self, reached: Counts, more: int, beyond: int, now: int) -> None:
        """Lays the course of a sequence that has ``now`` tokens, and gets ``reached`` less
        ``beyond`` in sum in the ``more`` iterations that are left."""
        self.last = self.since + more
        gained = self.gained = np.empty(more + 1, dtype=np.int64)
        gained[0] = now
        np.subtract(reached[:more], beyond - now, out=gained[1:])
        self.cut = int(gained[more]) - self.lacks
        gained[more] = self.lacks


class DraftCourses:
    """The courses of the requests of one replica under ``speculation``, by the seed of the run.

    ``drafts``  how many are checked for each sequence in an iteration, at present
    ``length``  tokens that a sequence then gets of it, on average
    ``ahead``   whether iterations are planned before it is known what the last one accepts

    >>> always = DraftCourses(Speculation("ngram", 2, (1.0, 1.0)), seed=1)
    >>> request = Request(0, arrival=0.0, prompt_tokens=5, output_tokens=9)
    >>> request.generated = 1
    >>> always.begin(request).gained.tolist()
    [0, 3, 6, 8]
    >>> always.drafts = 1
    >>> always.turn([(request, 1)])  # after the first iteration
    >>> always[request].gained.tolist()
    [3, 5, 7, 8]
    """

    def __init__(self, speculation: Speculation, seed: int, *, ahead: bool = False) -> None:
        self.speculation, self.ahead = speculation, ahead
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

    def begin(self, request: Request, drafts: int | None = None) -> DraftCourse:
        """The course of ``request``, which joins a batch and lacks at least one token, for that
        many ``drafts`` (None: as at present)."""
        lacks = request.output_tokens - request.generated
        past = self._past.get(request, 0)
        drawn = self._generator(request.id).random(past + lacks)
        right = self._most - self._rates.searchsorted(drawn[past:] if past else drawn, "right")
        drafts = self.drafts if drafts is None else drafts
        course = self._now[request] = DraftCourse(right, lacks, drafts, self._most)
        return course

    def turn(self, members: Sequence[tuple[Request, int]]) -> None:
        """Lay the courses of ``members`` anew, that many iterations after each began, when the
        number of drafts has changed."""
        turned = [(self._now[request], done) for request, done in members]
        held = [course.turn(done, self.drafts) for course, done in turned]
        rests = [course.lacks - now for (course, _), now in zip(turned, held, strict=True)]
        right = np.concatenate(
            [c.right[done : done + rest] for (c, done), rest in zip(turned, rests, strict=True)]
        )
        if self.drafts < self._most:
            np.minimum(right, self.drafts, out=right)
        right += 1
        reached = right.cumsum()
        starts = [0, *accumulate(rests[:-1])]
        beyond = [0, *reached[[start - 1 for start in starts[1:]]].tolist()]
        ends = reached.searchsorted([a + b for a, b in zip(beyond, rests, strict=True)]).tolist()
        for (course, _), now, start, end, past in zip(
            turned, held, starts, ends, beyond, strict=True
        ):
            course._follow(reached[start : end + 1], end - start + 1, past, now)

    def end(self, request: Request, iterations: int) -> None:
        """``request`` leaves its batch after that many iterations."""
        course = self._now.pop(request)
        if iterations < course.last:
            self._past[request] = self._past.get(request, 0) + iterations
        elif self._past:
            self._past.pop(request, None)


class Upcoming:
    """Whole numbers by iteration, now and for those that are to come: sums over courses of what
    each has reached by then. A course that ends has to be taken off before the next iteration."""

    __slots__ = ("_base", "_sums")

    def __init__(self) -> None:
        self._base = 0  # the iteration of the first number
        self._sums: Counts = np.zeros(FIRST, dtype=np.int64)

    def clear(self) -> None:
        """Forget all of them."""
        self._sums[:] = 0

    def add(self, now: int, reached: Counts) -> None:
        """A course that has ``reached`` the first of these by now, and the others later; what was
        before is forgotten."""
        first = now - self._base
        last = first + len(reached)
        if last >= len(self._sums):
            first, last = self._move(now, len(reached))
        self._sums[first:last] += reached

    def take_off(self, now: int, reached: Counts) -> None:
        """A course that was added, from now on."""
        first = now - self._base
        self._sums[first : first + len(reached)] -= reached

    def take_last(self, now: int, reached: int) -> None:
        """A course that was added and ends now, having ``reached`` that."""
        self._sums[now - self._base] -= reached

    def _move(self, now: int, more: int) -> tuple[int, int]:
        """Put ``now`` first, with room for twice as much as is needed."""
        kept = self._sums[now - self._base :]
        size = max(FIRST, 2 * max(more, len(kept)))
        self._sums = np.zeros(size, dtype=np.int64)
        self._sums[: len(kept)] = kept
        self._base = now
        return 0, more

    def at(self, iteration: int) -> int:
        """The sum of one iteration."""
        found: int = self._sums.item(iteration - self._base)
        return found

    def gains(self, now: int, iterations: int) -> Counts:
        """By how much the sum has grown after each of the next that many."""
        place = now - self._base
        found: Counts = self._sums[place + 1 : place + iterations + 1] - self._sums[place]
        return found

    def gain(self, now: int, iterations: int) -> int:
        """By how much the sum grows in the next that many."""
        place = now - self._base
        if place + iterations >= len(self._sums):  # long after the last course
            place, _ = self._move(now, iterations + 1)
        number = self._sums.item
        found: int = number(place + iterations) - number(place)
        return found

    def within(self, now: int, iterations: int, limit: int) -> int:
        """How many of the next that many iterations let a sum that never falls grow by at most
        ``limit``."""
        place, sums = now - self._base, self._sums
        most = int(sums[place]) + limit
        if sums[place + iterations] <= most:
            return iterations
        reached = sums[place + 1 : place + iterations + 1]
        return int(reached.searchsorted(most, "right"))
