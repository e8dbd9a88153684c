"""Reads what a calibration measured: its table of timings as columns, and its own description.

Seconds and the variables of shapes; NaN where a variable does not apply. Read from the files alone,
so that a profile can be examined where nothing can be measured.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from calibrate.bench.routing import COUNTS, whole_shape
from calibrate.measurements import EARLIER, SEPARATOR, SHAPE
from sim.cost.kernels.form import Floats
from sim.errors import UsageError

VARIABLES = SHAPE
NEEDED = ("operator", "precision", "kernel", *EARLIER, "seconds", "low", "high", "status")
USABLE = ("ok", "noisy")

WARM = "warm_cache"
"""Column of published timings whose buffers were not rotated."""

ABSENT_CELLS = dict.fromkeys(VARIABLES, "")
ABSENT = {"skew": 1.0, "context": 0.0}
"""The value of a variable that a measurement does not name."""

MOST_ROWS = 200_000
"""A table is cut there: a page of more could not be opened."""


@dataclass(frozen=True, slots=True)
class Points:
    """Usable timings of one operator in one precision.

    ``kernel`` and ``noisy`` are by point, ``low`` and ``high`` the quartiles (NaN if unknown);
    ``warm`` bytes of the last-level cache kept what they read from one repetition to the next.
    """

    shape: Mapping[str, Floats]
    seconds: Floats
    low: Floats
    high: Floats
    kernel: Sequence[str]
    noisy: Sequence[bool]
    warm: float = 0.0

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: NDArray[np.bool_], variables: Iterable[str]) -> Points:
        """The chosen points, of whose shape only these variables are kept."""
        return Points(
            {name: self.shape[name][chosen] for name in variables},
            self.seconds[chosen],
            self.low[chosen],
            self.high[chosen],
            [name for name, wanted in zip(self.kernel, chosen, strict=True) if wanted],
            [noisy for noisy, wanted in zip(self.noisy, chosen, strict=True) if wanted],
            self.warm,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """A table: points by operator and precision, how many rows had which status, what the file next
    to it says of ``noise`` (median relative difference of a second look) and ``layers`` (name,
    shape, measured over the sum of its parts less 1).
    """

    path: Path
    points: Mapping[tuple[str, str], Points]
    statuses: Mapping[str, int]
    noise: Mapping[str, float]
    layers: Sequence[tuple[str, str, float]]
    notes: Sequence[str]


def read(path: Path) -> Measured:
    """The table at ``path``; UsageError where it cannot be read or lacks columns.

    Lines that make no sense are left out and counted in a note; so are second looks and anchors,
    which are for the noise.
    """
    rows, broken = _rows(path)
    statuses = Counter(row["status"] for row in rows)
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["status"] in USABLE:
            groups.setdefault((row["operator"], row["precision"]), []).append(row)
    meta = _meta(path)
    notes = [f"{broken:,} lines of {path.name} could not be read and are left out"]
    return Measured(
        path,
        {key: _points(found) for key, found in sorted(groups.items())},
        dict(statuses.most_common()),
        _noise(meta),
        _layers(meta),
        notes if broken else [],
    )


def _rows(path: Path) -> tuple[list[dict[str, str]], int]:
    """The rows that count, and the number of those that cannot be read."""
    rows: list[dict[str, str]] = []
    broken = 0
    try:
        with _opened(path) as file:
            table = csv.DictReader(file)
            missing = sorted(set(NEEDED) - set(table.fieldnames or ()))
            if missing:
                raise UsageError(
                    f"{path}: not a table of measurements (it lacks {', '.join(missing)})"
                )
            for row in table:
                if None in row or None in row.values() or not _sensible(row):
                    broken += 1
                elif not row.get("purpose") and len(rows) < MOST_ROWS:
                    rows.append(ABSENT_CELLS | row)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except csv.Error as error:
        raise UsageError(f"{path}: not a table of measurements ({error})") from None
    return rows, broken


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
    return path.open(encoding="utf-8", errors="replace", newline="")


def _sensible(row: Mapping[str, str]) -> bool:
    if row["status"] not in USABLE:
        return bool(row["status"])
    numbers = [_number(row[name]) for name in ("seconds", *VARIABLES) if row.get(name)]
    return bool(row["seconds"]) and all(isfinite(n) and n >= 0 for n in numbers) and numbers[0] > 0


def _number(text: str) -> float:
    try:
        return float(text) if text else nan
    except ValueError:
        return nan


def _points(rows: Sequence[Mapping[str, str]]) -> Points:
    def column(name: str) -> Floats:
        return np.array([_number(row[name]) for row in rows])

    shape = {name: column(name) for name in VARIABLES}
    if rows[0]["operator"] == "moe":
        shape |= _drawn(shape, [row["kernel"] for row in rows])
    given = {
        name: np.where(np.isnan(values), ABSENT.get(name, nan), values)
        for name, values in shape.items()
    }
    return Points(
        given,
        column("seconds"),
        column("low"),
        column("high"),
        [row["kernel"] for row in rows],
        [row["status"] == "noisy" for row in rows],
        float(np.nan_to_num(_number(rows[0].get(WARM, "")))),
    )


def _drawn(shape: Mapping[str, Floats], kernels: Sequence[str]) -> dict[str, Floats]:
    """The experts' shares at each point, from its law."""
    found = []
    for at, kernel in enumerate(kernels):
        law = kernel.partition(SEPARATOR)[0]
        own = {name: float(v[at]) for name, v in shape.items() if isfinite(v[at])}
        found.append(whole_shape("moe", own, law))
    names = ("ranks", *COUNTS)
    return {name: np.array([each.get(name, nan) for each in found]) for name in names}


def _meta(path: Path) -> Mapping[str, object]:
    """The content of the file next to the table; empty if none can be read."""
    try:
        document = json.loads(path.with_name(path.name + ".meta.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _noise(meta: Mapping[str, object]) -> dict[str, float]:
    found = meta.get("noise")
    entries = found.items() if isinstance(found, dict) else ()
    return {
        str(operator): float(values[0])
        for operator, values in entries
        if isinstance(values, list) and values and isinstance(values[0], int | float)
    }


def _layers(meta: Mapping[str, object]) -> list[tuple[str, str, float]]:
    found = meta.get("layers")
    return [
        (str(entry[1]), str(entry[2]), float(entry[3]))
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, list) and len(entry) == 4 and isinstance(entry[3], int | float)
    ]
