"""Times iterations of a model with windows, and counts the tokens that they leave in memory."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.leaps import FILLING, SEEN, SEEN_GROWING
from sim.growth.seen import Seen
from sim.growth.steady import Line, Steady
from sim.iteration import Ints, Part, Timer
from sim.loop.recorder import Columns, Field
from sim.memory import Allocator
from sim.memory.windowed import WindowedAllocator
from sim.schedulers import Plan


def windowed_columns(windows: int) -> Columns:
    """What decoding sequences see through each of so many windows, how many of them see one more
    token with each iteration, and by how many tokens the filled memory grows."""
    several = (windows,)
    fields: list[Field] = [(SEEN, "i8", several), (SEEN_GROWING, "i8", several), (FILLING, "i8")]
    return Columns(fields, lambda flight, _: flight.seen)


class WindowedTimer(Timer):
    """Asks ``timer`` on behalf of ``batch``, and says what its sequences see through the windows.

    Lines end where what they see bends.
    """

    def __init__(self, timer: Timer, batch: Steady) -> None:
        self._timer, self._batch = timer, batch

    def among(self, others: int, requests: int = 0) -> WindowedTimer:
        """The same with that many tokens on other ranks."""
        return WindowedTimer(self._timer.among(others, requests), self._batch)

    def graph(self, sequences: int) -> int:
        """As it is."""
        return self._timer.graph(sequences)

    def line(self, sequences: int, context: int) -> Line:
        """As long as what is seen grows evenly."""
        seen = self._batch.seen(sequences, context)
        limit, intercept, slope = self._timer.windowed_line(sequences, context, seen)
        return min(limit, float(context + seen.left * sequences)), intercept, slope

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """With what the sequences see now."""
        seen = self._batch.seen(sequences, context).tokens
        return self._timer.iteration(sequences, context, parts, admitted, seen)


def filled(kv: WindowedAllocator, plan: Plan, batch: Steady, seen: Seen) -> tuple[int, int]:
    """Tokens that are filled in all groups of layers once ``plan`` has run, and by how many that
    grows with each iteration like it, by one token of each sequence where it gets several.

    ``batch`` is as it was before, and ``seen`` what its members see. A token counts in a group as
    long as its block could not be given back for what comes next, however its block is shared.
    """
    gained = batch.context_after(1) - batch.context if plan.decode else 0
    growing = batch.size if plan.decode else 0
    tokens = filling = groups = 0
    whole = batch.context + gained
    for chunk in plan.chunks:
        whole += chunk.context + chunk.tokens
    for number, window, _ in kv.groups:
        groups += number
        if window is None:
            tokens += number * whole
            filling += number * growing
            continue
        place = batch.windows.index(window)
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
