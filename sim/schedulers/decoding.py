"""The sequences that decode together, held as aggregates so that a step costs the same for 1 or
1,000.

No iteration walks this batch. A member remembers the iteration at which it joined, so its progress
is a subtraction; the next one to finish is on top of a heap keyed by iteration.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.request import Request


class DecodeBatch:
    """Each member gains one token per iteration.

    ``size``       members
    ``context``    KV tokens they hold, summed
    ``iteration``  decode iterations since the start of the run
    ``last_end``   when the last of those ended (s)
    """

    __slots__ = ("_finishes", "_fresh", "context", "iteration", "last_end", "size")

    def __init__(self) -> None:
        self.size = 0
        self.context = 0
        self.iteration = 0
        self.last_end = -1.0
        # (finishing iteration, id, joins, request); stale if ``joins`` is out of date
        self._finishes: list[tuple[int, int, int, Request]] = []
        self._fresh: list[list[float]] = []  # [last token time, members] of those yet to decode

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) at ``now`` and has more to
        come."""
        request.joined = self.iteration
        request.joins += 1
        request.last_token = now
        self.size += 1
        self.context += request.computed
        finish = self.iteration + request.output_tokens - request.generated
        heappush(self._finishes, (finish, request.id, request.joins, request))
        fresh = self._fresh
        if fresh and fresh[-1][0] == now:
            fresh[-1][1] += 1
        else:
            fresh.append([now, 1])

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        steps = self.iteration - request.joined
        if steps:
            request.computed += steps
            request.generated += steps
            request.last_token = self.last_end
        else:
            cohort = next(c for c in self._fresh if c[0] == request.last_token)
            cohort[1] -= 1
        request.joined = -1
        self.size -= 1
        self.context -= request.computed

    def advance(self, iterations: int, end: float) -> None:
        """``iterations`` decode iterations have run, the last of them until ``end``."""
        self.iteration += iterations
        self.context += iterations * self.size
        self.last_end = end
        if self._fresh:
            self._fresh.clear()

    def iterations_to_finish(self) -> int:
        """Iterations until the first member has all its tokens (the batch must not be empty)."""
        finishes = self._finishes
        while True:
            finish, _, joins, request = finishes[0]
            if request.joined >= 0 and request.joins == joins:
                return finish - self.iteration
            heappop(finishes)

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id within one iteration."""
        finished: list[Request] = []
        finishes, iteration = self._finishes, self.iteration
        while finishes and finishes[0][0] <= iteration:
            _, _, joins, request = heappop(finishes)
            if request.joined >= 0 and request.joins == joins:
                self.leave(request)
                finished.append(request)
        return finished

    def stalled(self, start: float) -> list[tuple[float, int]]:
        """(last token time, members) of those who got no token in the iteration that ended at
        ``start``: their next gap is longer than the iteration that closes it."""
        if self.last_end >= start and not self._fresh:
            return []
        fresh = sum(int(members) for _, members in self._fresh)
        cohorts = [
            (time, int(members)) for time, members in self._fresh if time < start and members
        ]
        if self.last_end < start and self.size > fresh:
            cohorts.append((self.last_end, self.size - fresh))
        return cohorts
