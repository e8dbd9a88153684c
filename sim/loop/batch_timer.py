"""Times iterations whose length depends on more of a batch than its size and context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.growth.sampled import Sampled
from sim.growth.steady import Line, Steady
from sim.growth.window_reads import WindowReads
from sim.iteration import Ints, Part, PassConditions, Timer


class BatchTimer(Timer):
    """Asks ``timer`` on behalf of ``batch``: what its sequences see through windows, and under
    which ``conditions``, with its drafts where their number follows the size of the batch, and with
    as many ``adapters`` as it has where any are served."""

    def __init__(
        self,
        timer: Timer,
        batch: Steady,
        conditions: PassConditions | None = None,
        adapters: Callable[[], int] | None = None,
    ) -> None:
        self._batch, self._given, self._adapters = batch, timer, adapters
        self._conditions = conditions or PassConditions()
        self._timer = timer.under(self._conditions)
        self._drafts = batch if isinstance(batch, Sampled) and batch.drafts_by_batch else None

    def under(self, conditions: PassConditions) -> BatchTimer:
        """The times of the same batch under other conditions."""
        return BatchTimer(self._given, self._batch, conditions, self._adapters)

    def graph(self, sequences: int) -> int:
        """Sequences of the graph that ``timer`` replays for so many."""
        return self._timer.graph(sequences)

    def _now(self) -> Timer:
        """The timer of the next iteration."""
        if self._adapters is not None:
            return self._given.under(self._conditions._replace(adapters=self._adapters()))
        batch = self._drafts
        if batch is None:
            return self._timer
        drafts = batch.courses.drafts, batch.drafted
        return self._given.under(self._conditions._replace(drafts=drafts))

    def line(self, sequences: int, context: int) -> Line:
        """Time of a decode-only iteration, as long as what is seen grows evenly."""
        timer, batch = self._now(), self._batch
        if not batch.windows:
            return timer.line(sequences, context)
        seen = batch.seen(sequences, context)
        limit, intercept, slope = timer.windowed_line(sequences, context, seen)
        return min(limit, float(context + seen.left * sequences)), intercept, slope

    def windowed_line(self, sequences: int, context: int, seen: WindowReads) -> Line:
        """Time of a decode-only iteration of sequences that see so much."""
        return self._now().windowed_line(sequences, context, seen)

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """Time of an iteration with prompts, with what the sequences see now."""
        seen = self._batch.seen(sequences, context).tokens
        return self._now().iteration(sequences, context, parts, admitted, seen)
