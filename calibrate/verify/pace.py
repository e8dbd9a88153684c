"""Plans the time of a verification, and says how much of it is left. Seconds.

Every step has a length that it should take. What is left is the sum of those to come, stretched by
as much as the steps so far took longer than they should have.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sim.units import show_time

CALIBRATION, RUN = 45.0, 20.0
"""Lengths of one calibration and one run when there is time enough."""

AROUND = 0.35
"""The time of host terms and anchors, as a share of a calibration."""

EVERY = 10.0
"""Seconds between lines during one step."""

Say = Callable[[str], None]


def lengths(total: float, traces: int, batchings: int, repeats: int) -> tuple[float, float]:
    """How long a calibration and a run may be for all of it to take ``total``.

    >>> [round(length, 1) for length in lengths(600.0, 3, 3, 3)]
    [21.3, 9.5]
    """
    wished = traces * trace_length(CALIBRATION, RUN, batchings, repeats)
    scale = min(1.0, total / wished)
    return scale * CALIBRATION, scale * RUN


def trace_length(calibration: float, run: float, batchings: int, repeats: int) -> float:
    """Seconds of one trace: runs of each kind between calibrations."""
    return (repeats + 1) * (1 + AROUND) * calibration + repeats * batchings * run


class Pace:
    """The progress of something that should take ``planned`` in all, reported to ``say``."""

    def __init__(
        self,
        planned: float,
        say: Say = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned, self._say, self._clock = planned, say, clock
        self._start = self._told = clock()
        self._done = self._step = 0.0
        self._text = ""

    def begin(self, text: str, planned: float) -> None:
        """A step that should take ``planned`` begins; the one before is over."""
        self._done += self._step
        self._step, self._text = planned, text
        self._tell()

    def tick(self) -> None:
        """Something happened within the step: say so if nothing was said for a while."""
        if self._clock() - self._told >= EVERY:
            self._tell()

    def left(self) -> float:
        """Seconds that are probably left."""
        used = self._clock() - self._start
        stretch = max(1.0, used / self._done) if self._done else 1.0
        return max(0.0, stretch * self._planned - used)

    def _tell(self) -> None:
        self._told = self._clock()
        self._say(f"{self._text}; about {show_time(round(self.left()))} left")
