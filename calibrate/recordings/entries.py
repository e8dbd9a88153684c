"""Reads a file with one JSON object or several, one after the other, and takes one of them.

``vllm bench serve --append-result`` writes an object a line; files joined by hand may have each
over several lines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sim.errors import TraceError, UsageError
from sim.workload.traces.rows import json_reason, shown
from sim.workload.traces.text import whole


class RecordingEntry(NamedTuple):
    """One of ``total`` objects, the ``number``-th from 1."""

    found: dict[str, object]
    number: int
    total: int


def entry(path: Path, number: int | None) -> RecordingEntry:
    """The object of that number in ``path``, the last one if None.

    TraceError for a file that holds anything but JSON objects, UsageError for a number that it has
    not.
    """
    return chosen(path, _objects(path), number, "result")


def chosen(
    path: Path, found: list[dict[str, object]], number: int | None, what: str
) -> RecordingEntry:
    """The object of that number in ``found``, the last one if None; ``what`` names an object."""
    number = len(found) if number is None else number
    if not 1 <= number <= len(found):
        raise UsageError(
            f"--entry {number}: {path} has {len(found):,} {what}{'s' if len(found) > 1 else ''}; "
            f"allowed: 1 to {len(found)}"
        )
    return RecordingEntry(found[number - 1], number, len(found))


def note(taken: RecordingEntry, what: str) -> list[str]:
    """The note where one of several was taken."""
    if taken.total == 1:
        return []
    return [
        f"The file has {taken.total:,} {what}s; this is number {taken.number} (--entry N takes "
        "another)."
    ]


def _objects(path: Path) -> list[dict[str, object]]:
    text = whole(path)
    decoder, at, found = json.JSONDecoder(), 0, []
    while (at := _next(text, at)) < len(text):
        try:
            each, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, at) + 1
            reason = json_reason(error)
            start = text[at : at + 99].splitlines()[0]
            raise TraceError(f"{path}:{line}: not JSON: {shown(start)} ({reason})") from None
        if not isinstance(each, dict):
            raise TraceError(f"{path}: not a JSON object: {shown(text[at : at + 99].strip())}")
        found.append(each)
        at = end
    if not found:
        raise TraceError(f"{path}: the file is empty")
    return found


def _next(text: str, at: int) -> int:
    """Where the next object begins; commas and brackets of a list are not allowed for."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at
