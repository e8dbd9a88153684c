"""Times iterations of a model with windows, and counts the tokens that they leave in memory."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.steady import Line, Steady
from sim.iteration import Part, Timer
from sim.memory.windowed import WindowedAllocator
from sim.schedulers import Plan


class WindowedTimer(Timer):
    """Asks ``timer`` on behalf of ``batch``, and says what its sequences see through the windows.

    Lines end where what they see bends.
    """

    def __init__(self, timer: Timer, batch: Steady) -> None:
        self._timer, self._batch = timer, batch

    def beside(self, others: int) -> WindowedTimer:
        """The same with so many tokens on other ranks."""
        return WindowedTimer(self._timer.beside(others), self._batch)

    def line(self, sequences: int, context: int) -> Line:
        """As long as what is seen grows evenly."""
        seen = self._batch.seen(sequences, context)
        limit, intercept, slope = self._timer.windowed_line(sequences, context, seen)
        return min(limit, float(context + seen.left * sequences)), intercept, slope

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int
    ) -> tuple[float, float, float]:
        """With what the sequences see now."""
        seen = self._batch.seen(sequences, context).tokens
        return self._timer.windowed_iteration(sequences, context, parts, admitted, seen)


def filled(kv: WindowedAllocator, plan: Plan, batch: Steady) -> tuple[int, int]:
    """Tokens that are filled in all groups of layers once ``plan`` has run, and by how many that
    grows with each iteration like it.

    ``batch`` is as it was before. A token counts in a group as long as its block could not be given
    back for what comes next, however its block is shared.
    """
    seen = batch.seen(batch.size, batch.context)
    gained = batch.size if plan.decode else 0
    held = batch.context + gained + sum(chunk.context + chunk.tokens for chunk in plan.chunks)
    tokens = filling = 0
    for number, window in ((group.number, group.window) for group in kv.groups):
        if window is None:
            growing, inside = gained, batch.context + gained
            inside += sum(chunk.context + chunk.tokens for chunk in plan.chunks)
        else:
            place = batch.windows.index(window)
            growing = seen.growing[place] if gained else 0
            inside = seen.tokens[place] + gained
            inside += sum(window.seen(chunk.context) + chunk.tokens for chunk in plan.chunks)
        tokens += number * inside
        filling += number * growing
    rest = max(0, plan.held - held)  # of requests that hold memory and are not computed
    whole = sum(group.number for group in kv.groups)
    return min(tokens + rest * whole, kv.reserved), filling
