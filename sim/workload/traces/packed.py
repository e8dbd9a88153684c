"""Unpacks what pyarrow reads: text compressed by zstd, and tables in Parquet as text.

A table becomes CSV with a header; with columns that are lists or mappings, which CSV has no place
for, JSON lines. Rows are handed on a batch at a time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sim.workload.traces.damaged import DamagedError

ROWS = 8192
"""Rows of a table that are held at once."""


class _Pieces(io.RawIOBase):
    """A file of bytes that come in ``pieces``; DamagedError where pyarrow cannot make the next."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill ``buffer`` from the next piece, or from what is left of the last one."""
        target = memoryview(buffer)  # type: ignore[arg-type]
        try:
            while not self._left:
                piece = next(self._pieces, None)
                if piece is None:
                    return 0
                self._left = piece
        except (pa.ArrowException, OSError) as error:
            raise DamagedError(str(error).splitlines()[0]) from None
        size = min(len(target), len(self._left))
        target[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def unpacked(path: Path) -> io.BufferedReader:
    """The bytes of a file that zstd compressed."""
    return io.BufferedReader(_Pieces(_decompressed(path)))


def _decompressed(path: Path) -> Iterator[bytes]:
    with pa.input_stream(str(path), compression="zstd") as stream:
        while part := stream.read(1 << 16):
            yield part


def table_text(path: Path) -> io.BufferedReader:
    """The rows of a table in Parquet as text, encoded in UTF-8."""
    return io.BufferedReader(_Pieces(_rows(path)))


def _rows(path: Path) -> Iterator[bytes]:
    with pa.parquet.ParquetFile(path) as table:
        nested = any(pa.types.is_nested(field.type) for field in table.schema_arrow)
        first = True
        for batch in table.iter_batches(ROWS):
            yield _json_lines(batch) if nested else _csv_lines(batch, header=first)
            first = False
        if first and not nested:
            yield _csv_lines(table.schema_arrow.empty_table().to_batches(), header=True)


def _json_lines(batch: pa.RecordBatch) -> bytes:
    rows = (json.dumps(row, default=str) for row in batch.to_pylist())
    return "".join(f"{row}\n" for row in rows).encode()


def _csv_lines(batch: object, *, header: bool) -> bytes:
    options = pa.csv.WriteOptions(include_header=header, quoting_style="needed")
    out = io.BytesIO()
    table = pa.Table.from_batches([batch] if isinstance(batch, pa.RecordBatch) else batch)
    pa.csv.write_csv(table, out, options)
    return out.getvalue()
