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
from sim.schedulers.base import Chunk, Limits, Plan, Scheduler


class WholeBatch(Scheduler):
    """What both disciplines share: the slots of the batch in flight and their reserved memory."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._batch: list[Request] = []
        self._reserved: list[int] = []  # tokens reserved for each slot
        self._left = 0  # members that are not finished
        self._finished_tokens = 0  # KV tokens of finished members, held until the batch is over

    def members(self) -> list[Request]:
        """Unfinished requests of the batch in flight."""
        return [r for r in self._batch if r.generated + self.steps(r) < r.output_tokens]

    def sequences(self) -> list[tuple[int, bool]]:
        """Slots own what was reserved at launch; none grows."""
        return [(tokens, False) for tokens in self._reserved]

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
        return Plan(self._prefill(), 0, 0, 0, slots, 0, slots, held, False)

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
    def _reserve(self, group: list[Request]) -> list[int]:
        """Reserve memory for as many of ``group``, from its front, as fit; tokens of each slot."""

    def _launch(self, size: int, now: float) -> None:
        """Move the first ``size`` waiting requests, or as many of them as fit, into the batch."""
        self._reserved = self._reserve(list(islice(self.waiting, size)))
        self._left = len(self._reserved)
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
            for tokens in self._reserved:
                self.kv.free(tokens)
            self._batch, self._reserved, self._finished_tokens = [], [], 0


class Static(WholeBatch):
    """Exactly ``max_num_seqs`` requests, padded; all slots run until the longest is done."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._padded = 0  # length of every prompt of the batch, padding included
        self._first_decode = (
            0  # iteration of the decoding batch at which this batch began to decode
        )

    def _batch_size(self, now: float) -> int:
        size = self.limits.max_num_seqs
        if len(self.waiting) >= size:
            return size
        return len(self.waiting) if self.last_call else 0

    def _reserve(self, group: list[Request]) -> list[int]:
        """Every slot is as long as the longest prompt and the longest output together."""
        prompt = output = slots = tokens = 0
        for request in group:
            prompt = max(prompt, request.prompt_tokens)
            output = max(output, request.output_tokens)
            if not self.kv.fits(prompt + output - 1, sequences=slots + 1):
                break
            slots += 1
            tokens = prompt + output - 1
        for _ in range(slots):
            self.kv.allocate(0, tokens)
        return [tokens] * slots

    def _prefill(self) -> list[Chunk]:
        self._first_decode = self.decoding.iteration
        self._padded = max(r.prompt_tokens for r in self._batch)
        return [Chunk(request, self._padded, 0) for request in self._batch]

    def _decode(self) -> Plan:
        batch, slots = self.decoding, len(self._batch)
        context = slots * (self._padded + batch.iteration - self._first_decode)
        held = batch.context + batch.size + self._finished_tokens
        return Plan([], batch.size, slots, context, 0, 0, slots, held, True)


class RequestLevel(WholeBatch):
    """What waits once the last batch is over, when it is ``max_num_seqs`` or the oldest has waited
    ``batch_timeout``; finished sequences cost no compute.

    A server cannot know that no more requests will come, so the last batch waits as long as any
    other.
    """

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

    def _reserve(self, group: list[Request]) -> list[int]:
        """Every slot is as long as its own sequence will be."""
        reserved: list[int] = []
        for request in group:
            if not self.kv.allocate(0, request.longest_sequence()):
                break
            reserved.append(request.longest_sequence())
        return reserved

    def _prefill(self) -> list[Chunk]:
        return [Chunk(request, request.prompt_tokens, 0) for request in self._batch]

    def _decode(self) -> Plan:
        batch = self.decoding
        held = batch.context + batch.size + self._finished_tokens
        return Plan([], batch.size, batch.size, batch.context, 0, 0, len(self._batch), held, True)
