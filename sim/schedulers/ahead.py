"""Plans an iteration while the one before it still runs, as engines do to hide planning time.

The plan of an iteration is made when the one before it begins. It knows the requests that had
arrived by then, and which of them end by their length in between; but those still have their slots
and their memory. So a finished request makes room an iteration later than without, and a newcomer
waits an iteration longer. An engine at rest plans at once.

The simulator asks for a plan when the iteration before it has ended. ``Ahead`` answers as if it had
been asked at its start: requests that came since are kept apart, and those that ended are held
until the plan is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Reversible

from sim.memory import Allocator
from sim.memory.caching import CachingAllocator
from sim.memory.state_caching import StateCachingAllocator
from sim.request import Request
from sim.schedulers.base import Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.iteration_level import IterationLevel


class Ahead(IterationLevel):
    """Makes a policy of iterations plan one ahead: written before it among the base classes."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._ended: dict[Request, None] = {}  # finished, their slots and memory not yet free
        self._busy = False  # an iteration is in flight, or has just ended

    def submit(self, request: Request) -> bool:
        """Queues a request that comes during an iteration: it misses the next plan, already
        made."""
        if not self._busy:
            return super().submit(request)
        self.coming.append(request)
        self.last_call = False
        return True

    def submit_early(self, request: Request) -> bool:
        """Queues a request that comes while an iteration is being launched: the next plan has
        it."""
        return super().submit(request)

    def schedule(self, now: float) -> Plan | None:
        """The plan that was made when the iteration before began."""
        preempted = self.preempted
        before = len(preempted)
        plan = self._next(now)
        settled = self._settle()
        while plan is None and settled:  # nothing could be planned ahead: now that all is known
            plan = self._next(now)
            settled = self._settle()
        if plan is None:
            self._busy = False
            return None
        self._busy = True
        plan.preempted = len(preempted) - before  # by a plan of nothing, too
        if settled:
            plan.stationary = False
        return plan

    @abstractmethod
    def _next(self, now: float) -> Plan | None:
        """The policy's next plan, from what it knows."""

    def members(self) -> list[Request]:
        """Unfinished requests in the batch."""
        return [request for request in self._running if request not in self._ended]

    def _preemptible(self) -> Reversible[Request]:
        """Running requests: those that have ended give their memory back in any case."""
        return self.members()

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """Running requests, and the finished ones that still hold memory."""
        ended = {request: (request.computed, False) for request in self._ended}
        return super().owners() | ended

    def _settle(self) -> bool:
        """Let go of the requests that have ended, and take in those that came; whether there were
        any."""
        if not self._ended and not self.coming:
            return False
        for request in self._ended:
            super()._retire(request)
        self._ended.clear()
        for request in self.coming:
            self.waiting.append(request)
        self.coming.clear()
        return True

    def _retire(self, request: Request) -> None:
        """Slot and memory come back when the next iteration has been planned."""
        self._ended[request] = None


class AsyncChunkedPrefill(Ahead, ChunkedPrefill):
    """vLLM V1's scheduler with asynchronous scheduling.

    A request that has ended since is in the batch for the plan, and may be preempted for memory.
    """

    def _preemptible(self) -> Reversible[Request]:
        return self._running

    def _preempt(self, request: Request) -> None:
        """Preempts a request; one that has ended loses its memory, too, and does not come back."""
        if request in self._ended:
            del self._ended[request]
            IterationLevel._retire(self, request)
        elif isinstance(self.kv, CachingAllocator | StateCachingAllocator):
            # the token that the iteration in flight computes is in the cache when it is known
            self.kv.unknown = int(self.steps(request) > 0)
            super()._preempt(request)
            self.kv.unknown = 0
        else:
            super()._preempt(request)

    def _after_all(self, now: float, preempted: int) -> Plan | None:
        """A plan of nothing is made again when it is known what ended, and what came."""
        return None if self._ended or self.coming else super()._after_all(now, preempted)

    def _decodes_at_all(self) -> bool:
        return super()._decodes_at_all() or bool(self._ended)

    _next = ChunkedPrefill.schedule
