"""Tells how far a search for the highest load is, in requests: simulated, and still expected.

Requests are counted in this process and in copies of it. The count only says how far long work is:
no answer depends on it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

Telling = Callable[[int, int], None]
"""Called by a run with the requests that have arrived, and those there are."""


class Simulated:
    """The requests that have been simulated, of runs wherever they are played.

    ``tell`` is called now and then by the runs of the process that made this; a process that waits
    for copies of it calls ``look`` meanwhile.
    """

    def __init__(self, tell: Callable[[], None] | None = None) -> None:
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        self._counts: Any = context.Array("d", 3)  # simulated, begun, and the runs of those
        self._owner = os.getpid()
        self._tell = tell

    def __reduce__(self) -> tuple[type[Simulated], tuple[()]]:
        """Gives another program a count of its own, which it keeps to itself."""
        return Simulated, ()

    @property
    def requests(self) -> float:
        """The requests that have been simulated."""
        return float(self._counts.get_obj()[0])

    @property
    def usual(self) -> float:
        """The requests of a run, on average; 0 before the first has begun."""
        _, begun, runs = self._counts.get_obj()
        return float(begun / runs) if runs else 0.0

    def look(self) -> None:
        """Tell how far it is, in the process that made this."""
        if self._tell is not None and os.getpid() == self._owner:
            self._tell()

    def run(self) -> Telling:
        """A function for one run to call."""
        known = [0, 0]

        def tell(done: int, total: int) -> None:
            begins = not known[1]
            with self._counts.get_lock():
                counts = self._counts.get_obj()
                counts[0] += done - known[0]
                counts[1] += total - known[1]
                counts[2] += begins
            known[:] = done, total
            self.look()

        return tell


Progress = Callable[[float, float], None]
"""Called with what is done, and how much there is in all."""

USUAL = 35
"""Runs of the first length that a search makes in all, as those of the shipped scenarios do; only
the time left that is shown depends on it."""

ROUGH_RUNS, LONG_LOADS, END_RUNS = 8, 3.5, 5
"""Usual runs with which a search begins, loads tried by the longest runs after them, and usual runs
that look for one end of the error band: estimates for the time left."""

TAIL = 10
"""Of what was expected, the part that stays to come for as long as more is simulated than that."""


class Advance:
    """How far a search is; ``simulated`` counts the requests of its runs as they are played, None
    where that interests no one."""

    def __init__(self, progress: Progress | None, simulated: Simulated | None = None) -> None:
        self._progress = progress
        self._done = 0
        self._left: float | None = None
        own = None if progress is None else Simulated(self._show)
        self.simulated = simulated or own

    def played(self, requests: int, runs: int) -> None:
        """Count requests and runs that a load has had."""
        if self._left is None:
            self._left = USUAL * requests / runs
        self._done += requests
        # what is more than was expected shows in smaller steps
        self._left -= min(requests, self._left / 2)
        self._show()

    def expect(self, requests: float) -> None:
        """Set the number of requests still to come."""
        self._left = float(requests)

    def _show(self) -> None:
        if self._progress is None:
            return
        seen, usual = float(self._done), 0.0
        if self.simulated is not None:
            seen, usual = max(seen, self.simulated.requests), self.simulated.usual
        left = USUAL * usual if self._left is None else self._left
        left = max(left - (seen - self._done), left / TAIL)
        self._progress(round(seen), round(seen + left))


class PlanSteps:
    """How far work of a known number of steps is, each of many runs: between two steps the requests
    of the runs say how far the next one is."""

    RUNS = 7
    """Runs of a step, as in the plans of the shipped scenarios, until steps have shown it."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._all = self._done = 0
        self._at = self._shown = 0.0  # the requests that the steps took, and what was shown
        self.simulated = None if progress is None else Simulated(self.show)

    def expect(self, steps: int) -> None:
        """Add steps that are to come."""
        self._all += steps

    def drop(self, steps: int) -> None:
        """Take away steps that turn out not to be needed; they say nothing of the pace."""
        self._all -= steps
        self.show()

    def did(self) -> None:
        """Count a step that is done."""
        self._done += 1
        if self.simulated is not None:
            self._at = self.simulated.requests
        self.show()

    def show(self) -> None:
        """Tell how far it is."""
        if self._progress is None or self.simulated is None or not self._all:
            return
        since = self.simulated.requests - self._at
        each = (
            self._at / self._done if self._done and self._at else self.RUNS * self.simulated.usual
        )
        begun = since / (since + each) if since > 0 else 0.0  # of a step: never all of it
        left = self._done < self._all
        self._shown = max(self._shown, self._done + (begun if left else 0.0))
        self._progress(self._shown, self._all)
