"""Batches as engines did before iterations were scheduled: whole batches that none joins later.

``Static`` waits for exactly ``max_num_seqs`` requests, pads all prompts to the longest, and
computes every slot until the longest output is done. ``RequestLevel`` launches, once the previous
batch is over, what waits: up to ``max_num_seqs``, and fewer when the oldest has waited
``batch_timeout``; finished sequences cost no compute any more, but their slots stay taken.

Neither can preempt, so both reserve at launch memory for the whole of every sequence (the client's
``max_tokens`` is known then). Where memory cannot hold the next ``max_num_seqs`` requests, the
batch is the longest run of them that fits. A request ends with its own last token; its slot and
memory come back when the batch is over.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import islice

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.base import BatchShape, Chunk, Limits, Plan, Scheduler


class WholeBatch(Scheduler):
    """The base of both disciplines: the slots of the batch in flight and their reserved memory."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._batch: list[Request] = []
        self._left = 0  # members that are not finished
        self._finished_tokens = 0  # KV tokens of finished members, held until the batch is over

    def members(self) -> list[Request]:
        """Unfinished requests of the batch in flight."""
        return [r for r in self._batch if r.generated + self.steps(r) < r.output_tokens]

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """Slots have what was reserved at launch; none grows."""
        return {request: (self._length(request), False) for request in self._batch}

    def schedule(self, now: float) -> Plan | None:
        """Prefill of a new batch, or one decode of the batch in flight."""
        if self._batch:
            return self._decode()
        size = self._batch_size(now)
        if not size:
            return None
        self._launch(size, now)
        held = sum(r.prompt_tokens for r in self._batch)
        slots = len(self._batch)
        return Plan(self._prefill(), admitted=slots, running=slots, held=held)

    @abstractmethod
    def _batch_size(self, now: float) -> int:
        """How many of the waiting requests to launch at ``now``; 0 to wait for more."""

    @abstractmethod
    def _prefill(self) -> list[Chunk]:
        """The chunks that prefill the batch."""

    @abstractmethod
    def _decode(self) -> Plan:
        """One decode iteration of the batch."""

    @abstractmethod
    def _reserve(self, group: list[Request]) -> int:
        """Reserve memory for as many of ``group``, from its front, as fit; returns how many."""

    @abstractmethod
    def _length(self, request: Request) -> int:
        """Tokens reserved for the slot of ``request``."""

    def _launch(self, size: int, now: float) -> None:
        """Move the first ``size`` waiting requests, or as many of them as fit, into the batch."""
        self._left = self._reserve(list(islice(self.waiting, size)))
        self._batch = [self.waiting.popleft() for _ in range(self._left)]
        for request in self._batch:
            request.scheduled = now

    def _start_decoding(self, request: Request) -> None:
        """Memory was reserved at launch."""

    def _stop_decoding(self, request: Request) -> None:
        """Memory comes back when the batch is over."""

    def _retire(self, request: Request) -> None:
        """Keep slot and memory; the last member to finish returns them all."""
        self._left -= 1
        self._finished_tokens += request.computed
        if not self._left:
            for member in self._batch:
                self.kv.free(member)
            self._batch, self._finished_tokens = [], 0


class Static(WholeBatch):
    """Exactly ``max_num_seqs`` requests, padded; all slots run until the longest is done."""

    name = "static"
    about = "batches of exactly max_num_seqs requests, padded to the longest"
    shape = BatchShape(whole=True, padded=True)

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._padded = 0  # length of every prompt of the batch, padding included
        self._slot = 0  # tokens reserved for each slot
        self._first_decode = (
            0  # iteration of the decoding batch at which this batch began to decode
        )

    def _batch_size(self, now: float) -> int:
        size = self.limits.max_num_seqs
        if len(self.waiting) >= size:
            return size
        return len(self.waiting) if self.last_call else 0

    def _reserve(self, group: list[Request]) -> int:
        """Every slot is as long as the longest prompt and the longest output together."""
        prompt = output = slots = 0
        for request in group:
            prompt = max(prompt, request.prompt_tokens)
            output = max(output, request.output_tokens)
            if self.kv.room(prompt + output - 1) <= slots:
                break
            slots += 1
            self._slot = prompt + output - 1
        for request in group[:slots]:
            self.kv.allocate(request, self._slot)
        return slots

    def _length(self, request: Request) -> int:
        return self._slot

    def _prefill(self) -> list[Chunk]:
        self._first_decode = self.decoding.iteration
        self._padded = max(r.prompt_tokens for r in self._batch)
        return [Chunk(request, self._padded, 0) for request in self._batch]

    def _decode(self) -> Plan:
        batch, slots = self.decoding, len(self._batch)
        context = slots * (self._padded + batch.iteration - self._first_decode)
        held = batch.context_after(1) + self._finished_tokens
        return Plan(
            decode=batch.size,
            sequences=slots,
            context=context,
            running=slots,
            held=held,
            stationary=True,
        )


class RequestLevel(WholeBatch):
    """Batches all that waits once the last batch is over, when it is ``max_num_seqs`` or the oldest
    has waited ``batch_timeout``; finished sequences cost no compute.

    A server cannot know that no more requests will come, so the last batch waits as long as any
    other.
    """

    name = "request"
    about = "what waits when the last batch is over, if it is enough or has waited batch_timeout"
    knobs = frozenset({"batch_timeout"})
    shape = BatchShape(whole=True)

    def _batch_size(self, now: float) -> int:
        waiting, limits = self.waiting, self.limits
        if len(waiting) >= limits.max_num_seqs:
            return limits.max_num_seqs
        return len(waiting) if waiting and now >= self.wakeup(now) else 0

    def wakeup(self, now: float) -> float:
        """When the oldest waiting request has waited ``batch_timeout``."""
        if not self.waiting:
            return math.inf
        return self.waiting.oldest().queued + self.limits.batch_timeout

    def _reserve(self, group: list[Request]) -> int:
        """Every slot is as long as its own sequence will be."""
        for slots, request in enumerate(group):
            if not self.kv.allocate(request, request.longest_sequence()):
                return slots
        return len(group)

    def _length(self, request: Request) -> int:
        return request.longest_sequence()

    def _prefill(self) -> list[Chunk]:
        return [Chunk(request, request.prompt_tokens, 0) for request in self._batch]

    def _decode(self) -> Plan:
        batch = self.decoding
        held = batch.context_after(1) + self._finished_tokens
        return Plan(
            decode=batch.size,
            context=batch.context,
            running=len(self._batch),
            held=held,
            stationary=True,
        )
