"""Holds the sequences that decode together as aggregates: a step costs the same for 1 or 1,000.

No iteration walks this batch. A member remembers the iteration at which it joined, so its progress
is a subtraction; the next one to finish is on top of a heap keyed by iteration.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.request import Request

NEVER = 1 << 60


class DecodeBatch:
    """Each member gains one token per iteration.

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

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) at ``now`` and has more to
        come."""
        iteration, fresh = self.iteration, self._fresh
        request.joined = iteration
        request.joins += 1
        request.last_token = now
        self.size += 1
        self.context += request.computed
        finish = iteration + request.output_tokens - request.generated
        heappush(self._finishes, (finish, request.id, request.joins, request))
        if finish < self.next_finish:
            self.next_finish = finish
        fresh[now] = fresh[now] + 1 if now in fresh else 1

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        steps = self.iteration - request.joined
        if steps:
            request.computed += steps
            request.generated += steps
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
                steps = iteration - request.joined
                request.computed += steps
                request.generated += steps
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
