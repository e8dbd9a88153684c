"""Measures how much CPU time other programs took while something was timed. Seconds of CPU time.

The system counts what all processes used, and what a hypervisor took away; what is left after our
own share belongs to others. Where there is no such count (not on Linux) nothing is known and
nothing is marked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

EVERY = 1.0
"""Seconds of a window: the system counts in hundredths."""

LIMIT = 0.1
"""Share of one processor that other programs may use before a window is marked."""

STAT = Path("/proc/stat")
IDLE = (3, 4)
GUEST = 8
"""Fields of a line of ``STAT``: idle and waiting for disks; guests are counted in others too."""


class DisturbanceCounts(NamedTuple):
    """CPU seconds of all processes, and of this one."""

    everybody: float
    own: float


class DisturbanceWindow(NamedTuple):
    """Seconds from ``start`` to ``end``, and the CPU seconds that other programs used in them."""

    start: float
    end: float
    others: float

    @property
    def disturbed(self) -> bool:
        """Whether other programs used enough to matter."""
        return self.others > LIMIT * (self.end - self.start)


def counts() -> DisturbanceCounts | None:
    """The counts now; None where the system has none."""
    try:
        line = STAT.read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError):
        return None
    return parsed(line, os.sysconf("SC_CLK_TCK"), time.process_time())


def parsed(line: str, ticks: int, own: float) -> DisturbanceCounts:
    """What the first line of ``STAT`` says, in ``ticks`` a second.

    >>> parsed("cpu  100 0 50 9000 30 5 5 10 0 0", 100, 1.2)
    DisturbanceCounts(everybody=1.7, own=1.2)
    """
    fields = [int(field) for field in line.split()[1:]]
    busy = [value for at, value in enumerate(fields[:GUEST]) if at not in IDLE]
    return DisturbanceCounts(sum(busy) / ticks, own)


class Watch:
    """Cuts the time from its making to ``done`` into windows; ``tick`` as often as convenient."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        read: Callable[[], DisturbanceCounts | None] = counts,
    ) -> None:
        self.windows: list[DisturbanceWindow] = []
        self._clock, self._read = clock, read
        self._last, self._before = clock(), read()

    def tick(self) -> None:
        """End the window if it has been long enough."""
        if self._clock() - self._last >= EVERY:
            self.done()

    def done(self) -> None:
        """End the window now."""
        now, found = self._clock(), self._read()
        if found is not None and self._before is not None and now > self._last:
            everybody = found.everybody - self._before.everybody
            others = max(0.0, everybody - (found.own - self._before.own))
            self.windows.append(DisturbanceWindow(self._last, now, others))
        self._last, self._before = now, found

    @property
    def disturbed(self) -> float | None:
        """Share of the time in marked windows; None where nothing is known."""
        total = sum(window.end - window.start for window in self.windows)
        if not total:
            return None
        return sum(w.end - w.start for w in self.windows if w.disturbed) / total
