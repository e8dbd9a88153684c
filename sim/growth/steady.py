"""Advances decoding sequences, one token each per iteration: 1,000 cost as much as one.

What the rest of the simulator asks of sequences that grow is answered here: which finishes next,
how many tokens each has gained, what they hold some iterations on, and when those iterations end.
(The ring of ``sim.memory.paged`` is the same law in blocks, ``leaps`` in recorded rows.) A batch
that grows otherwise is a batch and a run with these methods.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from sim.growth.window_reads import ALL, WindowReads
from sim.request import Request
from sim.specs.window import Window

NEVER = 1 << 60

Line = tuple[float, float, float]
"""(limit, intercept, slope) of the times of iterations, as ``sim.iteration.Timer`` gives it."""


class SteadyRun:
    """A run of decode iterations over the same sequences: boundary j is a closed form of j.

    Iteration i (from 0) lasts ``first + step * i``, so boundary j lies ``j * first + step *
    j(j-1)/2`` after ``start``.
    """

    __slots__ = ("context", "done", "end", "first", "limit", "sequences", "start", "step")

    def __init__(self, start: float, sequences: int, context: int, line: Line) -> None:
        self.limit, intercept, slope = line
        self.start = self.end = start
        self.sequences = sequences
        self.context = context
        self.first = intercept + slope * context
        self.step = slope * sequences
        self.done = 0

    def continues(self, start: float, sequences: int, context: int) -> bool:
        """Whether an iteration that starts now over those sequences is this run's next one."""
        return (
            sequences == self.sequences
            and context == self.context + self.done * sequences
            and context < self.limit
            and start == self.end
        )

    def left(self) -> int:
        """Iterations until the line of their times ends: whatever bends it ends the run (at least
        1 where ``continues`` holds)."""
        if self.limit == inf:
            return 1 << 40
        return ceil((self.limit - self.context) / self.sequences) - self.done

    def advance(self, iterations: int, end: float) -> None:
        """The next ``iterations`` have run, the last of them until ``end``."""
        self.done += iterations
        self.end = end

    def boundary(self, j: int) -> float:
        """End of iteration number ``j`` (counted from 1), in seconds of simulated time."""
        return self.start + (j * self.first + self.step * (j * (j - 1) // 2))

    def first_boundary_from(self, time: float, low: int, high: int) -> int:
        """The smallest j in ``low..high`` with ``boundary(j) >= time`` (``high`` if there is
        none)."""
        start, first, step = self.start, self.first, self.step
        span, b = time - start, first - step / 2
        root = b + sqrt(b * b + 2 * step * span)
        j = int(2 * span / root) + 1 if root > 0 else low
        if j < low:
            j = low
        elif j > high:
            j = high
        # rounding may have put the guess next to it: what counts is ``boundary``
        while j > low and start + ((j - 1) * first + step * ((j - 1) * (j - 2) // 2)) >= time:
            j -= 1
        while j < high and start + (j * first + step * (j * (j - 1) // 2)) < time:
            j += 1
        return j


class Steady:
    """Sequences that decode together; each gains one token per iteration.

    No iteration walks them. A member remembers the iteration at which it joined, so its progress is
    a subtraction; the next one to finish is on top of a heap keyed by iteration.

    ``size``         members
    ``context``      KV tokens they hold, summed
    ``iteration``    decode iterations since the start of the run
    ``last_end``     when the last of those ended (s)
    ``next_finish``  the iteration after which the first of them has all its tokens
    """

    __slots__ = (
        "_finishes",
        "_fresh",
        "context",
        "iteration",
        "last_end",
        "next_finish",
        "size",
    )

    asks: int = 1
    """Tokens of an iteration's budget that each member takes."""

    width: int = 1
    """Tokens of a pass that each member has: its last one, and the drafts that are checked."""

    drafts_by_batch: bool = False
    """Whether the number of drafts that are checked follows the size of the batch."""

    drafts_ahead: bool = False
    """Whether drafts are planned before those of the iteration in flight are checked."""

    run: Callable[[float, int, int, Line], SteadyRun] = SteadyRun
    """The iterations from a start on, over that many sequences (padded slots included) that hold so
    many tokens in sum, their times on a line."""

    def __init__(self) -> None:
        self.size = 0
        self.context = 0
        self.iteration = 0
        self.last_end = -1.0
        self.next_finish = NEVER
        # (finishing iteration, id, joins, request); stale if ``joins`` is out of date, but the
        # first never is
        self._finishes: list[tuple[int, int, int, Request]] = []
        self._fresh: dict[float, int] = {}  # members yet to decode, by the time of their last token

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows through which layers of the model see the members
        (``sim.growth.windowed``)."""
        return ()

    def seen(self, sequences: int, context: int) -> WindowReads:
        """Reads of ``sequences`` that hold ``context`` through the windows before the next
        iteration."""
        return ALL

    def asked(self, members: int) -> int:
        """Tokens of an iteration's budget that this many members take together."""
        return members * self.asks

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) at ``now`` and has more to
        come."""
        iteration, fresh = self.iteration, self._fresh
        request.joined = iteration
        request.joins += 1
        request.last_token = now
        self.size += 1
        self.context += request.computed
        finish = iteration + self.lasts(request)
        heappush(self._finishes, (finish, request.id, request.joins, request))
        if finish < self.next_finish:
            self.next_finish = finish
        fresh[now] = fresh[now] + 1 if now in fresh else 1

    def put_off(self, request: Request, time: float) -> None:
        """The token with which ``request`` has just joined is handed out at ``time``."""
        fresh = self._fresh
        fresh[request.last_token] -= 1
        fresh[time] = fresh.get(time, 0) + 1
        request.last_token = time

    def lasts(self, request: Request) -> int:
        """Iterations that a member which joins now needs for its last token."""
        return request.output_tokens - request.generated

    def gained(self, request: Request) -> int:
        """Tokens that a member got since it joined; they are not yet written into it."""
        return self.iteration - request.joined

    def gained_after(self, request: Request, iterations: int) -> int:
        """Tokens that a member will have got that many iterations on."""
        return self.gained(request) + iterations

    def context_after(self, iterations: int) -> int:
        """KV tokens that the members hold, summed, that many iterations on."""
        return self.context + iterations * self.size

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        tokens = self.gained(request)
        if tokens:
            request.computed += tokens
            request.generated += tokens
            request.last_token = self.last_end
        else:
            self._fresh[request.last_token] -= 1
        request.joined = -1
        self.size -= 1
        self.context -= request.computed
        self._find_next()

    def _find_next(self) -> None:
        """Drop entries of members that left, and note which of the others finishes first."""
        finishes = self._finishes
        while finishes:
            finish, _, joins, request = finishes[0]
            if request.joined >= 0 and request.joins == joins:
                self.next_finish = finish
                return
            heappop(finishes)
        self.next_finish = NEVER

    def advance(self, iterations: int, end: float) -> None:
        """``iterations`` decode iterations have run, the last of them until ``end``."""
        self.iteration += iterations
        self.context += iterations * self.size
        self.last_end = end
        if self._fresh:
            self._fresh = {}

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id within one iteration."""
        finished: list[Request] = []
        finishes, iteration = self._finishes, self.iteration
        while finishes:
            finish, _, joins, request = finishes[0]
            if request.joins == joins and request.joined >= 0:
                if finish > iteration:
                    self.next_finish = finish
                    return finished
                tokens = self.gained(request)
                request.computed += tokens
                request.generated += tokens
                request.last_token = self.last_end
                request.joined = -1
                self.size -= 1
                self.context -= request.computed
                finished.append(request)
            heappop(finishes)
        self.next_finish = NEVER
        return finished

    def stalled(self, start: float) -> list[tuple[float, int]]:
        """(last token time, members) of those that got no token in the iteration that ended at
        ``start``: their next gap is longer than the iteration that closes it."""
        fresh = self._fresh
        cohorts = [(time, members) for time, members in fresh.items() if time < start and members]
        if self.last_end < start:
            others = self.size - sum(fresh.values())
            if others:
                cohorts.append((self.last_end, others))
        return cohorts
