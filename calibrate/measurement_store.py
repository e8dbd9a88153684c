"""Writes each measurement to disk at once, so that an interruption loses nothing.

One line is appended to the table for each point as it comes, and the JSON file next to it says what
was measured on. A calibration that was interrupted continues after the lines that are there.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from calibrate.device import DeviceFacts
from calibrate.measurements import (
    COLUMNS,
    SHAPE,
    Measurement,
    MeasurementTable,
    as_now,
    facts_of,
    meta_path,
    read,
    read_meta,
)
from sim.errors import UsageError
from sim.results.whole_file import write_text

SYNC_EVERY = 2.0
"""Seconds between forced writes to disk: a line is with the system at once, which outlives this
process."""


class MeasurementStore:
    """The open end of a table: lines are added as they come.

    ``resume`` continues after what is there (a torn last line is cut away); without it the file
    must not exist yet. ``context`` is what the meta file says in addition to the device. UsageError
    where the file cannot be used, or was measured on another device.
    """

    def __init__(
        self, path: Path, facts: DeviceFacts, context: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        self.path, self._meta = path, meta_path(path)
        self.earlier, self.added = MeasurementTable(()), list[Measurement]()
        there = path.exists() and path.stat().st_size > 0
        if there and not resume:
            raise UsageError(
                f"{path} exists: --resume continues it, --measurements names another file"
            )
        if there:
            self.earlier = read(path)
            _same_device(self._meta, facts)
        self._document: dict[str, Any] = {
            "version": 1,
            "device": facts.document(),
            **context,
            "started": _earlier_start(self._meta) if there else now(),
        }
        try:
            self.note(ended="")
            self._file = _opened(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._synced = time.monotonic()
        if path.stat().st_size == 0:
            self._writer.writerow(COLUMNS)
            self._file.flush()

    def add(self, row: Measurement) -> None:
        """Append one line; it is with the system when this returns, on disk soon after."""
        cells = {name: _shown(row.shape.get(name)) for name in SHAPE}
        self._writer.writerow(
            [
                *(row.operator, row.precision, row.kernel, *cells.values()),
                *(_shown(value) for value in (row.seconds, row.low, row.high)),
                *(row.repeats, row.status, " ".join(row.message.split()), _shown(row.clock_mhz)),
                *(row.at or now(), row.purpose),
            ]
        )
        self._file.flush()
        self.added.append(row)
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._sync()

    @property
    def table(self) -> MeasurementTable:
        """Everything in the file."""
        return MeasurementTable((*self.earlier.rows, *self.added), self.earlier.notes)

    def note(self, **entries: Any) -> None:
        """Add entries to the meta file, which is replaced as a whole."""
        self._document |= entries
        write_text(self._meta, json.dumps(self._document, indent=2) + "\n")

    def close(self) -> None:
        """Write everything to disk."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def __enter__(self) -> MeasurementStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def _opened(path: Path) -> IO[str]:
    """The file at its end, a torn last line cut away, with the columns of today."""
    if path.exists():
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(path, end)
        text = content[:end].decode("utf-8-sig", errors="replace")
        if (now_written := as_now(text)) != text:
            write_text(path, now_written)
    return path.open("a", encoding="utf-8", newline="")


def _same_device(meta: Path, facts: DeviceFacts) -> None:
    """Measurements of two devices must not meet in one table."""
    before = facts_of(meta.with_name(meta.name.removesuffix(".meta.json")))
    if (before.name, before.units) != (facts.name, facts.units):
        raise UsageError(
            f"{meta}: measured on {before.name} ({before.units} units), "
            f"this is {facts.name} ({facts.units} units)"
        )


def _earlier_start(meta: Path) -> str:
    return str(read_meta(meta.with_name(meta.name.removesuffix(".meta.json"))).get("started", ""))


def now() -> str:
    """The time, as ISO 8601 with seconds in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown(value: float | None) -> str:
    """A number as short as it can be without losing anything that matters.

    >>> _shown(4096.0), _shown(1.5e-6), _shown(None)
    ('4096', '1.5e-06', '')
    """
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.9g}"
