"""Turns the rows of a CSV or JSON file into checked columns, with errors that name the place.

Rows are read in blocks, so that the memory needed in addition to the resulting arrays is that of
one block. Columns are found by name, in any order; further columns are ignored; blank lines are
skipped.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from sim.errors import TraceError, did_you_mean
from sim.workload.traces.text import lines
from sim.workload.traffic import MAX_TOKENS

LATEST = 1e10
"""The latest time, s, by whatever clock: a date in seconds since 1970 is well below."""

FINER = {"milliseconds": ("ms", 1e3), "microseconds": ("us", 1e6), "nanoseconds": ("ns", 1e9)}
"""Units of times that are too late in seconds: the ``arrival_unit`` of columns, and how many make a
second."""

_BLOCK = 8192
_WHOLE = f"whole numbers from {{}} to {MAX_TOKENS}"


def _other_unit(latest: float) -> str:
    """The unit in which times up to ``latest`` may be meant, as a question; empty for none.

    >>> _other_unit(1.754e12), _other_unit(1e30)
    ('; are they milliseconds? (columns: {arrival_unit: ms})', '')
    """
    for words, (unit, per_second) in FINER.items():
        if latest <= LATEST * per_second:
            return f"; are they {words}? (columns: {{arrival_unit: {unit}}})"
    return ""


@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive rows of ``path``: per column the raw values, as the file has them.

    ``places`` says where each row stands: the number of its line, or of its entry (from 0) where
    each column is a list of a JSON document. Values are strings in a CSV file, and whatever JSON
    makes of them elsewhere.
    """

    path: Path
    places: list[int]
    columns: dict[str, Sequence[object]]
    place: Literal["line", "entry"] = "line"

    def tokens(self, name: str) -> NDArray[np.int64]:
        """Column ``name`` as token counts: whole numbers from 1 to ``MAX_TOKENS``, else TraceError.

        Zero is refused too: a request that generates nothing has no first token to wait for, and
        logs write it for requests that failed. Formats that say so drop those rows before.
        """
        return self._whole_numbers(name, least=1)

    def priorities(self, name: str) -> NDArray[np.int64]:
        """Column ``name`` as whole numbers from 0 to ``MAX_TOKENS``, else TraceError."""
        return self._whole_numbers(name, least=0)

    def zeros(self, name: str) -> list[bool]:
        """The rows that have a 0 in column ``name``; whether the others are numbers is left
        open."""
        return [_whole_number(value, least=0) == 0 for value in self.columns[name]]

    def seconds(self, name: str, per_second: float = 1.0) -> NDArray[np.float64]:
        """Column ``name``, of which ``per_second`` make a second, as times in seconds.

        TraceError unless all are numbers from 0 to ``LATEST`` seconds.
        """
        numbers = [_number(value) for value in self.columns[name]]
        if None in numbers:
            self.fail(numbers.index(None), name, "finite numbers that are not negative")
        # Dividing rounds once; 0.001 is no binary number and would round twice.
        times: NDArray[np.float64] = np.array(numbers, dtype=np.float64) / per_second
        late = np.flatnonzero(times > LATEST)
        if len(late):
            allowed = f"numbers up to {LATEST * per_second:.0e}, or {LATEST:.0e} seconds"
            self.fail(int(late[0]), name, allowed + _other_unit(float(times.max()) * per_second))
        return times

    def _whole_numbers(self, name: str, *, least: int) -> NDArray[np.int64]:
        plain = _plain_integers(self.columns[name])
        if plain and least <= min(plain) and max(plain) <= MAX_TOKENS:
            return np.array(plain, dtype=np.int64)
        # value by value: some are written otherwise, or one is wrong
        numbers = [_whole_number(value, least=least) for value in self.columns[name]]
        if None in numbers:
            self.fail(numbers.index(None), name, _WHOLE.format(least))
        return np.array(numbers, dtype=np.int64)

    def patience(self, name: str) -> NDArray[np.float64]:
        """Column ``name`` as seconds that a client waits: infinite where there is nothing; else
        TraceError unless it is a number above 0, up to ``LATEST``."""
        column = self.columns[name]
        numbers = [math.inf if value in ("", None) else _number(value) for value in column]
        for row, number in enumerate(numbers):
            if number is None or not (0 < number <= LATEST or number == math.inf):
                self.fail(row, name, f"nothing, or seconds above 0 and up to {LATEST:.0e}")
        return np.array(numbers, dtype=np.float64)

    def without(self, dropped: Sequence[bool]) -> Block:
        """The block without the rows whose entry in ``dropped`` is true."""
        kept = [not drop for drop in dropped]
        columns: dict[str, Sequence[object]] = {
            name: list(compress(column, kept)) for name, column in self.columns.items()
        }
        return Block(self.path, list(compress(self.places, kept)), columns, self.place)

    def fail(self, row: int, name: str, allowed: str) -> NoReturn:
        """Raise the TraceError about the value of column ``name`` in row ``row`` of this block."""
        found = f"is {shown(self.columns[name][row])}; allowed: {allowed}"
        if self.place == "entry":
            raise TraceError(f"{self.path}: {name}[{self.places[row]}] {found}")
        raise TraceError(f"{self.path}:{self.places[row]}: {name} {found}")


def csv_blocks(path: Path, wanted: Sequence[str]) -> Iterator[Block]:
    """The rows of a CSV file with a header, reduced to the columns that are wanted.

    TraceError for a column that the header lacks or has twice, a row with more or fewer fields
    than the header, and a file without any row.
    """
    rows = _csv_rows(path, lines(path))
    line, header = _header(path, rows)
    places = {name: _place(path, line, header, name) for name in wanted}
    width = len(header)
    empty = True
    while block := list(islice(rows, _BLOCK)):
        empty = False
        for number, row in block:
            if len(row) != width:
                found = _fields(len(row))
                raise TraceError(f"{path}:{number}: {found}, but the header has {width}")
        numbers = [number for number, _ in block]
        yield Block(path, numbers, {n: [row[i] for _, row in block] for n, i in places.items()})
    if empty:
        raise TraceError(f"{path}: a header, but no requests")


def json_blocks(path: Path, wanted: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Block]:
    """The rows of a JSON lines file, reduced to the keys that are ``wanted`` or ``optional``.

    An optional key that a row lacks is None there. TraceError for a line that is no JSON object or
    lacks one of the wanted keys.
    """
    rows = ((n, json_row(path, n, line)) for n, line in enumerate(lines(path), 1) if line.strip())
    while block := list(islice(rows, _BLOCK)):
        for number, row in block:
            for name in wanted:
                if name not in row:
                    raise TraceError(
                        f"{path}:{number}: no {name!r} in this row; it has {listed(row)}"
                    )
        columns: dict[str, Sequence[object]] = {n: [row[n] for _, row in block] for n in wanted}
        columns |= {n: [row.get(n) for _, row in block] for n in optional}
        yield Block(path, [number for number, _ in block], columns)


def csv_header(path: Path, line: str) -> list[str]:
    """The names of the columns in the header ``line``."""
    return _header(path, _csv_rows(path, [line]))[1]


def json_row(path: Path, number: int, line: str) -> dict[str, object]:
    """The JSON object in line ``number``; TraceError if it holds anything else."""
    try:
        row = _ROWS.decode(line)
    except (ValueError, RecursionError) as error:
        reason = json_reason(error)
        raise TraceError(f"{path}:{number}: not JSON: {shown(line.strip())} ({reason})") from None
    if not isinstance(row, dict):
        raise TraceError(f"{path}:{number}: not a JSON object: {shown(line.strip())}")
    return row


def json_reason(error: Exception) -> str:
    """Why a text is not JSON, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at column {error.colno}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error).partition(";")[0]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object, which would hide that a key is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} is given twice")
    return found


_ROWS = json.JSONDecoder(object_pairs_hook=_unique)
"""The decoder of rows: made once, since making one takes a quarter of the time of a row."""


def shown(value: object) -> str:
    """A value from a file as it appears in a message: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(names: Iterable[str]) -> str:
    """Column names as they appear in a message: quoted, and at most a dozen."""
    quoted = [shown(name) for name in names]
    rest = [f"and {len(quoted) - 12} more"] if len(quoted) > 12 else []
    return ", ".join(quoted[:12] + rest) or "nothing"


def _csv_rows(path: Path, text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each after the number of the line on which it starts."""
    reader = csv.reader(text)
    start = 1
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise TraceError(f"{path}:{start}: not a row of CSV: {error}") from None


def _header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    for number, row in rows:
        return number, [name.strip() for name in row]
    raise TraceError(f"{path}: the file is empty")


def _place(path: Path, line: int, header: list[str], name: str) -> int:
    if name not in header:
        raise TraceError(
            f"{path}:{line}: no column {name!r}{did_you_mean(name, header)};"
            f" the header has {listed(header)}"
        )
    if header.count(name) > 1:
        raise TraceError(f"{path}:{line}: two columns are called {name!r}")
    return header.index(name)


def _plain_integers(values: Sequence[object]) -> Sequence[int] | None:
    """All ``values``, if they are integers, or strings of digits and nothing else."""
    types = set(map(type, values))
    if types == {int}:
        return cast("Sequence[int]", values)
    if types != {str}:
        return None
    texts = cast("Sequence[str]", values)
    digits = "".join(texts)
    try:
        return list(map(int, texts)) if digits.isascii() and digits.isdigit() else None
    except ValueError:  # an empty one
        return None


def _whole_number(value: object, *, least: int) -> int | None:
    if type(value) is str:
        text = value.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            return None
        value = int(text)
    return value if type(value) is int and least <= value <= MAX_TOKENS else None


def reads_as_number(text: str) -> bool:
    """Whether ``text`` is a number, of any sign and size."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(value: object) -> float | None:
    if (type(value) is str and "_" in value) or type(value) not in (str, int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"
