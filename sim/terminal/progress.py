"""Draws how far long work is, with the time left.

Nothing draws but the work itself, so that its process stays one of a single thread, which can be
copied (``sim.copies``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TaskProgressColumn
from rich.progress import TimeRemainingColumn as TimeLeft

from sim.terminal.console import stderr

SOON = 0.1
"""Seconds between two drawings."""


class Bar:
    """A bar that is drawn as the work tells how far it is."""

    def __init__(self, drawn: Progress, task: TaskID) -> None:
        self._drawn = drawn
        self._task = task
        self._last = 0.0

    def count(self, done: float, total: float) -> None:
        """``done`` of ``total`` is done."""
        self._drawn.update(self._task, completed=done, total=total)
        if time.monotonic() - self._last >= SOON:
            self._last = time.monotonic()
            self._drawn.refresh()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._drawn.console.print(text)
        self._drawn.refresh()


@contextmanager
def bar(what: str, *, counted: bool = True) -> Iterator[Bar]:
    """A bar on stderr while the work goes on, of ``what`` is ``counted``, or of its share."""
    amount = MofNCompleteColumn() if counted else TaskProgressColumn()
    columns = (what, BarColumn(), amount, TimeLeft(), "left")
    with Progress(*columns, console=stderr(), transient=True, auto_refresh=False) as drawn:
        yield Bar(drawn, drawn.add_task(what, total=None))
