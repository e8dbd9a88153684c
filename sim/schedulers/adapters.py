"""Schedules vLLM V1's way where requests ask for LoRA adapters.

The adapters of all running requests must have a slot. A waiting request with another adapter is
passed over while none is left, and keeps its place in the queue (``v1/core/sched/scheduler.py`` of
0.33). An adapter without a slot is copied from the host before the iteration that needs it, in
place of the one that was needed least recently; vLLM takes the adapters of a batch in any order,
here those that have a slot keep it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.base import Chunk, Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill


@dataclass(slots=True)
class AdapterSlots:
    """The ``number`` of slots of one replica; filling one takes ``seconds``."""

    number: int
    seconds: float
    loaded: dict[int, None] = field(default_factory=dict)
    """Adapters on the GPU, the one needed least recently first."""

    def need(self, adapters: Set[int]) -> int:
        """Have a slot for each of ``adapters``, at most ``number``; returns how many are copied.

        >>> slots = AdapterSlots(2, 0.001)
        >>> slots.need({5}), slots.need({7}), slots.need({5}), slots.need({9}), list(slots.loaded)
        (1, 1, 0, 1, [5, 9])
        """
        loaded = self.loaded
        missing = 0
        for adapter in sorted(adapters):
            missing += adapter not in loaded
            loaded.pop(adapter, None)
        while len(loaded) + len(adapters) > self.number:
            del loaded[next(iter(loaded))]
        loaded.update(dict.fromkeys(sorted(adapters)))
        return missing


class AdapterPrefill(ChunkedPrefill):
    """``ChunkedPrefill`` with at most as many different adapters in the batch as there are
    ``slots``."""

    def __init__(self, limits: Limits, kv: Allocator, slots: AdapterSlots) -> None:
        super().__init__(limits, kv)
        self.slots = slots
        self.adapters = 0
        """Different adapters in the iteration that was planned last."""
        self.loads = 0
        """Adapters that were copied for it."""
        self._taken: set[int] = set()  # adapters of running requests
        self._passed: list[Request] = []  # requests that lack a slot, in order of the queue

    def submit(self, request: Request) -> bool:
        """Queues a request, which may pass those before it."""
        return super().submit(request) or len(self._running) < self.limits.max_num_seqs

    def schedule(self, now: float) -> Plan | None:
        """The plan of vLLM, once the adapters that it lacks are copied."""
        plan = super().schedule(now)
        if plan is None:
            return None
        needed = self._of_running()
        self.adapters, self.loads = len(needed), self.slots.need(needed)
        if self.loads:
            self.starts = now + self.loads * self.slots.seconds
        return plan

    def _of_running(self) -> set[int]:
        return {request.adapter for request in self._running}

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        self._taken = self._of_running()
        admitted = super()._admit_waiting(chunks, budget, now)
        while self._passed:
            self.waiting.appendleft(self._passed.pop())
        return admitted

    def _found(self, request: Request, now: float) -> int | None:
        if len(self._taken) == self.slots.number and request.adapter not in self._taken:
            self._passed.append(self.waiting.popleft())
            return None
        return super()._found(request, now)

    def _admit(self, now: float, cached: int) -> Request:
        request = super()._admit(now, cached)
        self._taken.add(request.adapter)
        return request

    def check_integrity(self) -> None:
        """The adapters of running requests, too."""
        super().check_integrity()
        assert len(self._of_running()) <= self.slots.number >= len(self.slots.loaded)


class AsyncAdapterPrefill(AdapterPrefill, AsyncChunkedPrefill):
    """``AdapterPrefill`` with asynchronous scheduling."""
