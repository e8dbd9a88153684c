"""Reads how the iterations of plans followed each other, where one row stands for a thousand.

Every sequence that decodes got one token from each iteration of its plan, and each iteration was
longer than the one before by the same. What needs single iterations, tokens or gaps of a plan
asks here. Times in seconds.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows

Floats = NDArray[np.float64]
Numbers = NDArray[Any]

OTHERS = "others"
"""Column of recorded plans on data ranks: tokens that the other ranks have in each iteration."""

OTHERS_REQUESTS = "others_requests"
"""Column of the same where tokens are drafted: requests for which the other ranks draft."""

SHARED, IDLE = "shared", "idle"
"""Columns of recorded plans where there is a prefix cache: tokens of blocks that several requests
hold, and of cached blocks that no request holds, in the first iteration."""

WAITED, COMPUTING = "waited", "computing"
"""Columns of recorded plans of pipelines: seconds that a batch waited for others, and that the
stages computed it."""

DELIVERED, ACCEPTED = "delivered", "accepted"
"""Columns of recorded plans where tokens are drafted: those that decoding sequences got, and drafts
that were accepted."""

CHECKED, DRAFTED = "checked", "drafted"
"""Columns of the same: drafts of each decoding sequence that were checked, and those that were made
for the next iteration."""

ADAPTERS, LOADS = "adapters", "loads"
"""Columns of recorded plans where adapters are served: different ones in each iteration, and those
that were loaded before the first."""

DECODED, TAKEN, PER_SEQUENCE = "decode_tokens", "accepted_tokens", "drafts_per_sequence"
"""Tokens delivered, drafts accepted and drafts checked of each sequence, in a saved timeseries."""

COLUMNS = ("start_s", "end_s", "iterations", "decode_seqs")
"""Timeseries columns that ``Leaps.saved`` reads."""

GROWTH = "iteration_growth_s"
"""By how much each iteration of a plan is longer than the one before; observed runs may lack it."""


SEEN, SEEN_GROWING = "seen", "seen_growing"
"""Columns of recorded plans of models with windows: what decoding sequences see through each
before the first iteration, in sum, and how many of them see one more with each further one."""

FILLING, FILLED_GROWTH = "filling", "kv_used_growth_tokens"
"""By how many tokens the filled memory grows with each further iteration, in recorded plans and in
a saved timeseries of such models; of others by one for each sequence."""


def seen_before(plans: PlanRows, rows: NDArray[np.integer[Any]]) -> list[tuple[int, ...]]:
    """Tokens that decoding sequences see through each window before the first iteration of some
    ``rows`` of ``plans``."""
    if SEEN not in (plans.dtype.names or ()):
        return [()] * len(rows)
    return [tuple(row) for row in plans[SEEN][rows].tolist()]


class PlanTable(Protocol):
    """Columns by name: a mapping, or a DataFrame."""

    def __getitem__(self, name: str, /) -> Any: ...

    def __contains__(self, name: object, /) -> bool: ...


class Leaps:
    """Row r stands for ``times[r]`` iterations from ``start[r]`` to ``end[r]``: iteration i (from
    0) lasts ``first[r] + step[r] * i`` and gives a token to each of ``sequences[r]``, by which the
    filled memory grows; by ``filling[r]`` tokens where some is given back. Where tokens are drafted
    the sequences got ``delivered[r]`` in all, evenly here."""

    def __init__(
        self,
        start: Floats,
        end: Floats,
        times: Numbers,
        sequences: Numbers,
        first: Floats,
        step: Floats,
        filling: Numbers | None = None,
        delivered: Numbers | None = None,
    ) -> None:
        self.start, self.end, self.times, self.sequences = start, end, times, sequences
        self.first, self.step = first, step
        self.filling = sequences if filling is None else filling
        self.delivered, self._windowed = delivered, filling
        if delivered is not None:
            evenly = delivered / times
            self.filling = (
                evenly if filling is None else filling * (evenly / np.maximum(sequences, 1))
            )

    @classmethod
    def recorded(cls, plans: PlanRows) -> Leaps:
        """The plans of a run, rows of ``sim.loop.recorder.PLAN``."""
        times = plans["iterations"].astype(np.int64)
        start, end, first, step = (plans[name] for name in ("start", "end", "gap", "slope"))
        names = plans.dtype.names or ()
        filling = plans[FILLING] if FILLING in names else None
        delivered = plans[DELIVERED] if DELIVERED in names else None
        return cls(start, end, times, plans["decode"], first, step, filling, delivered)

    @classmethod
    def saved(cls, timeseries: PlanTable) -> Leaps:
        """The plans of a saved timeseries, by ``COLUMNS`` and where it is there ``GROWTH``."""
        start, end, times, sequences = (np.asarray(timeseries[name]) for name in COLUMNS)
        times = times.astype(np.promote_types(times.dtype, np.int64))
        step = np.asarray(timeseries[GROWTH]) if GROWTH in timeseries else np.zeros(len(times))
        with np.errstate(divide="ignore", invalid="ignore"):
            first = (end - start - step * (times * (times - 1) // 2)) / times
        filling = np.asarray(timeseries[FILLED_GROWTH]) if FILLED_GROWTH in timeseries else None
        delivered = np.asarray(timeseries[DECODED]) if DECODED in timeseries else None
        return cls(start, end, times, sequences, first, step, filling, delivered)

    def chosen(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Leaps:
        """Some of the rows."""
        return Leaps(
            self.start[rows],
            self.end[rows],
            self.times[rows],
            self.sequences[rows],
            self.first[rows],
            self.step[rows],
            None if self._windowed is None else self._windowed[rows],
            None if self.delivered is None else self.delivered[rows],
        )

    def tokens(self) -> Numbers:
        """Tokens that decoding sequences got from each plan."""
        found: Numbers = self.sequences * self.times if self.delivered is None else self.delivered
        return found

    def gained(self, sequences: Numbers | None = None) -> Numbers:
        """Tokens that are filled, or that this many ``sequences`` hold, in the last iteration of
        each plan more than in the first; evenly in between."""
        each = self.filling if sequences is None else sequences
        if sequences is not None and self.delivered is not None:
            each = self.delivered / self.times
        found: Numbers = each * (self.times - 1)
        return found

    def seen(self, growing: Numbers) -> Numbers:
        """Tokens that sequences see in each plan's last iteration beyond its first, if that many of
        them see each token more that they get."""
        each = growing
        if self.delivered is not None:
            each = growing * (self.delivered / (np.maximum(self.sequences, 1) * self.times))
        found: Numbers = each * (self.times - 1)
        return found

    def integral(self, growth: Floats) -> Floats:
        """The time integral of a quantity's gain since the start of each plan, when it gains
        ``growth`` with each iteration. Exact: a sum of powers."""
        n = self.times.astype(np.float64)
        evenly = self.first * n * (n - 1) / 2
        lengthening = self.step * (n - 1) * n * (2 * n - 1) / 6
        found: Floats = growth * (evenly + lengthening)
        return found

    def ends(self) -> Floats:
        """When each iteration ended, plan by plan."""
        times = self.times.astype(np.int64)
        rows = np.repeat(np.arange(len(times)), times)
        before = np.cumsum(times) - times
        done = np.arange(len(rows)) - before[rows] + 1
        growth = self.step[rows]
        ends = self.start[rows] + (done * self.first[rows] + growth * (done * (done - 1) // 2))
        return np.where(done == times[rows], self.end[rows], ends)
