"""Batches as SGLang does: prompts before decodes, and as many answers as memory should hold.

Whenever a waiting request can be admitted, an iteration of prompts runs, cut to
``max_num_batched_tokens`` (``--chunked-prefill-size``), and all decodes wait for it; with
``enable_mixed_chunk`` they run along. A request is admitted if the free memory holds its prompt,
its own answer and what the running ones still expect to generate. That is all they asked for where
clients fix the length (``ignore_eos``), and else a share of it, the ``new_token_ratio``: at first
0.7 of it, less with each decode iteration. Where that was too little, requests are retracted: they
lose their KV and wait behind all others, and the share is set anew.

After ``managers/scheduler.py``, ``schedule_policy.py`` and ``schedule_batch.py`` of SGLang 0.5.23,
recordings of which the tests compare with (``tests/conformance``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from sim.memory import Allocator
from sim.memory.radix import RadixAllocator
from sim.request import Request
from sim.schedulers.base import BatchShape, Chunk, Limits, Plan
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.prefix_order import sort_by_prefix
from sim.schedulers.queues import Resorted
from sim.schedulers.sglang_estimates import CLIP, Budget, KnownLengths, NewTokenRatio, States

REFRESH, MATCHED = 32, 128
"""Passes from one in which the prefixes of those that wait count as used to the next, and of how
many at most anything is looked up (``WAITING_PREFIX_REFRESH_INTERVAL``,
``WAITING_QUEUE_PREFIX_MATCH_MAX``)."""

RETRACT_STEPS = 20
"""Tokens each request is expected to need after a retraction (``SGLANG_RETRACT_DECODE_STEPS``); a
prefix cache leaves that many."""


class Sglang(IterationLevel):
    """SGLang's scheduler without overlap (``--disable-overlap-schedule``)."""

    shape = BatchShape(mixed=False)
    knobs = frozenset(
        {
            *("max_num_batched_tokens", "chunked_prefill", "max_tokens"),
            *("enable_mixed_chunk", "schedule_conservativeness", "max_prefill_tokens"),
            "scheduler_recv_interval",
        }
    )

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._page = page = kv.block_size
        chunk = limits.max_num_batched_tokens // page * page
        self._chunk = chunk if limits.chunked_prefill else None
        self._fixed = not limits.max_tokens  # clients fix the length of answers
        self._ratio = NewTokenRatio(limits.schedule_conservativeness)
        self._full = False  # none is admitted before a request leaves (``batch_is_full``)
        self._partial: Request | None = None  # whose prompt is cut (``chunked_req``)
        self._ends = 0  # tokens that decoding requests may hold at their ends, in sum
        self._long = 0  # decoding requests that ask for more than ``CLIP``
        self._prefilled = False  # the last plan had prompts
        self._decoded = False  # the last plan had decodes
        self._fresh: list[Request] = []  # that began to decode since
        self._tree = kv if isinstance(kv, RadixAllocator) else None
        self._passes = 0  # over those that wait
        self._interval = limits.scheduler_recv_interval
        self._unreceived = 0  # iterations of decodes since it last looked for new requests

    # -- one iteration -----------------------------------------------------------------------

    def schedule(self, now: float) -> Plan | None:
        """An iteration of prompts if any can enter, otherwise one of decodes."""
        if self._interval > 1:
            self._receive()
        if self._tree is not None:
            self._enter_chunks(self._tree)
        before = len(self.preempted)
        plan = self._prompts(now) or self._decodes()
        self._fresh = []
        self._prefilled = self._decoded = False
        if plan is not None:
            self._prefilled, self._decoded = bool(plan.chunks), plan.decode > 0
            plan.stationary = plan.stationary and not self.coming
            if preempted := len(self.preempted) - before:  # for a prompt that goes on, or a decode
                plan.preempted, plan.stationary = preempted, False
        elif not self._running and not self.waiting:
            self._ratio.reset()
        return plan

    def complete(self, plan: Plan, iterations: int, end: float) -> list[Request]:
        """Ends a plan; each decode iteration lowers the expectation."""
        if iterations > 1:
            self._ratio.decay(iterations - 1)
        self._unreceived = self._interval if plan.chunks else self._unreceived + iterations
        return super().complete(plan, iterations, end)

    # -- requests that it has not looked for yet (``--scheduler-recv-interval``) ------------------

    def submit(self, request: Request) -> bool:
        """Queues a request; one that comes while others decode waits until it is looked for."""
        if self._interval == 1 or not self._running:
            return super().submit(request)
        self.coming.append(request)
        self.last_call = False
        return True

    def _receive(self) -> None:
        """Takes in the requests that came, if they are looked for now."""
        if self._is_due():
            for request in self.coming:
                self.waiting.append(request)
            self.coming.clear()

    def _is_due(self) -> bool:
        """Whether new requests are looked for: after an iteration of prompts, after so many of
        decodes, and where nothing runs (``SchedulerRecvSkipper``)."""
        behind, self._unreceived = self._unreceived, self._unreceived % self._interval
        return not self._running or (behind > 0 and not self._unreceived)

    def _prompts(self, now: float) -> Plan | None:
        """The next chunk of the prompt that was cut, and prompts that wait, if any can enter."""
        partial, waiting, batch = self._partial, self.waiting, self.decoding
        running = len(self._running) - (partial is not None)
        if self._prefilled and (
            partial is not None or self._decoded or running == len(self._fresh) + self._leaving()
        ):
            self._full = False  # a prompt was cut, or the batch is a new one
        if not running:
            self._full = False
        if partial is None:
            if self._full or not waiting:
                return None
            if running >= self.limits.max_num_seqs:
                self._full = True
                return None
        chunks, admitted = self._fill(running, now)
        if not chunks:
            return None
        held = sum([chunk.context + chunk.tokens for chunk in chunks])
        decodes = self._decode_along(chunks)
        context = batch.context
        held += batch.context_after(1) if decodes else context
        return Plan(
            chunks,
            decode=decodes,
            context=context if decodes else 0,
            admitted=admitted,
            running=len(self._running),
            held=held,
        )

    def _fill(self, running: int, now: float) -> tuple[list[Chunk], int]:
        """The prompts of an iteration, next to ``running`` requests; how many enter the batch."""
        limits, partial, tree = self.limits, self._partial, self._tree
        if tree is not None:
            self._prioritise(tree)
        mixed = limits.enable_mixed_chunk and limits.chunked_prefill
        budget = Budget(
            self._page,
            self.kv.free_blocks * self._page,
            self._promised(),
            limits,
            self._chunk,
            running if mixed else 0,
        )
        to_come = self._to_come()
        chunks: list[Chunk] = []
        if partial is not None:
            to_come += self._asked(partial) - partial.generated
            chunk = self._go_on(partial, budget)
            if chunk is None:
                return [], 0
            chunks.append(chunk)
        lengths = KnownLengths(self._states, len(self._running), to_come)
        admitted = 0
        while (budget.tokens or not budget.memory) and (request := self._head()) is not None:
            if len(chunks) >= limits.max_num_seqs - running:
                self._full = True
            if self._full:
                break
            cached = self.kv.cached(request)
            need = request.tokens_to_prefill() - cached
            size = running + len(chunks) + 1
            alone = size == 1
            if tree is not None:
                budget.pin(tree.pinned(request))
            if not (self._room(request, need, budget, lengths, size) or alone):
                self._full = not alone
                break
            tokens = self._cut(need, budget, first=not chunks)
            if not tokens:
                break
            if not self.kv.allocate(request, tokens):
                self._full = not alone
                break
            self._admit(now, cached)
            chunks.append(Chunk(request, tokens, cached))
            admitted += 1
            whole = tokens == need
            budget.take(tokens, min(self._asked(request), CLIP) if whole else 0)
            if not whole:
                self._partial = request
            if not budget.memory:
                self._full = True
        if tree is not None:
            tree.settle()
        return chunks, admitted

    def _head(self) -> Request | None:
        """The waiting request that may enter next, at the head of the queue; None for none."""
        return self.waiting[0] if self.waiting else None

    # -- the prefix cache --------------------------------------------------------------------

    def _enter_chunks(self, tree: RadixAllocator) -> None:
        """The chunk that was computed of a cut prompt, and the prompts that are complete, can be
        found from now on."""
        partial = self._partial
        if partial is not None:
            tree.publish(partial, partial.computed)
        self._enter_prompts(tree)

    def _enter_prompts(self, tree: RadixAllocator) -> None:
        """The prompts that are complete can be found from now on."""
        for request in self._fresh:
            if request in self._running:
                tree.publish(request, request.computed)

    def _prioritise(self, tree: RadixAllocator) -> None:
        """Sort those that wait, where the order goes by what is cached of them and they are few."""
        waiting = self.waiting
        if isinstance(waiting, Resorted) and len(waiting) <= MATCHED:
            sort_by_prefix(waiting, tree)
        else:
            self._refresh(tree)

    def _refresh(self, tree: RadixAllocator) -> None:
        """Every so many passes what is cached of those that wait counts as used, the head last."""
        if self.waiting:
            if self._passes % REFRESH == 0:
                for request in reversed(list(islice(self.waiting, MATCHED))):
                    tree.touch(request)
            self._passes += 1

    def _room(
        self, request: Request, need: int, budget: Budget, lengths: KnownLengths, size: int
    ) -> bool:
        """Whether memory is expected to last with ``request``, which needs ``need`` tokens for its
        prompt, as one of ``size``."""
        to_come = max(self._asked(request) - request.generated, 0)
        if not self._fixed or self.limits.enable_prefix_caching:
            return need + min(to_come, CLIP) + self._page < budget.total
        pages = budget.paged(need) + self._page
        if pages > min(budget.current, budget.total):
            return False
        held = request.prompt_tokens + request.generated
        return lengths.last(to_come, held, size, budget.current - pages)

    def _cut(self, need: int, budget: Budget, *, first: bool) -> int:
        """Tokens of a prompt of ``need`` that the iteration has room for; 0 for none."""
        chunk, page = budget.chunk, self._page
        fixed = self._fixed and not self.limits.enable_prefix_caching
        paged = need if fixed else budget.paged(need)
        whole = chunk is None or self.limits.limits_chunks
        if whole and not (fixed or first) and paged >= budget.prompt:
            return 0
        if chunk is None or paged <= chunk:
            return need
        return min(need, chunk if fixed else chunk // page * page)

    def _go_on(self, request: Request, budget: Budget) -> Chunk | None:
        """The next chunk of the prompt that was cut; None if it has to wait for memory."""
        assert budget.chunk is not None
        rest = request.tokens_to_prefill() - request.computed
        room = min(budget.chunk, int(budget.total))
        if room <= 0:
            room = max(budget.chunk, 1)
        tokens = min(rest, room)
        while not self.kv.allocate(request, tokens):
            victims = self._victims()
            if not victims:
                return None
            self._preempt(victims.pop())
        if tokens == rest:
            self._partial = None
            self._running[request] = self._running.pop(request)  # it joins those that decode now
        budget.take(tokens, min(self._asked(request), CLIP) if tokens == rest else 0)
        return Chunk(request, tokens, request.computed)

    def _decode_along(self, chunks: list[Chunk]) -> int:
        """Decodes that run with the prompts: all or none."""
        limits, size = self.limits, self.decoding.size
        if not (size and limits.enable_mixed_chunk and limits.chunked_prefill and self.kv.grow(1)):
            return 0
        first = {chunk.request: None for chunk in chunks}
        self._running = first | self._running  # as SGLang lists them from now on
        return size

    def _decodes(self) -> Plan | None:
        """One token for each request that decodes; the newest are retracted if memory lacks."""
        batch = self.decoding
        if not batch.size:
            return None
        if self.kv.grow(1):
            self._ratio.decay(1)
        elif self._leaving():
            return None  # they make room in a moment
        else:
            self._retract()
        size, held = batch.size, batch.context_after(1)
        return Plan([], size, size, batch.context, 0, 0, size, held, stationary=True)

    # -- what is expected --------------------------------------------------------------------

    def _asked(self, request: Request) -> int:
        """Output tokens that the client of ``request`` allows, and memory and context too."""
        answer, prompt = request.output_tokens, request.prompt_tokens
        most = self.limits.max_tokens
        if answer >= most:
            return answer
        page = self._page
        paged = -(-prompt // page) * page
        room = min(self.limits.max_model_len - prompt - 1, self.kv.capacity - paged - page - 1)
        return max(answer, min(most, room))

    def _to_come(self) -> int:
        """Tokens that the running requests may still generate, in sum."""
        return self._ends - self.decoding.context

    def _outputs(self, request: Request) -> int:
        """Tokens that a running request has, as far as the scheduler knows."""
        return request.generated + self.steps(request)

    def _known(self) -> Iterable[Request]:
        """The running requests that it takes to be unfinished and to decode."""
        return [request for request in self._running if request.joined >= 0]

    def _promised(self) -> float:
        """Tokens that the running requests are expected to generate."""
        ratio = 1.0 if self._fixed else self._ratio.current
        if not self._long:
            return self._to_come() * ratio
        known = self._known()
        return sum([min(self._asked(r) - self._outputs(r), CLIP) * ratio for r in known])

    def _states(self, running: int) -> States:
        """The first ``running`` requests of the batch, a cut prompt's among them."""
        batch = islice(self._running, running)
        states = [(self._asked(r) - self._outputs(r), r) for r in batch]
        return [(left, r.prompt_tokens + self._outputs(r)) for left, r in states if left > 0]

    def _leaving(self) -> int:
        """Requests that have ended and whose slots and memory are not free yet."""
        return 0

    # -- the batch ---------------------------------------------------------------------------

    def _retract(self) -> None:
        """Preempt until each remaining request has room for a token."""
        victims = self._victims()
        while len(victims) > 1:
            self._preempt(victims.pop())
            if self._tree is not None:
                self._tree.evict(RETRACT_STEPS * len(victims))
            if self.kv.grow(1):
                break
        tokens = sum([self._outputs(r) for r in victims]) + RETRACT_STEPS * len(victims)
        rest = dict.fromkeys(victims)  # who stays is listed in this order from now on
        self._running = rest | {r: None for r in self._running if r not in rest}
        self._ratio.set(min(1.0, tokens / (sum(map(self._asked, victims)) + 1)))
        self._full = False

    def _victims(self) -> list[Request]:
        """The decoding requests; the last has the fewest tokens, of equals the longest prompt, of
        equals it came last."""
        decoding = [request for request in self._running if request.joined >= 0]
        decoding.sort(key=lambda r: (self._outputs(r), -r.prompt_tokens), reverse=True)
        return decoding

    def _preempt(self, request: Request) -> None:
        """KV lost, delivered tokens kept, last in the queue."""
        self._take_out(request)
        request.preemptions += 1
        self.preempted.append(request)
        self.waiting.append(request)

    def _drop(self, request: Request) -> bool:
        """The ratio of new tokens counts on those that run: they are served to their end."""
        return False

    def _start_decoding(self, request: Request) -> None:
        super()._start_decoding(request)
        asked = self._asked(request)
        self._ends += request.prompt_tokens + asked - 1
        self._long += asked > CLIP
        self._fresh.append(request)

    def _stop_decoding(self, request: Request) -> None:
        super()._stop_decoding(request)
        asked = self._asked(request)
        self._ends -= request.prompt_tokens + asked - 1
        self._long -= asked > CLIP

    def _retire(self, request: Request) -> None:
        super()._retire(request)
        self._full = False
