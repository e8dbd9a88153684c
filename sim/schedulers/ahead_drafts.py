"""Plans drafts ahead, before it is known what the iteration in flight accepts of those before them.

vLLM 0.32's asynchronous scheduling (``v1/core/sched/async_scheduler.py``): the plan of an iteration
counts all tokens of the one in flight as there, and has drafts of each sequence again; what was
rejected is taken back when the results come. So a sequence has memory for the tokens of two
iterations, and one that ends by drafts that were accepted is computed once more for nothing. One
that is sure to end with the iteration in flight, since it lacks a single token, is not.
"""

from __future__ import annotations

from typing import cast

from sim.growth.sampled import Sampled
from sim.memory.drafted import DraftedAllocator
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.base import Plan


class AsyncDraftedPrefill(AsyncChunkedPrefill):
    """``AsyncChunkedPrefill`` of sequences with drafts."""

    shape = AsyncChunkedPrefill.shape

    def _next(self, now: float) -> Plan | None:
        batch, kv = cast(Sampled, self.decoding), cast(DraftedAllocator, self.kv)
        ended = batch.unforeseen
        if not ended:
            return super()._next(now)
        batch.unforeseen = []
        for request, got in ended:
            kv.hold_unforeseen(request, got)
        self.spoken_for = len(ended) * batch.asks
        plan = super()._next(now)
        self.spoken_for = 0
        if plan is None:
            plan = Plan(running=len(self._running))
        plan.sequences += len(ended)
        plan.context += sum(request.computed for request, _ in ended)
        plan.stationary = False
        return plan
