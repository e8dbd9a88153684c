"""Plans drafts ahead, before it is known what the iteration in flight accepts of those before them.

vLLM 0.32's asynchronous scheduling (``v1/core/sched/async_scheduler.py``): the plan of an iteration
counts all tokens of the one in flight as there, and has drafts of each sequence again; what was
rejected is taken back when the results come. So a sequence has memory for the tokens of two
iterations, and one that ends by drafts that were accepted is computed once more for nothing. One
that is sure to end with the iteration in flight, since it lacks a single token, is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.base import Chunk, Limits, Plan

if TYPE_CHECKING:
    from sim.growth.sampled import Sampled
    from sim.memory.drafted import DraftedAllocator


class AsyncDraftedPrefill(AsyncChunkedPrefill):
    """``AsyncChunkedPrefill`` of sequences with drafts."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._again: dict[Request, int] = {}  # ended, and computed once more; tokens they got last
        self._short = False  # requests were preempted for those

    def _next(self, now: float) -> Plan | None:
        batch = cast("Sampled", self.decoding)
        if not batch.unforeseen:
            return super()._next(now)
        again = self._again = dict(batch.unforeseen)
        batch.unforeseen = []
        self._make_room_again()
        self.spoken_for = batch.asked(len(again))
        plan = super()._next(now)
        self.spoken_for, self._short = 0, False
        if again:
            if plan is None:
                plan = Plan(running=len(self._running))
            plan.sequences += len(again)
            plan.context += sum(request.computed for request in again)
            plan.stationary = False
        self._again = {}
        return plan

    def _make_room_again(self) -> None:
        """Memory for those who are computed once more."""
        kv = cast("DraftedAllocator", self.kv)
        for request in [each for each in self._running if each in self._again]:
            while request in self._again and not kv.reserve_extra(request, self._again[request]):
                self._preempt(self.waiting.victim(self._preemptible()))
                self._short = True
        if self._short:
            self._partials = [request for request in self._partials if request in self._running]

    def _preempt(self, request: Request) -> None:
        self._again.pop(request, None)
        super()._preempt(request)

    def _after_all(self, now: float, preempted: int) -> Plan | None:
        """Plans the iteration of requests that are computed once more; it admits no request."""
        return None if self._again else super()._after_all(now, preempted)

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        return 0 if self._short else super()._admit_waiting(chunks, budget, now)
