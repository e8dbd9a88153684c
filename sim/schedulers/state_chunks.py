"""Cuts chunks of prompts where the states of a model have to be kept: vLLM's cache mode ``align``.

The rule is that of vLLM 0.33 (``Scheduler._mamba_block_aligned_split``), without drafts and with
hits in whole blocks, its default.
"""

from __future__ import annotations

from sim.memory.state_caching import StateCachingAllocator
from sim.request import Request


def cut_for_states(
    kv: StateCachingAllocator, request: Request, start: int, tokens: int, most: int
) -> int:
    """How many of the next ``tokens`` of ``request`` behind the first ``start`` a chunk has, so
    that it ends where a block does; no chunk has more than ``most``. Tokens behind a prompt, of
    which states are not kept, are not cut.

    >>> kv = StateCachingAllocator(9, 16, states=1)
    >>> request = Request(1, 0.0, prompt_tokens=50, output_tokens=9)
    >>> cut_for_states(kv, request, 0, 40, 64), cut_for_states(kv, request, 0, 50, 64)
    (32, 48)
    """
    size, whole = kv.block_size, request.prompt_tokens + request.generated
    last = max(request.prompt_tokens, whole - 1)  # needs no further state
    if start >= last:
        return tokens
    end = start + tokens
    inside = (
        kv.checkpoints
        and end >= last
        and start % size == 0
        and (last - 1) // size * size >= start + size
    )
    if end < last:
        aligned = end // size * size
        if aligned > start or size <= most:
            end = aligned
    if not inside:
        for stop in ((start // size + 1) * size if start % size else 0, (whole - 1) // size * size):
            if start < stop < end:
                end = stop
    reach = kv.reach(request)
    if start < reach < end:
        stop = start + (reach - start) // size * size
        if stop > start:
            end = stop
    return max(end - start, 0)
