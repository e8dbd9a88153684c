"""Where does a long series of points keep what it has? In a directory, one line for each outcome.

``question.json`` says what is asked, ``points.jsonl`` has the outcomes in the order in which they
came. A line is on the disk before the next one is begun, so that a process that is killed loses
the point it was at and none that had finished; a line that was cut off is dropped on resuming.
``result.json`` comes last, sorted, and is the same however the outcomes came about.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from sim.errors import InfersimError, UsageError
from sim.planning.points import Outcome, Point
from sim.run_directory import MANIFEST, RunDirectory, write_json
from sim.scenario import Scenario

QUESTION, POINTS, RESULT = "question.json", "points.jsonl", "result.json"


class Store:
    """The directory of one series; a context that lets go of its file in the end.

    One process at a time writes to it: a second one is refused.
    """

    def __init__(self, path: Path, file: BinaryIO, known: list[Outcome]) -> None:
        self.path = path
        self.known = known
        """The outcomes that were there when the store was opened."""
        self._file = file

    @classmethod
    def create(cls, path: Path, scenario: Scenario, question: Mapping[str, Any]) -> Self:
        """A new directory for ``question``; UsageError where none can be made."""
        RunDirectory.create(path, scenario)
        try:
            write_json(path / QUESTION, dict(question))
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}") from None
        return cls(path, _opened(path), [])

    @classmethod
    def resume(cls, path: Path, grid: Sequence[Point]) -> Self:
        """The directory of a series over ``grid`` that was cut short, or is complete.

        UsageError if it holds another series, or another process is writing to it.
        """
        file = _opened(path)
        return cls(path, file, _outcomes(path, file, grid))

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome; it is on the disk when this returns."""
        line = json.dumps(to_row(outcome), allow_nan=False, ensure_ascii=False) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InfersimError(
                f"cannot write to {self.path} ({error.strerror}); the points before this one are "
                "there"
            ) from None

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write the result; the manifest says ``complete`` last of all.

        InfersimError where it cannot be written: all points are there by then.
        """
        try:
            write_json(self.path / RESULT, dict(document))
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
            kept = {key: value for key, value in manifest.items() if key != "pid"}
            write_json(self.path / MANIFEST, kept | {"status": "complete"})
        except OSError as error:
            raise InfersimError(
                f"cannot write to {self.path} ({error.strerror}); all points are there"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # of what could not be written, and was told
            self._file.close()


def question_of(path: Path) -> dict[str, Any]:
    """What the series in a directory asks; UsageError if there is none."""
    try:
        found = json.loads((path / QUESTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{path}: holds no sweep to resume ({QUESTION} is not there)") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path / QUESTION}: is not what a sweep writes")
    return found


def to_row(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "index": outcome.point.index,
        "settings": dict(outcome.point.settings),
        "exit_code": outcome.exit_code,
        "error": outcome.error,
        "summary": outcome.summary,
    }


def _opened(path: Path) -> BinaryIO:
    """The file of outcomes, opened at its end for this process alone."""
    try:
        file = (path / POINTS).open("a+b")
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(f"{path}: another process is writing to it") from None
    return file


def _outcomes(path: Path, file: BinaryIO, grid: Sequence[Point]) -> list[Outcome]:
    """The outcomes in the file; what was cut off at its end is cut off for good."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    file.truncate(whole)
    found: dict[int, Outcome] = {}
    for number, line in enumerate(content[:whole].splitlines(), 1):
        try:
            row = json.loads(line)
            point = grid[row["index"]]
            if row["settings"] != point.settings:
                raise ValueError
            outcome = Outcome(point, row["summary"], row["error"], row["exit_code"])
        except (ValueError, KeyError, IndexError, TypeError):
            file.close()
            raise UsageError(f"{path / POINTS}:{number}: is not a point of this sweep") from None
        found[point.index] = outcome
    return list(found.values())
