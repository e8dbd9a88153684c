"""Batches continuously where pools prefill and decode apart: vLLM's rule with a KV connector.

A prompt is computed in a prefill pool, as a request of one token (``Prompt``), whose KV stays there
until a decode replica has it. There the request (``HandedOver``) first gets blocks for its whole
prompt, in the order of arrival and only while a slot is free; then its KV comes over the link,
without a slot; then it enters the batch with the last token of its prompt, which is computed once
more, since that gives the first token of the answer (vLLM 0.32, ``WAITING_FOR_REMOTE_KVS``). A
preempted request loses its KV and is prefilled again where it decodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from sim.memory import Allocator
from sim.request import NEVER, Request
from sim.schedulers.base import Chunk, Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill


class HandedOver(Request):
    """A request that decodes elsewhere than its prompt was computed. Times in seconds: its prompt
    was complete at ``prefilled``, its blocks were there at ``taken``, its KV went over the link
    from ``sent`` on and had arrived at ``arrived``; ``source`` is the number of the replica, or of
    its data rank, that computed the prompt, ``target`` where it decodes; -1 before that is known.
    ``asked`` is the request that was sent.
    """

    __slots__ = ("arrived", "asked", "prefilled", "sent", "source", "taken", "target")

    def __init__(self, request: Request) -> None:
        super().__init__(
            request.id,
            request.arrival,
            request.prompt_tokens,
            request.output_tokens,
            request.traffic_class,
            request.prefix,
            request.session,
        )
        self.asked, self.queued = request, request.queued
        self.prefilled = self.taken = self.sent = self.arrived = NEVER
        self.source = self.target = -1


class Prompt(Request):
    """The prompt of ``handed`` in a prefill pool: a request whose only token is discarded."""

    __slots__ = ("handed",)

    def __init__(self, handed: HandedOver) -> None:
        super().__init__(
            handed.id,
            handed.arrival,
            handed.prompt_tokens,
            1,
            handed.traffic_class,
            handed.prefix,
            handed.session,
        )
        self.queued = handed.queued
        self.handed = handed


class PrefillRole(ChunkedPrefill):
    """Computes prompts and keeps their KV until it is released."""

    role: ClassVar[str] = "prefill"

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self.kept: dict[Request, None] = {}  # complete prompts whose KV is not taken yet
        self._kept_tokens = 0
        self._planned = Plan()  # the iteration in flight, or the last one

    def schedule(self, now: float) -> Plan | None:
        """Plans as vLLM does; KV that is kept for hand-over fills memory too."""
        plan = super().schedule(now)
        if plan is not None:
            plan.held += self._kept_tokens
            self._planned = plan
        return plan

    def _retire(self, request: Request) -> None:
        """A complete prompt leaves the batch, its memory stays."""
        del self._running[request]
        self.kept[request] = None
        self._kept_tokens += request.computed

    def release(self, request: Request) -> None:
        """A decode replica has the KV of ``request``."""
        del self.kept[request]
        self._kept_tokens -= request.computed
        self._planned.held -= request.computed
        self.kv.free(request)

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """Also those whose prompt is complete."""
        return {**super().owners(), **{r: (r.computed, False) for r in self.kept}}


class DecodeRole(ChunkedPrefill):
    """Decodes requests whose KV comes from elsewhere; prompts that are sent to it without are
    prefilled here, as by vLLM's own rule, and go first.

    ``coming`` are the requests that have no blocks yet. ``on_taken`` is called with each that has
    just got them.
    """

    role: ClassVar[str] = "decode"

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self.on_taken: Callable[[HandedOver], None]
        self._pulling: dict[Request, None] = {}  # have blocks, and their KV is on its way
        self._ready: deque[Request] = deque()  # have their KV, and no slot yet

    def submit(self, request: Request) -> bool:
        """Queues a request; one that is handed over waits for memory behind all others."""
        if not isinstance(request, HandedOver):
            return super().submit(request)
        self.coming.append(request)
        self.handed += 1
        return len(self.coming) == 1 and not self.waiting

    def receive(self, request: Request) -> bool:
        """The KV of ``request`` is here; whether the next plan may differ for it."""
        del self._pulling[request]
        request.computed = request.prompt_tokens - 1
        self._ready.append(request)
        self.handed += 1
        return len(self._running) < self.limits.max_num_seqs

    def withdraw(self, request: Request) -> bool:
        """Also one that has its KV and no slot yet; not while that is on its way."""
        if request in self._ready:
            self._ready.remove(request)
            self.handed -= 1
            self.kv.free(request)
            request.computed = 0
            return True
        self.handed -= request in self.coming
        return super().withdraw(request)

    def members(self) -> list[Request]:
        """Also those that have memory and are not in the batch yet."""
        return [*self._running, *self._pulling, *self._ready]

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """The requests with memory; those whose KV is on its way, with their whole prompt."""
        whole = {r: (r.prompt_tokens, False) for r in (*self._pulling, *self._ready)}
        return super().owners() | whole

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        """Admits requests whose KV is here, then prompts, then blocks for KV that is elsewhere."""
        ready, running, most = self._ready, self._running, self.limits.max_num_seqs
        admitted = 0
        # where tokens are drafted, its first iteration is filled up with drafts that count for
        # nothing, so that all sequences have as many tokens (vLLM 0.32, ``pad_spec_decode``)
        asks = self.decoding.asks
        while ready and budget >= asks and len(running) < most:
            if not self.kv.resume_from_host(ready[0]):
                break
            request = ready.popleft()
            running[request] = None
            chunks.append(Chunk(request, 1, request.computed))
            budget -= asks
            admitted += 1
        self.handed -= admitted
        if self.waiting:
            before = len(chunks)
            admitted += super()._admit_waiting(chunks, budget, now)
            budget -= sum(chunk.tokens for chunk in chunks[before:])
        if not self.waiting and budget > 0:
            self._take()
        return admitted

    def _take(self) -> None:
        """Give blocks to those whose KV is elsewhere, first come, first served."""
        coming, running, most = self.coming, self._running, self.limits.max_num_seqs
        while coming and len(running) < most:
            request = coming[0]
            assert isinstance(request, HandedOver)
            if not self.kv.allocate_for_load(request, request.prompt_tokens):
                break
            del coming[0]
            self.handed -= 1
            self._pulling[request] = None
            self.on_taken(request)
