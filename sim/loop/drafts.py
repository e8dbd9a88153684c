"""Times iterations where the number of drafts follows the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.sampled import Sampled
from sim.growth.seen import Seen
from sim.growth.steady import Line, Steady
from sim.iteration import Part, Timer


class DraftsTimer(Timer):
    """Asks ``timer`` on behalf of ``batch``, whose drafts are checked and made as was planned."""

    def __init__(self, timer: Timer, batch: Steady) -> None:
        assert isinstance(batch, Sampled)
        self._timer, self._batch = timer, batch

    def line(self, sequences: int, context: int) -> Line:
        """With the drafts of this iteration."""
        batch = self._batch
        return self._timer.drafting(batch.courses.drafts, batch.drafted).line(sequences, context)

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int
    ) -> tuple[float, float, float]:
        """The same."""
        batch = self._batch
        timer = self._timer.drafting(batch.courses.drafts, batch.drafted)
        return timer.iteration(sequences, context, parts, admitted)

    def windowed_line(self, sequences: int, context: int, seen: Seen) -> Line:
        """The same."""
        batch = self._batch
        timer = self._timer.drafting(batch.courses.drafts, batch.drafted)
        return timer.windowed_line(sequences, context, seen)

    def windowed_iteration(
        self,
        sequences: int,
        context: int,
        parts: Sequence[Part],
        admitted: int,
        seen: tuple[int, ...],
    ) -> tuple[float, float, float]:
        """The same."""
        batch = self._batch
        timer = self._timer.drafting(batch.courses.drafts, batch.drafted)
        return timer.windowed_iteration(sequences, context, parts, admitted, seen)
