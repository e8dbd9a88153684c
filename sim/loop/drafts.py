"""Times iterations where the number of drafts follows the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.sampled import Sampled
from sim.growth.seen import Seen
from sim.growth.steady import Line, Steady
from sim.iteration import Ints, Part, Timer


class DraftsTimer(Timer):
    """Asks ``timer`` on behalf of ``batch``, whose drafts are checked and made as was planned."""

    def __init__(self, timer: Timer, batch: Steady) -> None:
        assert isinstance(batch, Sampled)
        self._timer, self._batch = timer, batch

    def _drafting(self) -> Timer:
        batch = self._batch
        return self._timer.drafting(batch.courses.drafts, batch.drafted)

    def line(self, sequences: int, context: int) -> Line:
        """With the drafts of this iteration."""
        return self._drafting().line(sequences, context)

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """The same."""
        return self._drafting().iteration(sequences, context, parts, admitted, seen)

    def windowed_line(self, sequences: int, context: int, seen: Seen) -> Line:
        """The same."""
        return self._drafting().windowed_line(sequences, context, seen)
