"""Counts the tokens that iterations of a model with windows leave in memory, and records them."""

from __future__ import annotations

from sim.growth.leaps import FILLING, SEEN, SEEN_GROWING
from sim.growth.steady import Steady
from sim.growth.window_reads import WindowReads
from sim.loop.recorder import Columns, Field
from sim.memory import Allocator
from sim.memory.windowed import WindowedAllocator
from sim.schedulers import Plan


def windowed_columns(windows: int) -> Columns:
    """Columns for that many windows: the tokens that decoding sequences see through each, how many
    of them see one more with each iteration, and the growth of filled memory in tokens."""
    several = (windows,)
    fields: list[Field] = [(SEEN, "i8", several), (SEEN_GROWING, "i8", several), (FILLING, "i8")]
    return Columns(fields, lambda flight, _: flight.seen)


def filled(kv: WindowedAllocator, plan: Plan, batch: Steady, seen: WindowReads) -> tuple[int, int]:
    """Tokens that are filled in all groups of layers once ``plan`` has run, and by how many that
    grows with each iteration like it, by one token of each sequence where it gets several.

    ``batch`` is as it was before, and ``seen`` what its members see. A token counts in a group as
    long as its block could not be given back for what comes next, however its block is shared.
    """
    gained = batch.context_after(1) - batch.context if plan.decode else 0
    growing = batch.size if plan.decode else 0
    tokens = filling = groups = 0
    whole, windows = batch.context + gained, batch.windows
    for chunk in plan.chunks:
        whole += chunk.context + chunk.tokens
    for number, window, _ in kv.groups:
        groups += number
        if window is None:
            tokens += number * whole
            filling += number * growing
            continue
        place = windows.index(window)
        inside = seen.tokens[place] + gained
        for chunk in plan.chunks:
            inside += window.seen(chunk.context) + chunk.tokens
        tokens += number * inside
        if gained:
            filling += number * seen.growing[place]
    rest = plan.held - whole  # of requests that hold memory and are not computed
    if rest > 0:
        tokens += rest * groups
    return min(tokens - kv.shared_tokens, kv.reserved), filling


def behind_windows(kv: Allocator, plan: Plan, batch: Steady) -> tuple[int, tuple[int, ...]]:
    """Tokens that are filled once ``plan`` has run, and what is recorded of windows (``Recorder``):
    what its sequences see, how many of them see more with each iteration, and by how many the
    filled tokens grow."""
    held, filling = plan.held, plan.decode
    seen = batch.seen(plan.sequences, plan.context)
    if isinstance(kv, WindowedAllocator):
        padded = plan.sequences != batch.size or plan.context != batch.context
        of_members = batch.seen(batch.size, batch.context) if padded else seen
        held, filling = filled(kv, plan, batch, of_members)
    return held, (*seen.tokens, *seen.growing, filling)
