"""Schedules as vLLM V1 and SGLang do where requests ask for LoRA adapters.

The adapters of all running requests must have a slot. A waiting request with another adapter is
passed over while none is left, and keeps its place in the queue (``v1/core/sched/scheduler.py`` of
vLLM 0.33; ``can_schedule_lora_req`` in ``managers/scheduler.py`` of SGLang 0.5.7 to 0.5.23). Where
it ``blocks`` instead, no prompt enters before a request has left (``get_new_batch_prefill`` of
SGLang 0.5.1 and 0.5.6). An adapter without a slot is copied from the host before the iteration that
needs it, in place of the one that was needed least recently; vLLM takes the adapters of a batch in
any order, here those that have a slot keep it. An iteration of vLLM needs the adapters of all that
run, one of SGLang those of the prompts or decodes in it.

SGLang's own scheduler (0.5.23) formed the same batches in 150 random cases, 75 bound by slots; they
are not among the recordings of the tests.

Left out: SGLang's loads next to computation (``--enable-lora-overlap-loading``) and its waits for
adapters to drain (``--lora-drain-wait-threshold``), neither of which is on by default.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.base import Chunk, Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.sglang import Sglang
from sim.schedulers.sglang_overlap import SglangOverlap


@dataclass(slots=True)
class AdapterSlots:
    """The ``number`` of slots of one replica; filling one takes ``seconds``. A request that lacks
    one ``blocks`` those behind it, or is passed over."""

    number: int
    seconds: float
    blocks: bool = False
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


class Adapted(IterationLevel):
    """Makes a policy have at most as many different adapters in the batch as there are ``slots``:
    written before it among the base classes."""

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

    def _loaded(self, plan: Plan | None, now: float) -> Plan | None:
        """The ``plan`` of the engine, which starts once the adapters that it lacks are copied."""
        if plan is None:
            return None
        needed = self._needed(plan)
        self.adapters, self.loads = len(needed), self.slots.need(needed)
        if self.loads:
            self.starts = now + self.loads * self.slots.seconds
        return plan

    def _needed(self, plan: Plan) -> set[int]:
        """The adapters that ``plan`` needs."""
        return self._of_running()

    def _of_running(self) -> set[int]:
        return {request.adapter for request in self._running}

    def _lacks_slot(self, request: Request) -> bool:
        """Whether ``request`` would be one adapter too many."""
        return len(self._taken) == self.slots.number and request.adapter not in self._taken

    def _restore(self) -> None:
        """Those that were passed over have their places in the queue again."""
        while self._passed:
            self.waiting.appendleft(self._passed.pop())

    def _admit(self, now: float, cached: int) -> Request:
        request = super()._admit(now, cached)
        self._taken.add(request.adapter)
        return request

    def check_integrity(self) -> None:
        """The adapters of running requests, too."""
        super().check_integrity()
        assert len(self._of_running()) <= self.slots.number >= len(self.slots.loaded)


class AdapterPrefill(Adapted, ChunkedPrefill):
    """``ChunkedPrefill`` with adapters."""

    def schedule(self, now: float) -> Plan | None:
        """The plan of vLLM."""
        return self._loaded(super().schedule(now), now)

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        self._taken = self._of_running()
        admitted = super()._admit_waiting(chunks, budget, now)
        self._restore()
        return admitted

    def _found(self, request: Request, now: float) -> int | None:
        if self._lacks_slot(request):
            self._passed.append(self.waiting.popleft())
            return None
        return super()._found(request, now)


class AsyncAdapterPrefill(AdapterPrefill, AsyncChunkedPrefill):
    """``AdapterPrefill`` with asynchronous scheduling."""


class AdapterSglang(Adapted, Sglang):
    """``Sglang`` with adapters."""

    def schedule(self, now: float) -> Plan | None:
        """The plan of SGLang."""
        return self._loaded(super().schedule(now), now)

    def _needed(self, plan: Plan) -> set[int]:
        decoding = [r for r in self.members() if r.joined >= 0] if plan.decode else []
        return {r.adapter for r in (*decoding, *(chunk.request for chunk in plan.chunks))}

    def _fill(self, running: int, now: float) -> tuple[list[Chunk], int]:
        self._taken = self._of_running()
        filled = super()._fill(running, now)
        self._restore()
        return filled

    def _head(self) -> Request | None:
        while (request := super()._head()) is not None and self._lacks_slot(request):
            if self.slots.blocks:
                self._full = True
                return None
            self._passed.append(self.waiting.popleft())
        return request


class AdapterSglangOverlap(AdapterSglang, SglangOverlap):
    """``AdapterSglang`` as it starts by default: it plans while an iteration runs."""
