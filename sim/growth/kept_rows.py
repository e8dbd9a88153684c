"""Keeps millions of rows in less than half of their memory: blocks of columns that are narrowed.

A column of a block is kept in the narrowest integers that hold its values, as one value where all
are equal, as numbers of its different values where those are few, and as what differs from another
column where that says the rest. Whole numbers of two columns that are the same are kept once, and
multiples of a number as how many times it.
Reading gives back the same values, in the columns' own types.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Rows of a block, except the last one."""

SAMPLED = 1 << 6
"""One in so many rows is looked at before the different values of a column are counted."""

Column = NDArray[Any]
Narrow = tuple[Column, Column | None]
"""Values of a column in a block; or its different values, and which of them each row has."""

FOLLOWS = {"start": "end"}
"""Columns of which most values are those of another one in the row before: an iteration begins when
the last one ends."""


class Following(NamedTuple):
    """A column with the values of ``other`` in the rows before, but these ``values`` in the rows at
    these ``places``."""

    other: Column
    values: Column
    places: Column

    def whole(self) -> Column:
        """All values."""
        found = np.roll(self.other, 1)
        found[self.places] = self.values
        return found


class InSteps(NamedTuple):
    """A column of ``values`` times ``step``, such as tokens in whole blocks."""

    values: Column
    step: int

    def whole(self) -> Column:
        """All values."""
        return self.values.astype(np.int64) * self.step


Kept = Narrow | Following | InSteps


class KeptRows:
    """Rows of one ``dtype``, read as an array of them is: by the name of a column, a slice, a mask
    or the places of rows.

    >>> rows = KeptRows(np.dtype([("time", "f8"), ("replica", "i4")]))
    >>> for times in ([0.5, 1.5], [2.5]):
    ...     rows.add(np.array([(time, 7) for time in times], rows.dtype))
    >>> len(rows), rows["time"].tolist(), rows[1:]["replica"].tolist()
    (3, [0.5, 1.5, 2.5], [7, 7])
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self._blocks: list[dict[str, Kept]] = []
        self._starts = [0]
        self._slice: slice | None = None  # the rows that these are, if not all of the blocks

    @property
    def _bounds(self) -> tuple[int, int]:
        """The first row of the blocks that is one of these, and the one behind the last."""
        return (
            (0, self._starts[-1]) if self._slice is None else (self._slice.start, self._slice.stop)
        )

    def __len__(self) -> int:
        start, stop = self._bounds
        return stop - start

    def add(self, rows: NDArray[np.void]) -> None:
        """Keep ``rows`` behind all others."""
        if len(rows):
            kept: dict[str, Kept] = {}
            for name in reversed(self.dtype.names or ()):  # what others follow comes first
                other = kept.get(FOLLOWS.get(name, ""))
                following = _following(rows[name], other)
                kept[name] = following or _shared(_narrow(rows[name]), kept.values())
            self._blocks.append(kept)
            self._starts.append(self._starts[-1] + len(rows))

    @overload
    def __getitem__(self, at: str) -> Column: ...

    @overload
    def __getitem__(self, at: slice) -> KeptRows: ...

    @overload
    def __getitem__(self, at: Column) -> NDArray[np.void]: ...

    def __getitem__(self, at: str | slice | Column) -> Column | KeptRows:
        if isinstance(at, str):
            return self._read(at)
        if isinstance(at, slice):
            return self._cut(at)
        places = np.flatnonzero(at) if at.dtype == np.bool_ else at
        found = np.empty(len(places), self.dtype)
        for name in self.dtype.names or ():
            found[name] = self._read(name)[places]
        return found

    def _cut(self, at: slice) -> KeptRows:
        """The rows of a slice; not copied."""
        start, stop, step = at.indices(len(self))
        assert step == 1, "rows are read one after the other"
        found, first = KeptRows(self.dtype), self._bounds[0]
        found._blocks, found._starts = self._blocks, self._starts
        found._slice = slice(first + start, first + max(start, stop))
        return found

    def whole(self) -> NDArray[np.void]:
        """All rows as an array."""
        return self[np.arange(len(self))]

    def _read(self, name: str) -> Column:
        """The values of a column."""
        start, stop = self._bounds
        found = np.empty((stop - start, *self.dtype[name].shape), self.dtype[name].base)
        for at in range(bisect_right(self._starts, start) - 1, len(self._blocks)):
            low, high = max(start, self._starts[at]), min(stop, self._starts[at + 1])
            if low >= high:
                break
            kept = self._blocks[at][name]
            if isinstance(kept, Following | InSteps):
                kept = kept.whole(), None
            values, places = kept
            own = slice(low - self._starts[at], high - self._starts[at])
            if places is not None:
                values = values[places[own]]
            elif len(values) > 1:
                values = values[own]
            found[low - start : high - start] = values  # one value stands for all
        return found


def _following(column: Column, other: Kept | None) -> Following | None:
    """The same values by what differs from ``other``; None where that is much."""
    if other is None or isinstance(other, Following) or len(other[0]) < len(column):
        return None
    bits, before = column.view(np.int64), other[0].view(np.int64)
    places = np.append(0, 1 + np.flatnonzero(bits[1:] != before[:-1])).astype(np.int32)
    return Following(other[0], column[places], places) if 4 * len(places) < len(column) else None


def _shared(found: Narrow | InSteps, kept: Iterable[Kept]) -> Narrow | InSteps:
    """What is kept of another column with the same whole numbers, if there is one."""
    values = found[0]
    if values.dtype.kind != "f" and not isinstance(found, InSteps):
        for other in kept:
            if other[0].dtype == values.dtype and np.array_equal(other[0], values):
                return other[0], None
    return found


def _narrow(column: Column) -> Narrow | InSteps:
    """The same values in fewer bytes."""
    if column.dtype.kind == "f":
        return _numbered(np.ascontiguousarray(column))
    low, high = column.min(), column.max()
    if low == high:
        return column[:1].copy(), None
    narrow = column.astype(np.result_type(*map(np.min_scalar_type, (low, high))))
    if narrow.itemsize > 2 and (step := int(np.gcd.reduce(narrow, axis=None))) > 1:
        return InSteps(_narrow(narrow // step)[0], step)
    return narrow, None


def _numbered(column: Column) -> Narrow:
    """Real values, to the bit; those that are often the same by their number."""
    bits = column.view(np.int64)
    sample = bits[::SAMPLED]
    if 2 * len(np.unique(sample)) > len(sample):
        return column, None
    different, places = np.unique(bits, return_inverse=True)
    values = different.view(np.float64)
    if len(values) == 1:
        return values, None
    return values, places.astype(np.min_scalar_type(len(values) - 1))


PlanRows = NDArray[np.void] | KeptRows
"""The plans of a run: an array of rows, or where they are many what keeps them in less memory."""
