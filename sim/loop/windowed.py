"""Times the iterations of a model with windows: what its sequences see belongs to the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.steady import Line, Steady
from sim.iteration import Part, Timer


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
