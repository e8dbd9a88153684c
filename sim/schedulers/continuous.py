"""Batches continuously as vLLM V1 does, prompts and decodes in the same iterations.

Running requests go first, each decode costing one token of ``max_num_batched_tokens``; what is left
of the budget goes to prompts, cut into chunks. They share iterations also without
``chunked_prefill``: a prompt that is longer than what is left then waits for a later iteration,
with all behind it.
"""

from __future__ import annotations

from typing import ClassVar

from sim.memory import Allocator
from sim.request import Refusal, Request
from sim.schedulers.base import BatchShape, Chunk, Limits, Plan
from sim.schedulers.iteration_level import InOrder

CADENCE = "prefill_schedule_interval"
"""The knob of the cadence that prompts keep."""

NOT_BY_RANK = frozenset({CADENCE})
"""The knobs of ``ChunkedPrefill`` that orders that preempt by rank do not read."""


class ChunkedPrefill(InOrder):
    """vLLM V1's scheduler: running requests in order of admission, then those that wait.

    With ``long_prefill_token_threshold`` no prompt gets more tokens than that in one iteration, so
    that several can be under way at once; from 0.31 on not for a request that is alone, with none
    waiting.

    Without ``chunked_prefill`` a prompt is not cut to what is left of the budget: if it does not
    fit, no further request is admitted in this iteration (0.12 to 0.32,
    ``v1/core/sched/scheduler.py``: ``if not enable_chunked_prefill and num_new_tokens >
    token_budget: break``; 0.11.2 tries those behind it; 0.11.0 and before always cut). That
    threshold still cuts it.

    With a ``prefill_schedule_interval``, which data ranks keep together and others by themselves
    (``Limits.keeps_interval``, vLLM since 0.33), prompts wait for every so many
    iterations, unless nothing decodes, or the last iteration with prompts left requests waiting: a
    rank that cannot keep up is not held back either.
    """

    shape: ClassVar[BatchShape] = BatchShape()
    knobs = frozenset(
        {
            "max_num_batched_tokens",
            "chunked_prefill",
            "long_prefill_token_threshold",
            "scheduler_reserve_full_isl",
            "watermark",
            CADENCE,
        }
    )

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self.handed = 0
        """Requests from other replicas that want a slot or memory (``roles``)."""
        self.spoken_for = 0
        """Tokens of the iteration that is planned that go to sequences beyond the batch
        (``ahead_drafts``)."""
        self._behind = False  # requests were left waiting by the last iteration open to prompts
        self._cap = 0  # most tokens of one prompt in the iteration that is planned; 0: no such cap
        self._lone_rows = 1  # of a request in it that lacks a single token
        # the share of ``kv`` that an admission leaves free: vLLM counts its null block as well
        self._spare = limits.watermark * (kv.num_blocks + 1) / kv.num_blocks
        # requests that will still lack tokens after the iteration in flight, in order of admission
        self._partials: list[Request] = []
        self._unplanned = 0  # preempted for a plan of nothing: counted with the next prompts
        self.throttled = limits.keeps_interval
        self._holding = False  # the iteration that is planned leaves prompts to a later one
        # what ``decoding.iteration`` was after the last iteration with prompts
        self._prompts_ended = -limits.prefill_schedule_interval

    def schedule(self, now: float) -> Plan | None:
        """Decodes and partly prefilled prompts, then new ones, until a limit binds."""
        batch, waiting = self.decoding, self.waiting
        chunks: list[Chunk] = []
        preempted = admitted = 0
        if self._states is not None:
            self._states.begin_step()
        if threshold := self.limits.long_prefill_token_threshold:
            others = len(self._running) + len(waiting) > 1
            self._cap = threshold if others or not self.limits.lifts_cap_alone else 0
        if self.throttled and self._holds_prompts():
            return self._decodes_alone(now, admits=True)
        if self._partials:
            chunks, preempted = self._continue_prompts()
        elif batch.size and not self.kv.grow(1):
            preempted = self._grow_decodes()
        size = batch.size
        stationary = not preempted
        if (waiting or self.handed) and not preempted:
            budget = self.limits.max_num_batched_tokens - batch.asked(size) - self.spoken_for
            for chunk in chunks:
                budget -= chunk.tokens
            self._shrinks = False
            self._lone_rows = 1 if chunks else self.limits.lone_rows
            admitted = self._admit_waiting(chunks, budget, now)
            stationary = not self._shrinks
        if not preempted:
            self._behind = bool(waiting)
        self.deferred = False
        held = batch.context_after(1)
        if self._states is not None:
            held += self._held_back(chunks)
        if not chunks:
            if not size:
                return self._after_all(now, preempted) if preempted else None
            return Plan(chunks, size, size, batch.context, 0, preempted, size, held, stationary)
        for chunk in chunks:
            held += chunk.context + chunk.tokens
        if self._unplanned:
            preempted += self._unplanned
            self._unplanned = 0
        if self.limits.keeps_interval:
            self._note_prompts(chunks, admitted)
        running = len(self._running)
        return Plan(chunks, size, size, batch.context, admitted, preempted, running, held, False)

    def refusal(self, request: Request) -> str | None:
        """Why a request cannot be served; a prompt that is not cut must fit one iteration."""
        limits = self.limits
        if not limits.chunked_prefill and request.prompt_tokens > limits.max_num_batched_tokens:
            return Refusal.UNCUT
        return super().refusal(request)

    def _after_all(self, now: float, preempted: int) -> Plan | None:
        """The plan after one whose requests were all preempted, for memory that others hold which
        are not in the batch yet."""
        self._unplanned += preempted
        return ChunkedPrefill.schedule(self, now)

    def _decodes_at_all(self) -> bool:
        """Whether a running request is past its prompt."""
        return self.decoding.size > 0

    def _holds_prompts(self) -> bool:
        """Whether the next iteration leaves prompts to a later one. Data ranks have agreed on it,
        and others are within the interval; but not if nothing decodes, or if requests were left
        waiting when prompts ran last."""
        if self._behind or not self._decodes_at_all():
            return False
        limits = self.limits
        ran = self.decoding.iteration - self._prompts_ended + 1
        return not limits.keeps_interval or ran < limits.prefill_schedule_interval

    def _note_prompts(self, chunks: list[Chunk], admitted: int) -> None:
        """The interval begins with the iteration that is planned, which has ``chunks``; the last
        ones are of requests just ``admitted``, of which one that lacks a single token does not
        count (``prefill_admitted``)."""
        batch = self.decoding
        decodes = batch.size > 0 or self.spoken_for > 0
        lack = [c.request.prompt_tokens + c.request.generated - c.context for c in chunks]
        if len(chunks) > admitted or max(lack) > 1:
            self._prompts_ended = batch.iteration + decodes
        elif not decodes:  # an iteration that the batch does not count
            self._prompts_ended -= 1

    def _decodes_alone(self, now: float, *, admits: bool = False) -> Plan | None:
        """An iteration that leaves prompts to a later one; where it ``admits`` any, a request that
        lacks a single token may enter it."""
        batch, preempted = self.decoding, 0
        if not self.kv.grow(1):
            preempted = self._grow_decodes()
            self._partials = [request for request in self._partials if request in self._running]
            if not batch.size:  # nothing decodes any more
                return self._after_all(now, preempted)
        chunks: list[Chunk] = []
        admitted = 0
        size = batch.size
        if admits and self.waiting and not preempted:
            self._holding = True
            self._lone_rows = self.limits.lone_rows
            budget = self.limits.max_num_batched_tokens - batch.asked(size) - self.spoken_for
            admitted = self._admit_waiting(chunks, budget, now)
            self._holding = False
            if chunks and self.limits.keeps_interval:
                self._note_prompts(chunks, admitted)
        self.deferred = bool(self._partials or self.waiting)
        if not size and not chunks:
            return None
        held = batch.context_after(1) + sum([request.computed for request in self._partials])
        return Plan(
            chunks=chunks,
            decode=size,
            sequences=size,
            context=batch.context,
            admitted=admitted,
            preempted=preempted,
            running=len(self._running),
            held=held + sum([chunk.context + chunk.tokens for chunk in chunks]),
            stationary=not (preempted or chunks or (self.limits.keeps_interval and self.deferred)),
        )

    def _drop(self, request: Request) -> bool:
        self._partials = [partial for partial in self._partials if partial is not request]
        return super()._drop(request)

    def _continue_prompts(self) -> tuple[list[Chunk], int]:
        """The next chunks of the prompts that were begun, and memory for them and for all decodes;
        the newest are preempted until that fits (see ``_grow_decodes``).

        Returns the chunks and how many were preempted. vLLM deals the budget out in order of
        admission. It always reaches every request, so the order does not matter: only the newest
        can have been cut short by it, and no other share is larger than an iteration ago.
        """
        if self._states is not None:
            return self._continue_on_blocks()
        batch = self.decoding
        budget = self.limits.max_num_batched_tokens - batch.asked(batch.size) - self.spoken_for
        chunks: list[Chunk] = []
        for request in self._partials:
            tokens = min(self._share(request), budget)
            chunks.append(Chunk(request, tokens, request.computed))
            budget -= tokens
        preempted = 0
        if not self._allocate(chunks):
            chunks, preempted = self._make_room(chunks)
        self._partials = _unfinished(chunks)
        return chunks, preempted

    def _continue_on_blocks(self) -> tuple[list[Chunk], int]:
        """``_continue_prompts`` where chunks end with blocks. What a cut leaves of the budget can
        make a share larger than an iteration ago, so the order of admission matters: a sequence
        that nothing is left for goes on later, by a chunk of one token."""
        budget = self.limits.max_num_batched_tokens
        chunks: list[Chunk] = []
        later: list[Request] = []
        for request in self.members():
            if request.joined >= 0:
                if not budget:
                    self.decoding.leave(request)
                    self._stop_decoding(request)
                    later.append(request)
                else:
                    budget -= 1
                continue
            tokens = min(self._share(request), budget)
            tokens = self._end_on_block(request, request.computed, tokens)
            if tokens:
                chunks.append(Chunk(request, tokens, request.computed))
                budget -= tokens
            if request.computed + tokens < request.tokens_to_prefill():
                later.append(request)
        preempted = 0
        if not self._allocate(chunks):
            chunks, preempted = self._make_room(chunks)
        self._partials = [request for request in later if request in self._running]
        return chunks, preempted

    def _held_back(self, chunks: list[Chunk]) -> int:
        """Tokens that prompts hold which get none in the iteration with these ``chunks``."""
        served = {chunk.request for chunk in chunks}
        return sum([r.computed for r in self._partials if r not in served])

    def _make_room(self, chunks: list[Chunk]) -> tuple[list[Chunk], int]:
        """Preempt until there is memory for the rest of ``chunks`` and for all decodes; returns
        that rest and how many were preempted."""
        preempted = 0
        while not self._allocate(chunks):
            victim = self.waiting.victim(self._preemptible())
            self._preempt(victim)
            preempted += 1
            chunks = [chunk for chunk in chunks if chunk.request is not victim]
        return chunks, preempted

    def _share(self, request: Request) -> int:
        """Tokens that ``request``, which does not decode, gets if the budget lasts."""
        rest = request.tokens_to_prefill() - request.computed
        cap = self._cap
        return cap if 0 < cap < rest else rest

    def _allocate(self, chunks: list[Chunk]) -> bool:
        """Memory for ``chunks`` and one token of each decoding sequence, or for nothing at all."""
        kv = self.kv
        done = 0
        for chunk in chunks:
            if not kv.allocate(chunk.request, chunk.tokens):
                break
            done += 1
        if done == len(chunks) and kv.grow(1):
            return True
        for chunk in chunks[:done]:
            kv.give_back(chunk.request, chunk.tokens)
        return False

    def _cut(self, need: int, budget: int, *, cached: int = 0, alone: bool = False) -> int:
        """The tokens left of the iteration, and no more than the cap; a prompt that is not cut and
        outgrew the budget runs alone. A single token has as many rows as a decode, or waits."""
        if need == 1 and self._lone_rows > 1:
            rows, decodes = self._lone_rows, self.decoding.size > 0 or self.spoken_for > 0
            if (decodes or cached) and cached + rows < self.limits.max_model_len:
                return rows if rows <= budget else 0
        if self._holding and need > 1:
            return 0
        cap = self._cap
        tokens = cap if 0 < cap < need else need
        if tokens <= budget:
            return tokens
        if self.limits.chunked_prefill:
            return budget
        return tokens if alone else 0

    def _room(self, request: Request, need: int, tokens: int) -> bool:
        """The blocks of its whole input fit (``scheduler_reserve_full_isl``), and the
        watermark."""
        reserves = tokens < need and self.limits.scheduler_reserve_full_isl
        spare = self._spare if self._running else 0.0
        if not (reserves or spare):
            return True
        return self.kv.fits(request, need if reserves else tokens, spare=spare)

    def _begin(self, tokens: int, need: int, cached: int, now: float) -> Chunk:
        request = self._admit(now, cached)
        if tokens < need:
            self._partials.append(request)
        return Chunk(request, tokens, cached)


def _unfinished(chunks: list[Chunk]) -> list[Request]:
    """The requests that still lack tokens once ``chunks`` have run."""
    return [c.request for c in chunks if c.context + c.tokens < c.request.tokens_to_prefill()]
