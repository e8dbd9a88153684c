"""Counts the requests that runs simulate, in this process and in copies of it.

The count only says how far long work is: no answer depends on it.
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
