"""What each batching policy does, as logs worked out by hand.

One line per iteration: its step, the prompts it prefills as ``request:tokens``, who decodes (and over
how many slots, where those are more), who was preempted for it, and who is done after it.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType

import pytest

from sim.errors import UsageError
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request
from sim.schedulers import (
    ChunkedPrefill,
    Limits,
    Plan,
    PrefillFirst,
    RequestLevel,
    Scheduler,
    Static,
    make_scheduler,
)

Lengths = tuple[int, int, int]
"""(step of arrival, prompt tokens, output tokens)"""

FOUR = [(0, 4, 2), (0, 2, 4), (1, 3, 1), (2, 5, 2)]


def plenty() -> PagedAllocator:
    """More memory than any of these requests can use."""
    return PagedAllocator(1000, 4)


def describe(plan: Plan, scheduler: Scheduler) -> str:
    """One iteration in words, before it has run."""
    parts = []
    if plan.preempted:
        thrown_out = [scheduler.waiting[i].id for i in reversed(range(plan.preempted))]
        parts.append("preempt " + " ".join(map(str, thrown_out)))
    if plan.chunks:
        parts.append("prefill " + " ".join(f"{c.request.id}:{c.tokens}" for c in plan.chunks))
    if plan.decode:
        names = " ".join(str(r.id) for r in scheduler.members() if r.joined >= 0)
        padding = f" in {plan.computed}" if plan.computed != plan.decode else ""
        parts.append(f"decode {names}{padding}")
    return " | ".join(parts)


class Script:
    """Feeds a scheduler and writes down what it does; every iteration takes one second."""

    def __init__(self, scheduler: Scheduler, arrivals: list[Lengths]) -> None:
        self.scheduler = scheduler
        self.requests = [
            Request(number, float(at), prompt, output)
            for number, (at, prompt, output) in enumerate(arrivals)
        ]
        self.coming = list(self.requests)
        self.now = 0
        self.log: list[str] = []
        self.held: list[int] = []
        self.reserved: list[int] = []

    def step(self) -> Plan | None:
        """One second: who is due arrives, then an iteration runs if there is one."""
        scheduler = self.scheduler
        while self.coming and self.coming[0].queued <= self.now:
            scheduler.submit(self.coming.pop(0))
        plan = scheduler.schedule(float(self.now))
        if plan is not None:
            line = f"{self.now}: {describe(plan, scheduler)}"
            self.held.append(plan.held)
            self.reserved.append(scheduler.kv.reserved())
            done = scheduler.complete(plan, 1, self.now + 1.0)
            self.log.append(line + (f" | done {' '.join(str(r.id) for r in done)}" if done else ""))
        scheduler.check_integrity()
        self.now += 1
        return plan

    def run(self, until: int, *, flush: bool = True) -> list[str]:
        """Up to step ``until``; with ``flush``, the scheduler hears that nobody else will come."""
        while self.now < until:
            if flush and not any(r.queued > self.now for r in self.coming):
                self.now, now = until, self.now
                self._last_call(now)
            else:
                self.step()
        return self.log

    def _last_call(self, now: int) -> None:
        until, self.now = self.now, now
        while self.coming:
            self.scheduler.submit(self.coming.pop(0))
        self.scheduler.flush()
        while self.now < until:
            self.step()
