"""Batches continuously with as many drafts as the size of the batch allows: vLLM's rule.

An iteration that computes this many requests, prompts included, makes the number of drafts that a
table has for it; the next one checks them (vLLM 0.32, ``num_speculative_tokens_per_batch_size``).
So an iteration after the batch has changed still checks what was made before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.schedulers.base import Plan
from sim.schedulers.continuous import ChunkedPrefill

if TYPE_CHECKING:
    from sim.growth.sampled import Sampled
    from sim.memory.drafted import DraftedAllocator


class DraftsByBatch(ChunkedPrefill):
    """``ChunkedPrefill`` whose number of drafts follows the batch."""

    decoding: Sampled
    kv: DraftedAllocator

    def schedule(self, now: float) -> Plan | None:
        """Plans as vLLM does, checking the drafts that were made last."""
        batch = self.decoding
        checked = batch.drafted
        if checked != batch.courses.drafts:
            batch.redraft(checked)
            self.kv.redraft()
        plan = super().schedule(now)
        if plan is not None:
            table = batch.courses.speculation.by_batch
            batch.drafted = table[min(plan.decode + len(plan.chunks), len(table)) - 1]
            if batch.drafted != checked:
                plan.stationary = False
        return plan
