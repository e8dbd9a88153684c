"""Where do measurements go, so that nothing measured is ever lost?

A CSV file to which one line is appended for each point as it comes, and a JSON file beside it
(``FILE.meta.json``) that says what was measured on. A file that was cut off in the middle of a line
is read up to there. Seconds, bytes, MHz; cells are empty where a variable does not apply.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from calibrate.bench.base import Key
from calibrate.device import DeviceFacts
from sim.errors import UsageError

Status = Literal["ok", "noisy", "out-of-memory", "unsupported", "failed"]
Purpose = Literal["", "again", "anchor"]
"""Why a point was measured: for the fit, once more to see the noise, or as an anchor of drift."""

SHAPE = (
    *("m", "n", "k", "batch", "tokens", "context", "skew", "q_heads", "kv_heads", "head_dim"),
    *("bytes", "gpus"),
)
COLUMNS = (
    *("operator", "precision", "kernel", *SHAPE, "seconds", "low", "high", "repeats"),
    *("status", "message", "clock_mhz", "at", "purpose"),
)
STATUSES = ("ok", "noisy", "out-of-memory", "unsupported", "failed")
USABLE = ("ok", "noisy")

SYNC_EVERY = 2.0
"""Seconds between forced writes to disk: a line is at once with the system, which outlives us."""

SEPARATOR = ": "


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line: a point and what came of it.

    ``kernel`` is the implementation, preceded by the variant where an operator has several (``norm:
    torch``). ``seconds``, ``low`` and ``high`` are median and quartiles, None without a timing.
    """

    operator: str
    precision: str
    kernel: str
    shape: Mapping[str, float]
    seconds: float | None
    low: float | None
    high: float | None
    repeats: int
    status: Status
    message: str = ""
    clock_mhz: float | None = None
    at: str = ""
    purpose: Purpose = ""

    @property
    def variant(self) -> str:
        """What tells it apart from others of the same operator."""
        return self.kernel.split(SEPARATOR, 1)[0] if SEPARATOR in self.kernel else ""

    @property
    def key(self) -> Key:
        """The same as that of the point measured."""
        shape = tuple(sorted((name, float(value)) for name, value in self.shape.items()))
        return (self.operator, self.precision, self.variant, shape)


@dataclass(frozen=True, slots=True)
class Table:
    """What a file holds; ``notes`` say what of it could not be read."""

    rows: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    def usable(self) -> list[Measurement]:
        """Timings for the fit: no failures, no anchors, no second passes."""
        return [row for row in self.rows if row.status in USABLE and not row.purpose]

    def of(self, purpose: Purpose) -> list[Measurement]:
        """Timings made for a purpose."""
        return [row for row in self.rows if row.status in USABLE and row.purpose == purpose]


def kernel_name(variant: str, kernel: str) -> str:
    """How variant and implementation are written in one cell.

    >>> kernel_name("norm", "torch"), kernel_name("", "torch.mm")
    ('norm: torch', 'torch.mm')
    """
    return f"{variant}{SEPARATOR}{kernel}" if variant else kernel


def read(path: Path) -> Table:
    """All complete lines of a file; a torn last line is left out with a note.

    UsageError if the file cannot be read or is no table of measurements.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    whole, torn = _complete(text)
    notes = [f"{path}: the last line was cut off and is left out"] if torn else []
    lines = csv.reader(io.StringIO(whole))
    header = next(lines, None)
    if header is None:
        return Table((), tuple(notes))
    if tuple(header) != COLUMNS:
        raise UsageError(
            f"{path}: not a table of measurements (first line is not the column names)"
        )
    rows = []
    for number, cells in enumerate(lines, start=2):
        try:
            rows.append(_parsed(dict(zip(COLUMNS, cells, strict=True))))
        except ValueError as error:
            notes.append(f"{path}:{number}: left out ({error})")
    return Table(tuple(rows), tuple(notes))


def _complete(text: str) -> tuple[str, bool]:
    """The text up to its last line end, and whether something came after it."""
    end = text.rfind("\n") + 1
    return text[:end], end < len(text)


def _parsed(cells: Mapping[str, str]) -> Measurement:
    if cells["status"] not in STATUSES:
        raise ValueError(f"unknown status {cells['status']!r}")
    seconds = _float(cells["seconds"])
    if (cells["status"] in USABLE) != (seconds is not None and seconds > 0):
        raise ValueError(f"status {cells['status']} with seconds {cells['seconds']!r}")
    return Measurement(
        operator=cells["operator"],
        precision=cells["precision"],
        kernel=cells["kernel"],
        shape={name: float(cells[name]) for name in SHAPE if cells[name]},
        seconds=seconds,
        low=_float(cells["low"]),
        high=_float(cells["high"]),
        repeats=int(cells["repeats"] or 0),
        status=cells["status"],  # type: ignore[arg-type]
        message=cells["message"],
        clock_mhz=_float(cells["clock_mhz"]),
        at=cells["at"],
        purpose=cells["purpose"],  # type: ignore[arg-type]
    )


def _float(text: str) -> float | None:
    return float(text) if text else None


class Store:
    """The open end of a table: lines are added as they come.

    ``resume`` goes on behind what is there (a torn last line is cut away); without it the file must
    not exist yet. ``context`` is what the meta file says beside the device. UsageError where the
    file cannot be used, or was measured on another device.
    """

    def __init__(
        self, path: Path, facts: DeviceFacts, context: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        self.path, self._meta = path, meta_path(path)
        self.earlier, self.added = Table(()), list[Measurement]()
        there = path.exists() and path.stat().st_size > 0
        if there and not resume:
            raise UsageError(
                f"{path} exists: --resume goes on behind it, --measurements names another file"
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
    def table(self) -> Table:
        """Everything in the file."""
        return Table((*self.earlier.rows, *self.added), self.earlier.notes)

    def note(self, **entries: Any) -> None:
        """Add entries to the meta file, which is replaced as a whole."""
        self._document |= entries
        part = self._meta.with_name(self._meta.name + ".part")
        part.write_text(json.dumps(self._document, indent=2) + "\n", encoding="utf-8")
        part.replace(self._meta)

    def close(self) -> None:
        """Write everything to disk."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def _opened(path: Path) -> IO[str]:
    """The file at its end, a torn last line cut away."""
    if path.exists():
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(path, end)
    return path.open("a", encoding="utf-8", newline="")


def meta_path(path: Path) -> Path:
    """The file that describes a table."""
    return path.with_name(path.name + ".meta.json")


def read_meta(path: Path) -> dict[str, Any]:
    """What the meta file of the table at ``path`` says; UsageError if it is not there or broken."""
    meta = meta_path(path)
    try:
        document = json.loads(meta.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{meta}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise UsageError(f"{meta}: not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("device"), dict):
        raise UsageError(f"{meta}: does not say on which device was measured")
    return document


def facts_of(path: Path) -> DeviceFacts:
    """The device that the table at ``path`` was measured on."""
    try:
        return DeviceFacts.from_document(read_meta(path)["device"])
    except ValueError as error:
        raise UsageError(f"{meta_path(path)}: {error}") from None


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
