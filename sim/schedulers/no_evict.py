"""Batches as TensorRT-LLM does by default (``GUARANTEED_NO_EVICT``): who enters can end.

A request is admitted when the blocks of its prompt and of all the output tokens it asked for are
there, beside those that the running requests may still need; so memory never runs out, and part of
it stays empty where answers are shorter than ``max_tokens``. Requests are taken in their order, and
none behind one that does not fit. Decodes and prompts share iterations, decodes first; without
``chunked_prefill``, TensorRT-LLM's default, a prompt runs whole or waits.

After ``GuaranteedNoEvictPolicy`` and ``PyMicroBatchScheduler`` in
``tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`` (NVIDIA/TensorRT-LLM @ 002f3cc), as read;
not compared with recordings. Chunks are rounded down to blocks there, and not here.
"""

from __future__ import annotations

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.ahead import Ahead
from sim.schedulers.base import Chunk, Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill


class NoEvict(ChunkedPrefill):
    """TensorRT-LLM's capacity and micro-batch schedulers, without overlap."""

    shape = ChunkedPrefill.shape
    knobs = frozenset({"max_num_batched_tokens", "chunked_prefill", "max_tokens"})

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._promised = 0  # blocks that the running requests have, or may need to their ends

    def _blocks(self, request: Request) -> int:
        """Blocks of ``request`` if it generates all that its client allows, and the model."""
        limits, prompt = self.limits, request.prompt_tokens
        allowed = min(limits.max_tokens, limits.max_model_len - prompt)
        return -(-(prompt + max(allowed, request.output_tokens)) // self.kv.block_size)

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        """Take requests from the queue while slots, tokens and promised memory last."""
        limits, kv, waiting, running = self.limits, self.kv, self.waiting, self._running
        admitted = 0
        while waiting and budget > 0 and len(running) < limits.max_num_seqs:
            request = waiting[0]
            cached, blocks = kv.cached(request), self._blocks(request)
            need = request.tokens_to_prefill() - cached
            tokens = min(need, budget)
            if tokens < need and not limits.chunked_prefill:
                break
            if self._promised + blocks > kv.num_blocks or not kv.allocate(request, tokens):
                break
            self._promised += blocks
            chunks.append(self._begin(tokens, need, cached, now))
            budget -= tokens
            admitted += 1
        return admitted

    def _retire(self, request: Request) -> None:
        super()._retire(request)
        self._promised -= self._blocks(request)

    def _drop(self, request: Request) -> bool:
        self._promised -= self._blocks(request)
        return super()._drop(request)

    def refusal(self, request: Request) -> str | None:
        """As for every scheduler; also who asks for more than there is, or has a prompt that is
        longer than an iteration where none is cut."""
        limits = self.limits
        if not limits.chunked_prefill and request.prompt_tokens > limits.max_num_batched_tokens:
            return "prompt longer than max_num_batched_tokens (without chunked prefill)"
        if self._blocks(request) > self.kv.num_blocks:
            return "larger than the KV cache"
        return super().refusal(request)


class NoEvictOverlap(Ahead, NoEvict):
    """The same with the overlap scheduler of the PyTorch backend, which is its default."""

    shape = NoEvict.shape

    def _next(self, now: float) -> Plan | None:
        return NoEvict.schedule(self, now)
