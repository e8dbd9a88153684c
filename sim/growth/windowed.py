"""Advances decoding sequences of a model whose layers see the last tokens of a context only.

Besides what ``steady`` keeps, a batch knows how many tokens its sequences see through each window,
and how many of them see one more with each iteration. When a sequence has filled a window, or
begins a chunk anew, that growth bends. The bends lie in a heap keyed by iteration, and a run ends
at the next one, so that no iteration walks the sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from sim.growth.steady import Line, Steady, SteadyRun
from sim.growth.window_reads import WindowReads, seen_by_equals
from sim.request import Request
from sim.specs.window import NEVER, Window


class WindowedRun(SteadyRun):
    """A run of decodes of the very same members: others may hold as much and see something else."""

    __slots__ = ("_batch", "_changes")

    def __init__(
        self, start: float, sequences: int, context: int, line: Line, batch: Windowed
    ) -> None:
        super().__init__(start, sequences, context, line)
        self._batch, self._changes = batch, batch.changes

    def continues(self, start: float, sequences: int, context: int) -> bool:
        """Whether an iteration that starts now over those sequences is this run's next one."""
        same = self._changes == self._batch.changes
        return same and super().continues(start, sequences, context)

    def left(self) -> int:
        """Iterations until the run changes; where slots are padded, also until a member's own
        blocks bend."""
        batch, left = self._batch, super().left()
        if self.sequences == batch.size and self.context + self.done * batch.size == batch.context:
            return left
        return min(left, batch.seen(batch.size, batch.context).left)


class Windowed(Steady):
    """Sequences that decode together and see what ``windows`` leave of their contexts.

    ``changes`` counts how often a member came or went.
    """

    __slots__ = ("_bends", "_growing", "_tokens", "_windows", "changes")

    def __init__(self, windows: Sequence[Window]) -> None:
        super().__init__()
        self._windows = tuple(windows)
        self.changes = 0
        self._tokens = [0] * len(self._windows)
        self._growing = [0] * len(self._windows)
        # (iteration, id, joins, index of the window, request); stale if ``joins`` is out of date
        self._bends: list[tuple[int, int, int, int, Request]] = []

    def run(self, start: float, sequences: int, context: int, line: Line) -> WindowedRun:
        """The iterations from a start on, until a member comes or goes or ``line`` ends."""
        return WindowedRun(start, sequences, context, line, self)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Through which layers of the model see the members."""
        return self._windows

    def seen(self, sequences: int, context: int) -> WindowReads:
        """Reads of the members before the next iteration.

        ``sequences`` that hold ``context`` but are not the members are padded: all hold equally
        much.
        """
        if sequences != self.size or context != self.context:
            return seen_by_equals(self._windows, sequences, context)
        bends = self._bends
        while bends and self._gone(bends[0]):
            heappop(bends)
        left = bends[0][0] - self.iteration if bends else NEVER
        return WindowReads(tuple(self._tokens), tuple(self._growing), left)

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) and has more to come."""
        super().join(request, now)
        self.changes += 1
        for place, window in enumerate(self._windows):
            self._tokens[place] += window.seen(request.computed)
            turn = window.turns(request.computed)
            if turn < NEVER:
                self._growing[place] += 1
                bend = (self.iteration + turn, request.id, request.joins, place, request)
                heappush(self._bends, bend)

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        super().leave(request)
        self._drop(request)

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id within one iteration."""
        finished = super().pop_finished()
        for request in finished:
            self._drop(request)
        return finished

    def advance(self, iterations: int, end: float) -> None:
        """``iterations`` decode iterations have run, the last of them until ``end``."""
        super().advance(iterations, end)
        for place, growing in enumerate(self._growing):
            self._tokens[place] += iterations * growing
        bends = self._bends
        while bends and bends[0][0] <= self.iteration:
            bend = heappop(bends)
            if not self._gone(bend):
                self._bend(*bend)

    def _bend(self, iteration: int, number: int, joins: int, place: int, request: Request) -> None:
        """At ``iteration`` the growth of what ``request`` sees through one window changed."""
        window = self._windows[place]
        if window.chunked:
            self._tokens[place] -= window.size
            later = (iteration + window.size, number, joins, place, request)
            heappush(self._bends, later)
        else:
            self._tokens[place] -= self.iteration - iteration
            self._growing[place] -= 1

    def _gone(self, bend: tuple[int, int, int, int, Request]) -> bool:
        """Whether the member of a bend has left, and perhaps joined again since."""
        _, _, joins, _, request = bend
        return request.joined < 0 or request.joins != joins

    def _drop(self, request: Request) -> None:
        """``request``, whose progress is written down, is no longer a member."""
        self.changes += 1
        for place, window in enumerate(self._windows):
            self._tokens[place] -= window.seen(request.computed)
            self._growing[place] -= window.turns(request.computed) < NEVER
