"""Reads published measurements from a CSV file: one row is one metric under stated conditions.

A table has the columns of ``NEEDED`` and, where known, of ``OPTIONAL``; ``calibrate/TABLES.md``
describes each. Cells are text, since publishers state conditions in words. Values are turned to
seconds and tokens per second.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sim.errors import TraceError, did_you_mean

NEEDED = (
    "engine",
    "engine_version",
    "gpu",
    "n_gpus",
    "tp",
    "model",
    "weight_dtype",
    "kv_dtype",
    "isl",
    "osl",
    "batch_or_concurrency",
    "arrival",
    "metric",
    "value",
    "unit",
)
OPTIONAL = (
    "pp",
    "ep",
    "dp_attn",
    "request_rate_rps",
    "n_requests",
    "completeness",
    "notes",
    "source_repo",
    "source_path",
    "source_commit",
)

UNITS = {
    "ms": 1e-3,
    "s": 1.0,
    "us": 1e-6,
    "tok/s": 1.0,
    "out_tok/s": 1.0,
    "out_tok/s/gpu": 1.0,
    "tok/s/gpu": 1.0,
    "req/s": 1.0,
    "samples/s": 1.0,
    "gb/s": 1e9,
    "requests": 1.0,
    "w": 1.0,
    "j": 1.0,
}
"""The factor of a value, by its unit in small letters: seconds, or per second."""

FILLED = ("engine", "gpu", "model", "metric", "isl", "osl")
"""Columns without which a row says nothing."""

COUNT = re.compile(r"[\d,]*[1-9]")
"""The beginning of a number of at least 1."""

LONGEST_CELL = 100_000
"""Characters of a cell; more is not a table of measurements."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure: the file and line it stands in, and its cells by column; columns that
    the file lacks are empty."""

    file: str
    line: int
    cells: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    @property
    def value(self) -> float:
        """The figure in its own unit; NaN if it is not a number."""
        try:
            return float(self.cells["value"].replace(",", ""))
        except ValueError:
            return math.nan


def read_table(path: Path) -> list[Row]:
    """The rows of the table ``path``. Raises TraceError for a file that is not such a table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(_rows(path, file))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is not text in UTF-8") from None


def _rows(path: Path, file: Iterator[str]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    table = csv.reader(file)
    try:
        header = [name.strip() for name in next(table, [])]
        _check_header(path, header)
        for cells in table:
            if not cells:
                continue
            if len(cells) != len(header):
                raise TraceError(
                    f"{path}:{table.line_num}: {len(cells)} cells under {len(header)} columns"
                )
            known = dict.fromkeys((*NEEDED, *OPTIONAL), "")
            known |= {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
            row = Row(path.name, table.line_num, known)
            _check_cells(path, row)
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}:{table.line_num}: {error}") from None


def _check_cells(path: Path, row: Row) -> None:
    """TraceError for a cell that is wrong in any table; conditions that cannot be repeated are
    reasons of their rows instead."""
    expected = {name: "something" for name in FILLED if not row[name]}
    if not 0 < row.value < math.inf:
        expected["value"] = "a number above 0"
    if row["unit"].lower() not in UNITS:
        expected["unit"] = f"one of {', '.join(UNITS)}"
    for name in ("n_gpus", "pp"):
        if row[name] and not COUNT.match(row[name]):
            expected[name] = "a number of at least 1, or nothing"
    for name, what in expected.items():
        raise TraceError(f"{path}:{row.line}: column {name!r}: expected {what}, not {row[name]!r}")


def _check_header(path: Path, header: list[str]) -> None:
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise TraceError(f"{path}:1: the column {twice!r} is there twice")
    for name in NEEDED:
        if name not in header:
            raise TraceError(
                f"{path}:1: no column {name!r}{did_you_mean(name, header)}; a table of "
                f"measurements has {', '.join(NEEDED)}"
            )
