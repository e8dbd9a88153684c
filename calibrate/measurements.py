"""What is a measurement, and how is a table of them read?

A CSV file with one line for each point, and a JSON file beside it (``FILE.meta.json``) that says
what was measured on. A file that was cut off in the middle of a line is read up to there
(``measurement_store`` writes it). Seconds, bytes, MHz; cells are empty where a variable does not
apply.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
