"""Recognises the container of a file and its column names from its first line.

Three containers: CSV with a header, JSON lines (an object per request), and one JSON document (an
object whose lists are the columns, as benchmark tools save their results).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from sim.errors import TraceError
from sim.workload.traces.rows import Block, csv_header, json_reason, listed, shown
from sim.workload.traces.text import MAX_LINE, first_line, opening, too_long, whole

_CONVERSATIONS = re.compile(r'"conversations"\s*:')


class Head(NamedTuple):
    """The facts from the start of a file: how it is written, and its columns."""

    container: Literal["csv", "jsonl", "json"]
    names: tuple[str, ...]
    lists: frozenset[str] = frozenset()
    """The names under which the first object has a list: in a document, the columns."""


def head(path: Path) -> Head:
    """How ``path`` is written; TraceError if that is none of the three containers.

    JSON is a document where its first line alone is no object. So a document in a single line
    counts as JSON lines, of which it has one.
    """
    number, line = first_line(path)
    start = line.lstrip()[0]
    if start == "[":
        raise _array(path, number)
    if start == "{":
        row = _parsed(line)
        return _json_head("json", document(path)) if row is None else _json_head("jsonl", row)
    if len(line) > MAX_LINE:
        raise too_long(path, number)
    return Head("csv", tuple(csv_header(path, line)))


def document(path: Path) -> dict[str, object]:
    """The one JSON object in ``path``; TraceError if the file is anything else."""
    text = whole(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_document(path, error) from None
    if not isinstance(found, dict):
        raise TraceError(f"{path}: not a JSON object: {shown(text.strip()[:99])}")
    return found


def document_block(path: Path, found: dict[str, object], wanted: Sequence[str]) -> Block:
    """The lists called ``wanted`` of the document ``found``, as the columns of one block.

    TraceError for one that is missing, no list, or not as long as the first of them.
    """
    columns: dict[str, Sequence[object]] = {}
    for name in wanted:
        if name not in found:
            raise TraceError(f"{path}: no {name!r} in this document; it has {listed(found)}")
        column = found[name]
        if not isinstance(column, list):
            raise TraceError(f"{path}: {name} is {shown(column)}; allowed: a list")
        columns[name] = column
    first = columns[wanted[0]]
    for name, column in columns.items():
        if len(column) != len(first):
            raise TraceError(
                f"{path}: {name} has {len(column):,} entries, but {wanted[0]} has {len(first):,}"
            )
    if not first:
        raise TraceError(f"{path}: {wanted[0]} is an empty list: no requests")
    return Block(path, list(range(len(first))), columns, "entry")


def _json_head(container: Literal["jsonl", "json"], found: dict[str, object]) -> Head:
    lists = frozenset(name for name, value in found.items() if isinstance(value, list))
    return Head(container, tuple(found), lists)


def _parsed(line: str) -> dict[str, object] | None:
    """The object in a line that starts with a brace; None where it does not end there too."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _array(path: Path, number: int) -> TraceError:
    if not _CONVERSATIONS.search(opening(path)):
        return TraceError(f"{path}:{number}: a JSON array; a trace has one JSON object per line")
    return TraceError(
        f"{path}: ShareGPT conversations are texts: how many tokens they have depends on the model,"
        " and when they were sent is not recorded. Count the tokens of prompts and answers with the"
        " model's tokenizer, write a CSV file with columns num_prefill_tokens and"
        " num_decode_tokens, and ask for its lengths with"
        " `lengths: {kind: joint, path: lengths.csv}`"
    )


def _no_document(path: Path, error: Exception) -> TraceError:
    """Neither JSON lines nor a document: the first line says which of them was meant."""
    number, line = first_line(path)
    if isinstance(error, json.JSONDecodeError):
        if error.msg == "Extra data" and len(line) <= MAX_LINE:
            return TraceError(
                f"{path}:{error.lineno}: a second JSON document; put each into a file of its own"
            )
        if line.strip() == "{":
            return TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}")
    if len(line) > MAX_LINE:
        return too_long(path, number)
    return TraceError(f"{path}:{number}: not JSON: {shown(line.strip())} ({json_reason(error)})")
