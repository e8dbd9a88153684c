"""Writes columns of numpy as a Parquet file, without pandas, group of rows by group of rows.

``pyarrow.array`` imports pandas to ask whether it was given a Series, and that takes longer than
many runs. Arrow's memory layout is simple enough to be laid out here instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 17
"""Rows of a group: what is laid out for Arrow, and encoded, at one time."""

SAMPLE = 1 << 13
"""Rows that say whether most values of a longer column differ."""

MOST_TEXT = 2**31 - 1
"""Bytes of text that one Arrow array of strings can hold."""


Columns = Mapping[str, NDArray[Any]]
"""Values by the name of their column."""


def write_parquet(path: Path, columns: Columns, *, rising: Collection[str] = ()) -> None:
    """Write ``columns`` of one length, each of numbers, flags, or texts and None, to ``path``.

    Of columns of whole numbers that are ``rising``, or nearly so, the steps are stored: a fifth of
    the size. Values that recur are stored once a group, and looked up.
    """
    write_groups(path, groups_of(columns), rising=rising)


def groups_of(columns: Columns) -> Iterator[Columns]:
    """The same columns, group of rows by group of rows; one without rows if there are none."""
    rows = min(map(len, columns.values()), default=0)
    for start in range(0, max(rows, 1), ROWS):
        yield {name: values[start : start + ROWS] for name, values in columns.items()}


def write_groups(path: Path, groups: Iterable[Columns], *, rising: Collection[str] = ()) -> None:
    """Write what ``write_parquet`` writes of the columns of which these are the ``groups``, at
    least one, each of ``ROWS`` rows except the last. Only one is in memory at a time."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    rest = iter(groups)
    first = next(rest)
    schema = pa.schema({name: arrow_array(values[:0]).type for name, values in first.items()})
    with (
        path.open("wb") as file,  # pyarrow itself cannot open a name that is not UTF-8
        pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=[
                name for name, values in first.items() if name not in rising and _recur(values)
            ],
            column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED") if rising else None,
        ) as writer,
    ):
        for group in chain([first], rest):
            writer.write_table(pa.table([*map(arrow_array, group.values())], schema))


def arrow_array(values: NDArray[Any]) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    """The Arrow array that ``pyarrow.array`` makes of ``values``; NaN stays NaN, None is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if values.dtype == object:
        return _texts(values)
    if values.dtype == bool:
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])
    numbers = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, numbers])


def _recur(values: NDArray[Any]) -> bool:
    """Whether a dictionary of ``values`` may save room; one that has most of them costs some."""
    if len(values) <= SAMPLE or values.dtype == object:
        return True
    return len(np.unique(values[:SAMPLE])) < SAMPLE / 2


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    import pyarrow as pa  # noqa: PLC0415

    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _texts(values: NDArray[np.object_]) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    """Texts and None: bits that say which are there, where each ends, and all of them in a row."""
    import pyarrow as pa  # noqa: PLC0415

    cells = values.tolist()
    known = {cell: b"" if cell is None else cell.encode() for cell in set(cells)}
    sizes = {cell: len(text) for cell, text in known.items()}
    ends = np.zeros(len(cells) + 1, dtype=np.int64)
    np.cumsum([sizes[cell] for cell in cells], out=ends[1:])
    if ends[-1] > MOST_TEXT:
        return pa.array(values, pa.string())
    there = np.array([cell is not None for cell in cells], dtype=bool)
    buffers = [
        None if there.all() else _bits(there),
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(b"".join([known[cell] for cell in cells])),
    ]
    return pa.Array.from_buffers(pa.string(), len(cells), buffers)
