"""Stores the outcomes of a long series of points in a directory, one line for each.

``question.json`` says what is asked, ``points.jsonl`` has the outcomes in the order in which they
came. A line is on the disk before the next one is begun, so that a process that is killed loses
the point it was at and none that had finished; a line that was cut off is dropped on resuming.
``result.json`` comes last, sorted, and is the same however the outcomes came about. Every file is
checked before anything is simulated or written; what is damaged is named and left unchanged.

``digests`` fingerprints the files that a question names, since with an edited trace it is another
question: by absolute path, contents by SHA-256.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, Self

from sim.errors import InfersimError, UsageError, shorten
from sim.metrics.repetitions import headlines
from sim.planning.points.points import Outcome, Point
from sim.plugins import located
from sim.results.run_directory import MANIFEST, RunDirectory, new_manifest, write_json
from sim.results.stored import check_finite, check_summary, read_object
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
    def resume(cls, path: Path, grid: Sequence[Point], scenario: Scenario) -> Self:
        """The directory of a series over ``grid`` that was cut short, or is complete.

        A manifest that is gone is written anew. UsageError if the directory holds another series,
        if a file in it is damaged, or if another process is writing to it.
        """
        file = _opened(path)
        try:
            _check_manifest(path, scenario)
            return cls(path, file, _outcomes(path, file, grid))
        except BaseException:
            file.close()
            raise

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
            manifest = read_object(self.path / MANIFEST)
            kept = {key: value for key, value in manifest.items() if key != "pid"}
            write_json(self.path / MANIFEST, kept | {"status": "complete"})
        except OSError as error:
            raise InfersimError(
                f"cannot write to {self.path} ({error.strerror}); all points are there"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # of a write that failed and was reported
            self._file.close()


def question_of(path: Path) -> dict[str, Any]:
    """The question of the series in a directory; UsageError if there is none."""
    if not (path / QUESTION).is_file():
        raise UsageError(f"{path}: holds no sweep to resume ({QUESTION} is not there)")
    return read_object(path / QUESTION)


def _check_manifest(path: Path, scenario: Scenario) -> None:
    """Write the manifest if it is gone; UsageError if it is damaged."""
    manifest = path / MANIFEST
    if not manifest.exists():
        try:
            write_json(manifest, new_manifest(scenario) | {"status": "incomplete"})
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}") from None
        return
    try:
        read_object(manifest)
    except UsageError as error:
        raise UsageError(
            f"{error}; remove {MANIFEST} and resume: it is written anew, and all points are kept"
        ) from None


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
    """The outcomes in the file; what was cut off at its end is cut off for good, once all that
    stands before it is known to be of this series."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    found: dict[int, Outcome] = {}
    for number, line in enumerate(content[:whole].split(b"\n")[:-1], 1):
        outcome = _outcome(f"{path / POINTS}:{number}", line, grid)
        found[outcome.point.index] = outcome
    torn = content[whole:]
    if torn:
        begins = _BEGINS[: len(torn)]
        if not torn.startswith(begins):
            number = content.count(b"\n") + 1
            raise UsageError(f"{path / POINTS}:{number}: {_NOT_A_POINT}; {_REMEDY}")
        file.truncate(whole)
    return list(found.values())


_BEGINS = b'{"index": '
"""How every line begins, one that was cut off too."""

_NOT_A_POINT = "is not a point of this sweep"
_REMEDY = "remove the line and resume: the point is simulated again"


def _outcome(where: str, line: bytes, grid: Sequence[Point]) -> Outcome:
    """The outcome in a line; UsageError, beginning with ``where``, if it is none of this series."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
        check_finite(where, row)
        index = row["index"]
        if type(index) is not int or not 0 <= index < len(grid):
            raise ValueError("the index is not one of this sweep")
        point = grid[index]
        if row["settings"] != point.settings:
            raise ValueError("its settings are not those of this sweep")
        outcome = Outcome(point, row["summary"], row["error"], row["exit_code"])
        if type(outcome.exit_code) is not int or not isinstance(outcome.error, str | None):
            raise TypeError("expected a number as exit_code and a text as error")
        if outcome.summary is not None:
            check_summary(f"{where}: summary", outcome.summary)
            headlines(outcome.summary)
    except UsageError as error:
        raise UsageError(f"{error}; {_REMEDY}") from None
    except KeyError as error:
        raise UsageError(f"{where}: {_NOT_A_POINT} (has no entry {error}); {_REMEDY}") from None
    except (ValueError, TypeError, RecursionError) as error:
        told = shorten(" ".join(str(error).split()))
        raise UsageError(f"{where}: {_NOT_A_POINT} ({told}); {_REMEDY}") from None
    return outcome


def digests(data: object, folders: Sequence[Path]) -> dict[str, str]:
    """Path -> digest of every file that some text in plain ``data`` leads to.

    Relative paths start at the first of ``folders``; parts of one's own are looked for in all.
    UsageError for a file that cannot be read.
    """
    texts = {text for text in _texts(data) if text and "\0" not in text}
    paths = {Path(folders[0].absolute(), text) for text in texts}
    paths |= {file for text in texts if (file := located(text, folders)) is not None}
    return {str(path): _digest(path) for path in sorted(paths) if _is_file(path)}


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _texts(value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long text is no path
        return False


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
