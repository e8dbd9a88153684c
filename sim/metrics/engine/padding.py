"""Counts what a batch computes to be as long as its longest member: padding.

A static batch computes every prompt as long as its longest one, and every slot until its longest
answer is complete (``sim.schedulers.whole_batch.Static``). Tokens and slots that no request needs
are padding.
"""

from __future__ import annotations

import numpy as np

from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.run_record import RunRecord


def padding(run: RunRecord) -> dict[str, dict[str, float | None]]:
    """The entry ``padding`` of a summary; nothing where no pool pads its batches.

    ``prompt_tokens`` is the share of the computed tokens of prompts that is padding, ``slots`` the
    share of the sequences computed in decode iterations that brings no token; None where nothing
    was computed, and of prompts where it is not recorded which each iteration had.
    """
    parts = [part for part in run.parts if part.pool.policy.shape.padded]
    if not parts:
        return {}
    prompts, slots = np.zeros(2), np.zeros(2)
    for part in parts:
        prompts += _prompts(part)
        slots += _slots(part)
    shares = {"prompt_tokens": prompts, "slots": slots}
    return {
        "padding": {
            name: float(1 - needed / computed) if computed else None
            for name, (needed, computed) in shares.items()
        }
    }


def _prompts(part: PoolRun) -> tuple[int, int]:
    """The tokens of prompts that a pool needed, and those that it computed."""
    if part.trail is None:
        return 0, 0
    chunks, _ = part.trail
    own = part.requests["prompt_tokens"][chunks["request"]].astype(np.int64)
    return int(np.minimum(own, chunks["tokens"]).sum()), int(chunks["tokens"].sum())


def _slots(part: PoolRun) -> tuple[int, int]:
    """The sequences that got a token in the decode iterations of a pool, and those computed."""
    needed = computed = 0
    for block in blocks(len(part.plans)):
        rows = part.plans[block]
        times = rows["iterations"].astype(np.int64)
        needed += int((times * rows["decode"]).sum())
        computed += int((times * rows["computed"]).sum())
    return needed, computed
