"""Tabulates a profile's decode attention as lines: leaps need lines, which the fitted form is not.

Contexts double from knot to knot above the shortest, and between two knots the time is a straight
line in the tokens held. All batch sizes up to a power of two are tabulated at once. Seconds of all
layers.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.cost.measured import Amount, Timing

Line = tuple[float, float, float]
"""(limit, intercept, slope): ``intercept + slope * context`` seconds for ``context < limit``."""

KNOTS = np.array([1.0, 16.0, *(2.0**power for power in range(5, 21))])
"""Tokens of one sequence, the new one included, up to a million. Between two knots that lie a
factor of two apart a floor plus bytes over bandwidth is a line anyway; what bends is the number of
parts that a kernel splits the context into."""

FIRST = 64
"""Batch sizes tabulated to begin with."""

MANY = 4096
"""Batch sizes up to which all are tabulated; of larger ones those that are asked for. No engine
runs that many sequences, but a roofline may ask for them."""


class DecodeKernel(Protocol):
    """Decode attention of one layer over equal contexts."""

    def timing(self, batch: Amount, context: Amount) -> Timing:
        """``batch`` sequences of ``context`` tokens each, the new one included."""

    def parts(self, batch: Amount, context: Amount) -> Timing:
        """The timing without its seconds."""


class DecodeTable:
    """Predicted times of one deployment by batch size and context."""

    def __init__(self, kernel: DecodeKernel, layers: int) -> None:
        self._kernel, self._layers = kernel, layers
        self._seconds: NDArray[np.float64] = np.zeros((0, len(KNOTS)))  # row b-1: batch of b
        self._slopes: NDArray[np.float64] = np.zeros((0, len(KNOTS) - 1))  # s per token of each

    def lines(self, sequences: int) -> list[Line]:
        """Lines in the tokens that ``sequences`` hold in sum, their new ones not counted."""
        self._extend(sequences)
        seconds, slopes = self._seconds[sequences - 1], self._slopes[sequences - 1]
        lines = []
        for at, left in enumerate(KNOTS[:-1].tolist()):
            slope = float(slopes[at]) / sequences
            held = sequences * (left - 1)
            limit = math.inf if at == len(slopes) - 1 else sequences * (float(KNOTS[at + 1]) - 1)
            lines.append((limit, float(seconds[at]) - slope * held, slope))
        return lines

    def timing(self, sequences: Amount, context: Amount) -> Timing:
        """The timing for arrays, with its parts; nothing for no sequences."""
        batch = np.asarray(sequences, dtype=np.int64)
        some = np.maximum(batch, 1)
        each = np.asarray(context) / some + 1
        at = np.clip(np.searchsorted(KNOTS, each, side="right") - 1, 0, len(KNOTS) - 2)
        table, slopes, row = self._rows(some)
        seconds = table[row, at] + slopes[row, at] * (each - KNOTS[at])
        parts = self._kernel.parts(some, each)
        running = batch > 0
        scale = running * self._layers
        return Timing(
            seconds * running,
            np.asarray(parts.compute) * scale,
            np.asarray(parts.memory) * scale,
            parts.error,
            parts.measured,
        )

    def _rows(
        self, batch: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """A table of seconds and one of slopes, and the row of each batch size in them."""
        most = int(batch.max(initial=1))
        if most <= MANY:
            self._extend(most)
            return self._seconds, self._slopes, batch - 1
        sizes, row = np.unique(batch, return_inverse=True)
        seconds = self._tabulated(sizes.astype(np.float64))
        return seconds, np.diff(seconds, axis=1) / np.diff(KNOTS), row.reshape(batch.shape)

    def _extend(self, sequences: int) -> None:
        """Tabulate batches up to ``sequences`` at least."""
        known = len(self._seconds)
        if sequences <= known:
            return
        wanted = max(FIRST, 1 << (sequences - 1).bit_length())
        fresh = self._tabulated(np.arange(known + 1, wanted + 1, dtype=np.float64))
        self._seconds = np.concatenate([self._seconds, fresh])
        self._slopes = np.diff(self._seconds, axis=1) / np.diff(KNOTS)

    def _tabulated(self, batch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of all layers by batch size and knot."""
        found = np.asarray(self._kernel.timing(batch[:, None], KNOTS).seconds) * self._layers
        return np.maximum.accumulate(found, axis=1)  # a longer context never takes less
