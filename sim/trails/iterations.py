"""Computes when the iterations of a replica ended, and which of them produced tokens.

One row of the timeseries may stand for a thousand iterations (``sim.growth.leaps``). Times in
seconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import Leaps

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

PLANS = (
    *("replica", "start_s", "end_s", "iterations", "decode_seqs", "prefill_seqs"),
    *("prefill_tokens", "preemptions"),
)
"""The columns of a timeseries that trails are read from."""

RUNNING = "running"
"""How many requests were in the batch; observed runs may lack it."""


class Iterations:
    """The plans of one replica in order of time; NaN in a count stands for none."""

    def __init__(self, plans: Columns, replica: int) -> None:
        own = np.flatnonzero(plans["replica"] == replica)
        own = own[np.argsort(plans["start_s"][own], kind="stable")]
        self.start: Floats = plans["start_s"][own].astype(float)
        self.end: Floats = plans["end_s"][own].astype(float)
        self.prefills = np.nan_to_num(plans["prefill_seqs"][own].astype(float)) > 0
        self.preempts = np.nan_to_num(plans["preemptions"][own].astype(float)) > 0
        self.decodes = plans["decode_seqs"][own] > 0
        served = plans["decode_seqs"][own] + plans["prefill_seqs"][own]
        self.passes = plans[RUNNING][own] > served if RUNNING in plans else served < 0
        """Whether a request in the batch got no token: queues with ranks deal out few tokens so."""
        alone = plans["prefill_seqs"][own] == 1
        self.chunk = np.nan_to_num(np.where(alone, plans["prefill_tokens"][own], 0)).astype(
            np.int64
        )
        """Tokens of the prompt in each plan that has just one; 0 elsewhere."""
        self.times = self.start.tolist(), self.end.tolist()
        """Starts and ends once more, for one at a time: of an array that takes far longer."""
        self._prefilling = np.flatnonzero(self.prefills).tolist()
        self._idle = np.flatnonzero(~self.decodes).tolist()
        self._decoding = Leaps.saved(plans).chosen(own[self.decodes])
        giving = np.where(self.decodes, plans["iterations"][own].astype(np.int64), 0)
        self.before = np.concatenate([[0], np.cumsum(giving)])
        """Iterations with decodes in the plans before each; last of all, in all of them."""
        self._ends: Floats | None = None

    def between(self, after: float, until: float) -> tuple[int, int]:
        """The plans that start at ``after`` or later and end by ``until``: first, and one past the
        last (never less)."""
        starts, ends = self.times
        first = bisect_left(starts, after)
        return first, max(first, bisect_right(ends, until))

    def prefilling(self, first: int, last: int) -> list[int]:
        """The plans of ``first..last`` that prefill anything."""
        return _within(self._prefilling, first, last)

    def idle(self, first: int, last: int) -> list[int]:
        """The plans of ``first..last`` that decode nothing."""
        return _within(self._idle, first, last)

    def count(self, after: float, until: float) -> int:
        """Iterations with decodes that lie wholly in ``after..until``."""
        first, last = self.between(after, until)
        return int(self.before[last] - self.before[first])

    def ends(self, after: float, until: float) -> Floats:
        """When those ended, ascending."""
        first, last = self.between(after, until)
        if self._ends is None:
            self._ends = self._decoding.ends()
        return self._ends[self.before[first] : self.before[last]]


def _within(plans: list[int], first: int, last: int) -> list[int]:
    """The part of ``plans``, ascending, from ``first`` up to one before ``last``."""
    return plans[bisect_left(plans, first) : bisect_left(plans, last)]
