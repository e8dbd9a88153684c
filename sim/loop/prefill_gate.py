"""Decides in which iterations prompts of data ranks run, where they wait for each other.

A rank with a prompt makes all others wait for it. With ``attention_dp_timeout_iters`` prompts are
left out of iterations until every rank has one that could run and a free slot, or until that many
iterations in a row lacked one; where a rank decodes nothing, none waits. Once all have one, they
may wait for ``attention_dp_batching_wait_iters`` more, for others to join them. As
``PyExecutor._balance_adp_requests`` of ``tensorrt_llm/_torch/pyexecutor/py_executor.py`` counts
(NVIDIA/TensorRT-LLM, 1.1), as read: the count goes on where no rank has a prompt at all, so that
one that comes waits for what is left of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.schedulers import Scheduler


class PrefillGate:
    """The counts of one engine, all of whose ranks decide alike."""

    def __init__(self, timeout: int, batching: int) -> None:
        self._timeout, self._batching = timeout, batching
        self._alone = 0  # iterations in a row in which some rank had no prompt
        self._passed = 0  # iterations that all ranks had one and that left them out
        self._counting = False  # whether the next iteration, if nothing happens, counts on

    def wait(self, ranks: Sequence[Scheduler]) -> bool:
        """Whether the iteration that is planned now leaves prompts out, on all ``ranks``."""
        decodes = [rank.decoding.size for rank in ranks]
        all_decode = all(decodes)
        room = all(n < rank.limits.max_num_seqs for n, rank in zip(decodes, ranks, strict=True))
        self._counting = False
        if room and all(rank.has_prompt() for rank in ranks):
            self._alone = 0
            if all_decode and self._passed < self._batching:
                self._passed += 1
                return True
            if all_decode:
                self._passed = 0
            return False
        self._alone += 1
        if self._alone >= self._timeout or not all_decode:
            self._alone = 0
            self._counting = all_decode
            return False
        self._counting = True
        return True

    def most(self, ranks: Sequence[Scheduler]) -> float:
        """Iterations, with the one that was just decided on, before prompts that wait may run."""
        if not any(rank.has_prompt() for rank in ranks):
            return math.inf
        return self._timeout - self._alone if self._counting else 1

    def go_on(self, iterations: int) -> None:
        """So many more have run, in which nothing happened that could change a decision."""
        if self._counting:
            self._alone = (self._alone + iterations) % self._timeout
