"""Batches as TensorRT-LLM's two stages do: a capacity scheduler, then one of micro-batches.

``GUARANTEED_NO_EVICT``, its default: a request is admitted when the blocks of its prompt and of all
the output tokens it asked for are there, besides those that the running requests may still need; so
memory never runs out, and part of it stays empty where answers are shorter than ``max_tokens``.
``MAX_UTILIZATION``: it is admitted when the blocks of its prompt are there; where a decode finds
none, the newest request is paused and computed again later. Requests are taken in their order, and
none behind one that does not fit. Decodes and prompts share iterations, decodes first; without
``chunked_prefill``, TensorRT-LLM's default, a prompt runs whole or waits. A chunk that does not end
its prompt is whole blocks.

With ``batch_wait_timeout_iters`` prompts wait for company: while something decodes, those that an
iteration has room for are left out of it until they and the decodes come to
``batch_wait_max_tokens_ratio`` of its tokens, or that many iterations have passed them by. On data
ranks they may wait for each other (``sim.loop.prefill_gate``).

After ``GuaranteedNoEvictPolicy``, ``MaxUtilizationPolicy`` and ``PyMicroBatchScheduler`` (chunks
first come, first served, in units of ``tokens_per_block``) in
``tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`` (NVIDIA/TensorRT-LLM @ 002f3cc), and
``PyExecutor._waiting_requests`` (``py_executor.py``), as read;
not compared with recordings, as its scheduler cannot be imported without its compiled library. A
prompt that gets no block of an iteration waits here with all behind it; there a shorter one behind
it may still use what is left of the tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

from sim.memory import Allocator
from sim.request import Refusal, Request
from sim.schedulers.ahead import Ahead
from sim.schedulers.base import Chunk, Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill

WAITING = frozenset({"batch_wait_timeout_iters", "batch_wait_max_tokens_ratio"})
"""The keys by which prompts wait for company."""

RANKS = "attention_dp_timeout_iters"
"""The key by which those of data ranks wait for each other."""

OF_RANKS = frozenset({RANKS, "attention_dp_batching_wait_iters"})
"""That, and how much longer they wait once every rank has one."""


class MaxUtilization(ChunkedPrefill):
    """TensorRT-LLM's micro-batches with ``MAX_UTILIZATION``, without overlap."""

    knobs = frozenset({"max_num_batched_tokens", "chunked_prefill"}) | WAITING | OF_RANKS

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._passed = 0  # iterations that left prompts out which they had room for

    def schedule(self, now: float) -> Plan | None:
        """Plans an iteration, unless prompts wait for more of them."""
        if self.throttled and self.decoding.size:
            return self._decodes_alone(now)
        if not (self.limits.batch_wait_timeout_iters and self.decoding.size):
            return super().schedule(now)
        runnable = self._runnable(self.limits.max_num_batched_tokens - self._decodes())
        plan = self._decodes_alone(now) if self._wait(runnable) else super().schedule(now)
        if plan is not None and runnable:
            plan.stationary = False  # the next one may let the prompts in, or count anew
        return plan

    def _decodes(self) -> int:
        """Tokens of an iteration that the decodes take."""
        return self.decoding.asked(self.decoding.size)

    def _wait(self, tokens: int) -> bool:
        """Whether prompts of that many ``tokens``, which could run, are left to a later
        iteration."""
        limits = self.limits
        if not tokens:
            return False
        enough = limits.batch_wait_max_tokens_ratio * limits.max_num_batched_tokens
        wait = self._passed < limits.batch_wait_timeout_iters and tokens + self._decodes() < enough
        self._passed = self._passed + 1 if wait else 0
        return wait

    def has_prompt(self) -> bool:
        """Whether there is a prompt that it has room for."""
        left = self.limits.max_num_batched_tokens - self._decodes()
        return self._runnable(left, most=1) > 0

    def _runnable(self, budget: int, most: int = sys.maxsize) -> int:
        """Tokens of prompts that an iteration has room for, with ``budget`` left by the decodes:
        of those that were begun, and of so many at most that wait."""
        left, before = budget, list[Request]()
        for request in self._partials:
            left -= self._cut(request.tokens_to_prefill() - request.computed, left)
        slots = max(0, self.limits.max_num_seqs - len(self._running))
        for request in islice(self.waiting, min(slots, most)):
            need = request.tokens_to_prefill() - self.kv.cached(request)
            tokens = self._cut(need, left)
            if not tokens or not self._room_after(request, need, before):
                break
            left -= tokens
            before.append(request)
        return budget - left

    def _cut(self, need: int, budget: int, *, cached: int = 0, alone: bool = False) -> int:
        """Tokens of a prompt that run where ``budget`` are left: whole blocks unless all do."""
        if need <= budget:
            return need
        block = self.kv.block_size
        return max(0, budget) // block * block if self.limits.chunked_prefill else 0

    def _continue_prompts(self) -> tuple[list[Chunk], int]:
        """Continues prompts in whole blocks; one may have to wait for the next iteration."""
        budget = self.limits.max_num_batched_tokens - self._decodes()
        chunks = []
        for request in self._partials:
            tokens = self._cut(request.tokens_to_prefill() - request.computed, budget)
            if tokens:
                chunks.append(Chunk(request, tokens, request.computed))
                budget -= tokens
        preempted = 0
        if not self._allocate(chunks):
            chunks, preempted = self._make_room(chunks)
        done = {c.request: c.context + c.tokens for c in chunks}
        self._partials = [
            r
            for r in self._partials
            if r in self._running and done.get(r, 0) < r.tokens_to_prefill()
        ]
        return chunks, preempted

    def _room(self, request: Request, need: int, tokens: int) -> bool:
        return self._room_after(request, need, ())

    def _room_after(self, request: Request, need: int, before: Sequence[Request]) -> bool:
        """Whether the capacity scheduler lets ``request`` in, which lacks ``need`` tokens, after
        those ``before`` it."""
        return self.kv.fits(request, need + sum(each.tokens_to_prefill() for each in before))


class NoEvict(MaxUtilization):
    """TensorRT-LLM's micro-batches with ``GUARANTEED_NO_EVICT``, without overlap."""

    knobs = MaxUtilization.knobs | {"max_tokens"}

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._promised = 0  # blocks that the running requests have, or may need to their ends

    def _blocks(self, request: Request) -> int:
        """Blocks of ``request`` if it generates all that its client allows, and the model; as the
        memory takes them, of each kind of layers (``get_remaining_blocks_to_completion``)."""
        limits, prompt = self.limits, request.prompt_tokens
        allowed = min(limits.max_tokens, limits.max_model_len - prompt)
        return self.kv.blocks_for(prompt + max(allowed, request.output_tokens))

    def _room_after(self, request: Request, need: int, before: Sequence[Request]) -> bool:
        """Whether its blocks to its end are there besides those of all that run."""
        promised = self._promised + sum(map(self._blocks, before))
        return promised + self._blocks(request) <= self.kv.num_blocks

    def _begin(self, tokens: int, need: int, cached: int, now: float) -> Chunk:
        chunk = super()._begin(tokens, need, cached, now)
        self._promised += self._blocks(chunk.request)
        return chunk

    def _retire(self, request: Request) -> None:
        super()._retire(request)
        self._promised -= self._blocks(request)

    def _take_out(self, request: Request) -> None:
        self._promised -= self._blocks(request)
        super()._take_out(request)

    def check_integrity(self) -> None:
        """Checks also that what is counted is what the running requests may need."""
        super().check_integrity()
        assert self._promised == sum(map(self._blocks, self._running)), self._promised

    def refusal(self, request: Request) -> str | None:
        """Why a request cannot be served; also one that asks for more than there is."""
        if self._blocks(request) > self.kv.num_blocks:
            return Refusal.TOO_LARGE
        return super().refusal(request)


class NoEvictOverlap(Ahead, NoEvict):
    """``NoEvict`` with the overlap scheduler of the PyTorch backend, which is its default."""

    def _next(self, now: float) -> Plan | None:
        return NoEvict.schedule(self, now)


class MaxUtilizationOverlap(Ahead, MaxUtilization):
    """``MAX_UTILIZATION`` with the overlap scheduler."""

    def _next(self, now: float) -> Plan | None:
        return MaxUtilization.schedule(self, now)
