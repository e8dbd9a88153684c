"""Batches continuously with prompts first: vLLM V0's rule without chunked prefill.

Whenever a prompt can enter, an iteration of whole prompts runs and all decodes wait for it.
"""

from __future__ import annotations

from sim.request import Refusal, Request
from sim.schedulers.base import BatchShape, Chunk, Plan
from sim.schedulers.iteration_level import InOrder


class PrefillFirst(InOrder):
    """vLLM V0's scheduler without chunked prefill."""

    shape = BatchShape(mixed=False)
    knobs = frozenset({"max_num_batched_tokens", "chunked_prefill"})

    WATERMARK = 0.01
    """Share of the memory that an admission must leave free (vLLM V0's block manager default)."""

    def schedule(self, now: float) -> Plan | None:
        """An iteration of whole prompts if one can enter, otherwise one of decodes."""
        batch = self.decoding
        if self.waiting:
            chunks: list[Chunk] = []
            self._admit_waiting(chunks, self.limits.max_num_batched_tokens, now)
            if chunks:
                held = batch.context + sum(chunk.context + chunk.tokens for chunk in chunks)
                return Plan(chunks, admitted=len(chunks), running=len(self._running), held=held)
        if not batch.size:
            return None
        free = self.kv.free_blocks
        preempted = self._grow_decodes()
        # the next plan looks at the queue before it grows: what this growth gave back is there then
        more = bool(self.waiting) and self.kv.free_blocks > free
        size, held = batch.size, batch.context_after(1)
        stationary = not preempted and not more
        return Plan([], size, size, batch.context, 0, preempted, size, held, stationary)

    def _cut(self, need: int, budget: int, *, cached: int = 0, alone: bool = False) -> int:
        """Prompts are whole; one that outgrew the budget before it was preempted is prefilled
        alone, whatever decodes."""
        first = budget == self.limits.max_num_batched_tokens
        return need if need <= budget or first else 0

    def _room(self, request: Request, need: int, tokens: int) -> bool:
        """Whether the blocks of a request fit, and the watermark."""
        return self.kv.fits(request, need, spare=self.WATERMARK if self._running else 0.0)

    def refusal(self, request: Request) -> str | None:
        """Why a request cannot be served; a prompt that is not cut must fit one iteration."""
        if request.prompt_tokens > self.limits.max_num_batched_tokens:
            return Refusal.UNCUT
        return super().refusal(request)
