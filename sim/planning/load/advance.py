"""Tells how far a search for the highest load is, in requests: played, and still to be expected."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with what is done, and how much there is in all."""

USUAL = 35
"""Runs of the first length that a search makes in all, as those of the shipped scenarios do; only
the time left that is shown depends on it."""


class Advance:
    """How far a search is."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self._left: float | None = None

    def played(self, requests: int, runs: int) -> None:
        """Count requests and runs that were simulated."""
        if self._left is None:
            self._left = USUAL * requests / runs
        self._done += requests
        # what is more than was expected shows in smaller steps
        self._left -= min(requests, self._left / 2)
        if self._progress is not None:
            self._progress(self._done, self._done + round(self._left))

    def expect(self, requests: int) -> None:
        """Set the number of requests still to come."""
        self._left = float(requests)
