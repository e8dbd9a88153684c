"""Reads trace files as lines: UTF-8 text, plain, gzipped or by zstd, with every failure explained.

A table in Parquet is read as the text that it would be: CSV, or JSON lines where columns are lists.
A file is never held in memory as a whole: lines are handed on one by one. The exception is a file
that is a single JSON document, for which ``whole`` sets a limit.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim.errors import TraceError, did_you_mean
from sim.workload.traces.damaged import DamagedError

MAX_LINE = 1 << 20
"""Characters in the longest line that is still taken for a row of a trace."""

MAX_DOCUMENT = 1 << 28
"""Characters in the longest file that is read as one document."""

_PART = 1 << 16
_CHUNK = 1 << 13
"""Bytes that Python's own text files read at once."""
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PARQUET_MAGIC = b"PAR1"
_POINTER = b"version https://git-lfs.github.com/"
"""The start of what a clone without Git LFS has in the place of a large file."""


def lines(path: Path) -> Iterator[str]:
    """The lines of ``path`` with their line ends, decompressed if the file starts as gzip or zstd
    does, or taken from the rows of a table in Parquet.

    A byte order mark is dropped. TraceError for a path that is missing or no regular file, for
    content that is not UTF-8, a damaged file, a pointer of Git LFS, and for a line longer than
    ``MAX_LINE``.
    """
    with _opened(path) as text:
        number, begun = 0, ""
        while part := text.read(_PART):
            # a line end may be two characters, of which the second comes with the next part
            *ended, begun = io.StringIO(begun + part, newline="")
            if ended and len(ended[0]) > MAX_LINE:  # the others are shorter than a part
                raise too_long(path, number + 1)
            if len(begun) > MAX_LINE:
                raise too_long(path, number + len(ended) + 1)
            yield from ended
            number += len(ended)
        if begun:
            yield begun


def first_line(path: Path) -> tuple[int, str]:
    """The first line of ``path`` that is not blank, after its number; TraceError if none is.

    A line longer than ``MAX_LINE`` is cut after one character more.
    """
    with _opened(path) as text:
        number = 0
        while line := text.readline(MAX_LINE + 1):
            number += 1
            if "\0" in line:
                raise TraceError(f"{path}: a binary file; a trace is CSV or JSON lines")
            if line.strip():
                return number, line
            if len(line) > MAX_LINE:
                raise too_long(path, number)
    raise TraceError(f"{path}: the file is empty")


def opening(path: Path) -> str:
    """The first ``MAX_LINE`` characters of ``path``; TraceError as for ``lines``."""
    with _opened(path) as text:
        return text.read(MAX_LINE)


def whole(path: Path) -> str:
    """All text of ``path``; TraceError as for ``lines``, or above ``MAX_DOCUMENT`` characters."""
    with _opened(path) as text:
        content = text.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise TraceError(f"{path}: a JSON document of more than {MAX_DOCUMENT:,} characters")
    return content


def too_long(path: Path, number: int) -> TraceError:
    """The error about a line that is no row of any trace."""
    return TraceError(
        f"{path}:{number}: a line of more than {MAX_LINE:,} characters; a trace has one short"
        " line per request"
    )


@contextmanager
def _opened(path: Path) -> Iterator[io.TextIOWrapper]:
    """The text of ``path``; whatever goes wrong while it is read is a TraceError."""
    try:
        _check_regular(path)
        with path.open("rb") as raw:
            _check_pointer(path, raw)
            with io.TextIOWrapper(_plain(path, raw), encoding="utf-8-sig", newline="") as text:
                yield text
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}:{_undecodable(path)}: not a text file in UTF-8 (byte"
            f" 0x{error.object[error.start]:02x}); a trace is CSV or JSON lines, plain, gzipped "
            "or by zstd, or a table in Parquet"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: damaged or incomplete gzip file ({error})") from None
    except DamagedError as error:
        raise TraceError(f"{path}: damaged or incomplete file ({error})") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _undecodable(path: Path) -> int:
    """The number of the first line that is not UTF-8; it is known that there is one.

    Read in the same small parts as the text was: a damaged end of a gzip file is not met before.
    """
    decoder, number = codecs.getincrementaldecoder("utf-8")(), 1
    damaged = (EOFError, zlib.error, gzip.BadGzipFile, DamagedError)
    with path.open("rb") as raw, suppress(*damaged):
        data = _plain(path, raw)
        while part := data.read1(_CHUNK):
            held = len(decoder.getstate()[0])  # the start of a character that goes on in this part
            try:
                decoder.decode(part)
            except UnicodeDecodeError as error:
                return number + part.count(b"\n", 0, max(0, error.start - held))
            number += part.count(b"\n")
    return number


def _plain(path: Path, raw: io.BufferedReader) -> gzip.GzipFile | io.BufferedReader:
    """The bytes of the text in ``raw``, the open file at ``path``, whatever it is packed as."""
    start = raw.peek(len(_PARQUET_MAGIC))
    if start.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)
    if start.startswith((_ZSTD_MAGIC, _PARQUET_MAGIC)):
        from sim.workload.traces.packed import (  # noqa: PLC0415 - pyarrow is slow to import
            table_text,
            unpacked,
        )

        return unpacked(path) if start.startswith(_ZSTD_MAGIC) else table_text(path)
    return raw


def _check_pointer(path: Path, raw: io.BufferedReader) -> None:
    """TraceError for a pointer of Git LFS."""
    start = raw.peek(len(_POINTER))
    if not start.startswith(_POINTER):
        return
    size = next((line[5:] for line in start.decode("ascii", "replace").splitlines()
                 if line.startswith("size ")), "")  # fmt: skip
    told = f" of {int(size):,} bytes" if size.isdecimal() else ""
    raise TraceError(
        f"{path}: a pointer of Git LFS in the place of the file{told}; `git lfs pull` in its "
        "repository fetches that"
    )


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise TraceError(f"{path}: a directory; a trace is a file")
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise TraceError(f"{path}: no such file{did_you_mean(path.name, siblings)}")
    if not path.is_file():
        raise TraceError(f"{path}: not a regular file; a trace is read more than once")
