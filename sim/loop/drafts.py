"""Times iterations where the number of drafts follows the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.leaps import ACCEPTED, CHECKED, DELIVERED, DRAFTED
from sim.growth.sampled import Sampled
from sim.growth.seen import Seen
from sim.growth.steady import Line, Steady
from sim.iteration import Ints, Part, Timer
from sim.loop.recorder import Columns, InFlight
from sim.schedulers import Scheduler


def drafted(flight: InFlight, scheduler: Scheduler) -> tuple[int, int, int, int]:
    """What decoding sequences got from the plan that is done: tokens, accepted drafts, and the
    drafts of each sequence that were checked and made."""
    batch = scheduler.decoding
    if not isinstance(batch, Sampled):
        return 0, 0, 0, 0
    if not flight.plan.decode:
        return 0, 0, 0, batch.drafted
    return batch.delivered, batch.accepted, batch.courses.drafts, batch.drafted


DRAFTS = Columns([(DELIVERED, "i8"), (ACCEPTED, "i8"), (CHECKED, "i4"), (DRAFTED, "i4")], drafted)
"""Columns of a run whose tokens are drafted."""


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
