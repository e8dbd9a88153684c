"""Defines a measurement, and reads tables of them.

A CSV file with one line for each point, and a JSON file next to it (``FILE.meta.json``) that says
what was measured on. A file that was cut off in the middle of a line is read up to there
(``measurement_store`` writes it). Seconds, bytes, MHz; cells are empty where a variable does not
apply.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from calibrate.bench.base import Key
from calibrate.device import DeviceFacts
from sim.errors import UsageError, shorten
from sim.results.stored import NUMBER, TEXT, Shape, check, read_object
from sim.specs.precision import precision_bytes

Status = Literal["ok", "noisy", "out-of-memory", "unsupported", "failed"]
Purpose = Literal["", "again", "anchor"]
"""Why a point was measured: for the fit, once more to see the noise, or as an anchor of drift."""

EARLIER = (
    *("m", "n", "k", "batch", "tokens", "context", "skew", "q_heads", "kv_heads", "head_dim"),
    *("bytes", "gpus"),
)
"""Variables of a shape in tables that were written before there were the rest of ``SHAPE``."""

SHAPE = (
    *(*EARLIER, "window", "latent", "rope"),
    *("hidden", "width", "chosen", "experts", "matrices"),
)
"""Variables of a shape: those of experts, in the last line, are the names of
``sim.cost.kernels.moe``."""


def _columns(shape: tuple[str, ...]) -> tuple[str, ...]:
    return (
        *("operator", "precision", "kernel", *shape, "seconds", "low", "high", "repeats"),
        *("status", "message", "clock_mhz", "at", "purpose"),
    )


COLUMNS, EARLIER_COLUMNS = _columns(SHAPE), _columns(EARLIER)
PURPOSES = ("", "again", "anchor")
LARGEST = 1e18
"""No size, number of bytes, clock or time of a point comes near it."""

ABSENT = dict.fromkeys(COLUMNS, "")

STATUSES = ("ok", "noisy", "out-of-memory", "unsupported", "failed")
USABLE = ("ok", "noisy")
SEPARATOR = ": "
NOTED = 5
"""Lines left out that have a note each; of more only the number is noted."""

META: Mapping[str, Shape] = {
    "device": {
        **dict.fromkeys(("memory", "units", "cache"), NUMBER),
        **dict.fromkeys(("kind", "name"), TEXT),
        "details": {"*": TEXT},
    },
    "models": [TEXT],
    "precisions": [TEXT],
    "kernels": TEXT,
    "started": TEXT,
}
"""The parts of a meta file that are read back."""


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
        """The mark that tells it apart from others of the same operator."""
        return self.kernel.split(SEPARATOR, 1)[0] if SEPARATOR in self.kernel else ""

    @property
    def key(self) -> Key:
        """The key of the point measured."""
        shape = tuple(sorted((name, float(value)) for name, value in self.shape.items()))
        return (self.operator, self.precision, self.variant, shape)


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """The content of a file; ``notes`` say what of it could not be read."""

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


def read(path: Path) -> MeasurementTable:
    """All complete lines of a file, which may be compressed (``.gz``); a torn last line is left out
    with a note.

    UsageError if the file cannot be read or is no table of measurements.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(
            "utf-8-sig", "replace"
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}: is cut off or damaged ({error})") from None
    whole, torn = _complete(text)
    notes = [f"{path}: the last line was cut off and is left out"] if torn else []
    lines = csv.reader(io.StringIO(whole))
    if not whole:
        return MeasurementTable((), tuple(notes))
    try:
        header = tuple(next(lines))
    except csv.Error:
        header = ()
    if header not in (COLUMNS, EARLIER_COLUMNS):
        raise UsageError(
            f"{path}: not a table of measurements (first line is not the column names)"
        )
    rows, wrong = list[Measurement](), list[str]()
    while True:
        try:
            cells = next(lines)
            rows.append(_parsed(ABSENT | dict(zip(header, cells, strict=True))))
        except StopIteration:
            break
        except (ValueError, csv.Error) as error:
            wrong.append(f"{path}:{lines.line_num}: left out ({error})")
    further = len(wrong) - NOTED
    if further > 0:
        wrong[NOTED:] = [f"{path}: {further:,} further lines are left out"]
    return MeasurementTable(tuple(rows), (*notes, *wrong))


def as_now(text: str) -> str:
    """A table as it is written now, of one that was written by an earlier version: the same lines
    with empty cells for the variables that it lacks."""
    lines = list(csv.reader(io.StringIO(text)))
    if not lines or tuple(lines[0]) != EARLIER_COLUMNS:
        return text
    at, new = EARLIER_COLUMNS.index("seconds"), len(SHAPE) - len(EARLIER)
    whole = [line[:at] + [""] * new + line[at:] if len(line) > at else line for line in lines[1:]]
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([list(COLUMNS), *whole])
    return made.getvalue()


def _complete(text: str) -> tuple[str, bool]:
    """The text up to its last line end, and whether something came after it."""
    end = text.rfind("\n") + 1
    return text[:end], end < len(text)


def _parsed(cells: Mapping[str, str]) -> Measurement:
    """The measurement of a line; ValueError, in words, for whatever no timing can be."""
    for name, known in (("status", STATUSES), ("purpose", PURPOSES)):
        if cells[name] not in known:
            raise ValueError(f"unknown {name} {shorten(repr(cells[name]))}")
    precision_bytes(cells["precision"].removesuffix("-weights"))
    seconds = _number(cells, "seconds")
    if (cells["status"] in USABLE) != (seconds is not None and seconds > 0):
        raise ValueError(f"status {cells['status']} with seconds {cells['seconds']!r}")
    _check_time(cells["at"])
    sizes = {name: _number(cells, name) for name in SHAPE}
    return Measurement(
        operator=cells["operator"],
        precision=cells["precision"],
        kernel=cells["kernel"],
        shape={name: size for name, size in sizes.items() if size is not None},
        seconds=seconds,
        low=_number(cells, "low"),
        high=_number(cells, "high"),
        repeats=int(cells["repeats"] or 0),
        status=cells["status"],  # type: ignore[arg-type]
        message=cells["message"],
        clock_mhz=_number(cells, "clock_mhz"),
        at=cells["at"],
        purpose=cells["purpose"],  # type: ignore[arg-type]
    )


def _number(cells: Mapping[str, str], name: str) -> float | None:
    """The number in a cell, None in an empty one; ValueError for one that measures nothing."""
    if not cells[name]:
        return None
    value = float(cells[name])
    if not 0 <= value <= LARGEST:
        raise ValueError(f"{name} is {cells[name]}; expected a number from 0 to {LARGEST:g}")
    return value


def _check_time(at: str) -> None:
    """Raise ValueError unless ``at`` is empty or a time that has a place on the clock."""
    try:
        if at:
            datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"at is {shorten(repr(at))}; expected a time as in ISO 8601") from None


def meta_path(path: Path) -> Path:
    """The file that describes a table."""
    return path.with_name(path.name + ".meta.json")


def read_meta(path: Path) -> dict[str, Any]:
    """The meta file of the table at ``path``; UsageError if it is missing or broken."""
    meta = meta_path(path)
    document = read_object(meta)
    if not isinstance(document.get("device"), dict):
        raise UsageError(f"{meta}: does not say on which device was measured")
    check(str(meta), document, META)
    return document


def facts_of(path: Path) -> DeviceFacts:
    """The device that the table at ``path`` was measured on."""
    device = read_meta(path)["device"]
    try:
        facts = DeviceFacts.from_document(device)
    except ValueError as error:
        raise UsageError(f"{meta_path(path)}: {error}") from None
    unknown = [name for name, value in device.items() if value is None]
    if unknown or facts.kind not in ("cpu", "cuda") or facts.units < 1:
        raise UsageError(
            f"{meta_path(path)}: device: expected kind cpu or cuda, a name, and numbers of memory, "
            "cache and units, of which there is at least one"
        )
    return facts
