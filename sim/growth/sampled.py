"""Advances decoding sequences that get several tokens from an iteration, as many as are accepted.

Each member follows the course that was drawn for it (``courses``), so that a batch knows the tokens
of any iteration to come. What they gain is exact; the time of an iteration is predicted at the
context that the members have on average: within a run over the same members it grows by the
acceptance length of each, from what they held when the run began. So the times are a closed form,
the same with leaps and without.
"""

from __future__ import annotations

from heapq import heapify
from math import ceil, inf

import numpy as np

from sim.growth.courses import DraftCourses, Upcoming
from sim.growth.steady import NEVER, Line, Steady, SteadyRun
from sim.request import Request


class SampledRun(SteadyRun):
    """A run of decodes of the very same members, whose context grows by their mean."""

    __slots__ = ("_batch", "_changes", "growth")

    def __init__(
        self, start: float, sequences: int, context: int, line: Line, batch: Sampled
    ) -> None:
        super().__init__(start, sequences, context, line)
        self.growth = sequences * batch.courses.length
        self.step = line[2] * self.growth
        self._batch, self._changes = batch, batch.changes

    def continues(self, start: float, sequences: int, context: int) -> bool:
        """Whether an iteration that starts now over those sequences is this run's next one."""
        same = self._changes == self._batch.changes and sequences == self.sequences
        return same and start == self.end and self.left() > 0

    def left(self) -> int:
        """Iterations until the mean context reaches the end of the line of their times."""
        if self.limit == inf:
            return 1 << 40
        return ceil((self.limit - self.context) / self.growth) - self.done


class Sampled(Steady):
    """Sequences that decode together, each on a course of its own.

    ``changes``    how often a member came or went
    ``delivered``  tokens that the members got from the last plan
    ``accepted``   drafts that it accepted; some of them go beyond the end of an answer
    ``drafted``    drafts that the plan made last has made for each member, to be checked next
    ``unforeseen`` where plans are made ahead, members that finished although they might have lacked
                   tokens, and how many they got last
    """

    __slots__ = ("_ahead", "accepted", "changes", "courses", "delivered", "drafted", "unforeseen")

    def __init__(self, courses: DraftCourses) -> None:
        super().__init__()
        self.courses = courses
        self.unforeseen: list[tuple[Request, int]] = []
        self.changes = 0
        self.delivered = 0
        self.accepted = 0
        self.drafted = courses.drafts
        self._ahead = Upcoming()

    @property
    def drafts_by_batch(self) -> bool:  # type: ignore[override]
        """Whether the number of drafts that are checked follows the size of the batch."""
        return bool(self.courses.speculation.by_batch)

    @property
    def drafts_ahead(self) -> bool:  # type: ignore[override]
        """Whether drafts are planned before those of the iteration in flight are checked."""
        return self.courses.ahead

    @property
    def asks(self) -> int:  # type: ignore[override]
        """Tokens of an iteration's budget that each member takes."""
        return self.courses.speculation.slots_of(self.courses.drafts)

    @property
    def width(self) -> int:  # type: ignore[override]
        """Tokens of a pass that each member has: its last one, and the drafts that are checked."""
        return 1 + self.courses.drafts

    def asked(self, members: int) -> int:
        """Tokens of an iteration's budget that this many members take together."""
        return self.courses.speculation.asked(members, self.courses.drafts)

    def redraft(self, drafts: int) -> None:
        """From now on each iteration checks this number of drafts per member."""
        self.courses.drafts = drafts
        self._ahead.clear()
        now, courses = self.iteration, self.courses
        members = [r for _, _, joins, r in self._finishes if r.joined >= 0 and r.joins == joins]
        finishes: list[tuple[int, int, int, Request]] = []
        turning = [(r, now - r.joined) for r in members if courses[r].drafts != drafts]
        if turning:
            courses.turn(turning)
        for request in members:
            course = courses[request]
            self._ahead.add(now, course.gained)
            finishes.append((request.joined + course.last, request.id, request.joins, request))
        heapify(finishes)
        self._finishes = finishes
        self.next_finish = finishes[0][0] if finishes else NEVER
        self.changes += 1

    def run(self, start: float, sequences: int, context: int, line: Line) -> SampledRun:
        """The iterations from a start on, until a member comes or goes or ``line`` ends."""
        return SampledRun(start, sequences, context, line, self)

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) and has more to come."""
        course = self.courses.begin(request, self.drafted)
        self._ahead.add(self.iteration, course.gained)
        self.changes += 1
        super().join(request, now)

    def lasts(self, request: Request) -> int:
        """Iterations that a member which joins now needs for its last token."""
        return self.courses[request].last

    def gained(self, request: Request) -> int:
        """Tokens that a member got since it joined; they are not yet written into it."""
        course = self.courses[request]
        found: int = course.gained.item(self.iteration - request.joined - course.since)
        return found

    def gained_after(self, request: Request, iterations: int) -> int:
        """Tokens that a member will have got that many iterations on."""
        course = self.courses[request]
        place = self.iteration - request.joined + iterations - course.since
        found: int = course.gained.item(place)
        return found

    def tokens_of(self, number: int) -> int:
        """Tokens that the members get, summed, in the iteration after that many more."""
        gain, now = self._ahead.gain, self.iteration
        return gain(now, number + 1) - gain(now, number)

    def accepted_by(self, request: Request, iterations: int) -> list[int]:
        """Drafts of a member that each of the next that many iterations accepts, those beyond the
        end of its answer included."""
        done, courses = self.iteration - request.joined, self.courses
        right = courses[request].right[done : done + iterations]
        return np.minimum(right, courses.drafts).tolist()  # type: ignore[no-any-return]

    def context_after(self, iterations: int) -> int:
        """KV tokens that the members hold, summed, that many iterations on."""
        return self.context + self._ahead.gain(self.iteration, iterations)

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        done, course = self.iteration - request.joined, self.courses[request]
        self._ahead.take_off(self.iteration, course.gained[done - course.since :])
        self.changes += 1
        super().leave(request)
        self.courses.end(request, done)

    def advance(self, iterations: int, end: float) -> None:
        """``iterations`` decode iterations have run, the last of them until ``end``."""
        delivered = self.delivered = self._ahead.gain(self.iteration, iterations)
        self.accepted = delivered - iterations * self.size
        super().advance(iterations, end)
        self.context += self.accepted

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id within one iteration."""
        finished = super().pop_finished()
        if not finished:
            return finished
        courses = self.courses
        for request in finished:
            course = courses[request]
            self.accepted += course.cut
            if courses.ahead and (got := course.got_last) > 1:
                self.unforeseen.append((request, got))
            self._ahead.take_last(self.iteration, course.lacks)
            courses.end(request, course.last)
        self.changes += 1
        return finished
