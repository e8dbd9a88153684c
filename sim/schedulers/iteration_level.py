"""Batches continuously (at iteration level): the batch is made anew for every iteration.

``IterationLevel`` is the base of all rules that do, and ``InOrder`` of those that admit from the
head of a queue: vLLM V1's (``continuous``), V0's (``prefill_first``) and TensorRT-LLM's.

When memory runs out they preempt as vLLM does: the request admitted last loses all its KV, keeps
the tokens it has delivered, and goes to the *front* of the queue, from where it is prefilled again,
delivered tokens included. An iteration that had to preempt admits no request. (Orders that preempt
by rank choose another victim; see ``ranked``.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Reversible

from sim.memory import Allocator
from sim.memory.state_caching import StateCachingAllocator
from sim.request import Request
from sim.schedulers.base import Chunk, Limits, Scheduler
from sim.schedulers.state_chunks import cut_for_states


class IterationLevel(Scheduler):
    """Base of all rules: the running requests by admission, and preemption by recomputation."""

    name = "continuous"
    about = "the batch is made anew at each iteration, as every current engine does"

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        # in order of admission; the last is preempted first
        self._running: dict[Request, None] = {}

    def members(self) -> list[Request]:
        """Unfinished requests in the batch, in order of admission."""
        return list(self._running)

    def _grow_decodes(self) -> int:
        """Give each decoding sequence room for one token, preempting the newest until it fits.

        Walking the batch in order of admission and preempting from its end whenever a block is
        missing, as vLLM does, ends in the same place: the longest prefix whose demand is met.
        Returns the number preempted.
        """
        preempted = 0
        while not self.kv.grow(1):
            self._preempt(self.waiting.victim(self._preemptible()))
            preempted += 1
        return preempted

    def _preemptible(self) -> Reversible[Request]:
        """The requests that may be preempted, in order of admission."""
        return self._running

    def _take_out(self, request: Request) -> None:
        """Take a running ``request`` out of the batch: KV lost, delivered tokens kept."""
        del self._running[request]
        if request.joined >= 0:
            self.decoding.leave(request)
            self._stop_decoding(request)
        self.kv.free(request)
        request.computed = 0

    def _preempt(self, request: Request) -> None:
        """Preempt ``request``, which is first in the queue again."""
        self._take_out(request)
        request.preemptions += 1
        self.preempted.append(request)
        self.waiting.appendleft(request)

    def withdraw(self, request: Request) -> bool:
        """Aborts a request as an engine does: it leaves the queue or the batch at once."""
        if request in self._running:
            return self._drop(request)
        for queue in (self.waiting, self.coming):
            if request in queue:
                queue.remove(request)
                return True
        return False

    def _drop(self, request: Request) -> bool:
        """Take a running ``request`` out of the batch for good; False if the policy cannot."""
        self._take_out(request)
        return True

    def _admit(self, now: float, cached: int) -> Request:
        """Move the head of the queue into the batch (its memory has been allocated); ``cached`` of
        its tokens are computed."""
        request = self.waiting.popleft()
        request.computed = cached
        self._running[request] = None
        if not request.preemptions:
            request.scheduled = now
        return request

    def _leaving_order(self, finished: list[Request]) -> list[Request]:
        """The order of the batch, where it decides what a prefix cache evicts first."""
        if len(finished) == 1 or not self.limits.enable_prefix_caching:
            return finished
        return [request for request in self._running if request in finished]

    def _retire(self, request: Request) -> None:
        """A finished request leaves the batch at once, and its memory with it."""
        del self._running[request]
        self.kv.free(request)


class InOrder(IterationLevel):
    """Admits from the head of the queue, in one loop whose questions each rule answers, and none
    behind a request that has to wait."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        # whether the head of the queue may fit as soon as any block is evicted: it may then find
        # less in all groups of layers, and so be cut to a chunk that takes less than it finds now
        self._shrinks = False
        self._cuts_to_fit = limits.chunked_prefill and not limits.scheduler_reserve_full_isl
        # the memory, where chunks end so that states of the model can be kept
        self._states = kv if isinstance(kv, StateCachingAllocator) else None

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        """Take requests from the queue while slots, tokens and memory last, and add what runs of
        them to ``chunks``; returns how many."""
        kv, waiting, running = self.kv, self.waiting, self._running
        slots = self.limits.max_num_seqs
        admitted = 0
        while waiting and budget > 0 and len(running) < slots:
            request = waiting[0]
            cached = self._found(request, now)
            if cached is None:
                if waiting and waiting[0] is request:
                    break
                continue
            need = request.prompt_tokens + request.generated - cached
            alone = not chunks and not self.decoding.size
            tokens = self._cut(need, budget, cached=cached, alone=alone)
            if self._states is not None:
                tokens = self._end_on_block(request, cached, tokens)
            if not tokens or not self._room(request, need, tokens):
                break
            if not kv.allocate(request, tokens):
                self._shrinks = kv.gives_back and cached > 0 and self._cuts_to_fit
                break
            chunks.append(self._begin(tokens, need, cached, now))
            budget -= tokens
            admitted += 1
        return admitted

    def _end_on_block(self, request: Request, start: int, tokens: int) -> int:
        """How many of ``tokens`` of ``request``, behind ``start``, end where its states are
        kept."""
        assert self._states is not None
        most, cap = self.limits.max_num_batched_tokens, self.limits.long_prefill_token_threshold
        return cut_for_states(self._states, request, start, tokens, min(most, cap or most))

    def _found(self, request: Request, now: float) -> int | None:
        """Tokens of the head of the queue that need not be computed; None if it cannot enter yet:
        the next one is tried where it has left the queue, else none."""
        return self.kv.cached(request)

    @abstractmethod
    def _cut(self, need: int, budget: int, *, cached: int = 0, alone: bool = False) -> int:
        """How many of the ``need`` tokens that a prompt lacks behind those that are ``cached`` run
        where ``budget`` are left of an iteration that has nothing else if ``alone``; 0: it
        waits."""

    @abstractmethod
    def _room(self, request: Request, need: int, tokens: int) -> bool:
        """Whether ``request``, which lacks ``need`` tokens, may enter with ``tokens`` of them, as
        far as the rule looks beyond the memory of these."""

    def _begin(self, tokens: int, need: int, cached: int, now: float) -> Chunk:
        """Admit the head of the queue with ``tokens`` of the ``need`` that it lacks beyond those
        that are ``cached``; returns its first chunk."""
        return Chunk(self._admit(now, cached), tokens, cached)
