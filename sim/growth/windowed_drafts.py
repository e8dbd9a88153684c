"""Advances sequences that get several tokens from an iteration and see their last tokens only.

As ``sampled``, with what members see through each window of the model (``windowed``). The course of
each is known, so what they see before any iteration to come is a sum over courses. A run ends where
a member fills a window, or begins a chunk; until then what it sees grows with its context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sim.growth.courses import Counts, DraftCourses, Upcoming
from sim.growth.sampled import Sampled, SampledRun
from sim.growth.steady import Line
from sim.growth.window_reads import WindowReads, seen_by_equals
from sim.request import Request
from sim.specs.window import NEVER, Window


class WindowedSampledRun(SampledRun):
    """A run of decodes of the very same members, until what one of them sees bends."""

    __slots__ = ("bend",)

    def __init__(
        self, start: float, sequences: int, context: int, line: Line, batch: WindowedSampled
    ) -> None:
        super().__init__(start, sequences, context, line, batch)
        self.bend = batch.until_bend()

    def left(self) -> int:
        """Iterations until the line of their times ends, or what a member sees bends."""
        return min(super().left(), self.bend - self.done)


class WindowedSampled(Sampled):
    """``Sampled`` sequences that see what ``windows`` leave of their contexts."""

    __slots__ = ("_bends", "_seen", "_windows")

    def __init__(self, courses: DraftCourses, windows: Sequence[Window]) -> None:
        super().__init__(courses)
        self._windows = tuple(windows)
        self._seen = [Upcoming() for _ in self._windows]
        # how often what members see through each window has bent
        self._bends = [Upcoming() for _ in self._windows]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Through which layers of the model see the members."""
        return self._windows

    def seen(self, sequences: int, context: int) -> WindowReads:
        """Reads of the members before the next iteration; ``sequences`` that hold ``context`` but
        are not the members hold equally much."""
        if sequences != self.size or context != self.context:
            return seen_by_equals(self._windows, sequences, context)
        now, size = self.iteration, self.size
        tokens = [sums.at(now) for sums in self._seen]
        growing = [
            size if window.chunked else size - sums.at(now)  # of a full window it has bent once
            for window, sums in zip(self._windows, self._bends, strict=True)
        ]
        return WindowReads(tuple(tokens), tuple(growing), NEVER)

    def until_bend(self) -> int:
        """Iterations over the members of now whose times lie on one line."""
        now, left = self.iteration, self.next_finish - self.iteration
        for sums in self._bends:
            left = min(left, sums.within(now, left, 0) + 1)
        return left

    def run(self, start: float, sequences: int, context: int, line: Line) -> WindowedSampledRun:
        """The iterations from a start on, until a member comes or goes, or its sight bends."""
        return WindowedSampledRun(start, sequences, context, line, self)

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) and has more to come."""
        super().join(request, now)
        self._add(request)

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        course = self.courses[request]
        rest = course.gained[self.iteration - request.joined - course.since :]
        self._take_off(request.computed + rest)
        super().leave(request)

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id within one iteration."""
        finished = super().pop_finished()
        now = self.iteration
        for request in finished:
            held = request.computed
            for window, seen, bends in zip(self._windows, self._seen, self._bends, strict=True):
                seen.take_last(now, window.seen(held))
                bends.take_last(now, int(window.bends(held)))
        return finished

    def redraft(self, drafts: int) -> None:
        """From now on each iteration checks this number of drafts per member."""
        super().redraft(drafts)
        for sums in (*self._seen, *self._bends):
            sums.clear()
        for _, _, _, request in self._finishes:
            self._add(request)

    def _add(self, request: Request) -> None:
        """Adds what ``request`` sees on the course laid for it from now on."""
        for sums, levels in self._levels(request.computed + self.courses[request].gained):
            sums.add(self.iteration, levels)

    def _take_off(self, held: Counts) -> None:
        """Remove a member, given the tokens that it would hold by now and after each iteration."""
        for sums, levels in self._levels(held):
            sums.take_off(self.iteration, levels)

    def _levels(self, held: Counts) -> Iterator[tuple[Upcoming, Counts]]:
        """The share of a sequence of this length in each sum."""
        for window, seen, bends in zip(self._windows, self._seen, self._bends, strict=True):
            last = window.size - 1
            yield seen, held % window.size if window.chunked else np.minimum(held, last)
            yield bends, window.bends(held)
