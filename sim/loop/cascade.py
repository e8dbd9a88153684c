"""Times iterations of an engine that reads the prefix which all its requests share once."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.steady import Line
from sim.iteration import Ints, Part, Timer
from sim.memory.caching import CachingAllocator


class CascadeTimer(Timer):
    """Asks ``timer`` on behalf of requests whose memory is ``kv``.

    What all of them share changes only when a request comes or leaves, so a line holds for as long
    as the batch does.
    """

    def __init__(self, timer: Timer, kv: CachingAllocator) -> None:
        self._timer, self._kv = timer, kv
        self.prefix = 0
        """Tokens that the latest iteration, or line, reads once."""

    def line(self, sequences: int, context: int) -> Line:
        """With what all share now."""
        self.prefix = self._timer.read_once(self._kv.common_tokens(), sequences, prompts=False)
        return self._timer.sharing(self.prefix).line(sequences, context)

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """The same; a prompt shares what it had computed before."""
        size = self._kv.block_size
        common = min(self._kv.common_tokens(), *(part.context for part in parts)) // size * size
        requests = sequences + len(parts)
        self.prefix = self._timer.read_once(common, requests, prompts=True)
        timer = self._timer.sharing(self.prefix)
        return timer.iteration(sequences, context, parts, admitted, seen)
