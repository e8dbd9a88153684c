"""Reads Azure's LLM inference traces (2023 and 2024).

CSV: TIMESTAMP is a date and time with up to nine fractional digits (2023 has seven) and, in 2024,
a UTC offset; ContextTokens is the prompt and GeneratedTokens the output, in tokens. Without an
offset UTC is meant; only differences matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import Block, csv_blocks

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP = re.compile(
    r"((?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|([+-])(\d\d):([0-5]\d))?",
    re.ASCII,
)
_PLAIN = re.compile(
    r"(?:(?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:\n|\Z))+", re.ASCII
)
_ALLOWED = "dates like 2023-11-16 18:15:46.6805900, with or without an offset like +00:00"


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    stamps, prompts, outputs = [], [], []
    for block in csv_blocks(path, _COLUMNS):
        stamps.append(_nanoseconds(block))
        prompts.append(block.tokens("ContextTokens"))
        outputs.append(block.tokens("GeneratedTokens"))
    ticks = np.concatenate(stamps)
    # Whole nanoseconds until the first is taken off: a float of the date would lose microseconds.
    seconds = (ticks - ticks.min()) / 1e9
    return Trace(seconds, np.concatenate(prompts), np.concatenate(outputs))


def _nanoseconds(block: Block) -> NDArray[np.int64]:
    """The block's timestamps as nanoseconds since 1970, UTC."""
    texts = block.columns["TIMESTAMP"]
    stamps = [text for text in texts if type(text) is str]
    if len(stamps) == len(texts) and _PLAIN.fullmatch("\n".join(stamps)):
        return _local(block, stamps)
    # one by one: they have offsets, or one is wrong
    found = [_STAMP.fullmatch(str(text)) for text in texts]
    if None in found:
        block.fail(found.index(None), "TIMESTAMP", _ALLOWED)
    matches = [match for match in found if match is not None]
    ticks = _local(block, [match[1] for match in matches])
    if any(match[2] for match in matches):
        minutes = [int(f"{m[2]}1") * (int(m[3]) * 60 + int(m[4])) if m[2] else 0 for m in matches]
        ticks -= np.array(minutes, dtype=np.int64) * 60_000_000_000
    return ticks


def _local(block: Block, texts: Sequence[str]) -> NDArray[np.int64]:
    """Nanoseconds since 1970 of well-formed dates, each by its own clock."""
    try:
        return np.array(texts, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:  # well-formed, but no such day or hour
        for row, text in enumerate(texts):
            try:
                np.datetime64(text, "ns")
            except ValueError:
                block.fail(row, "TIMESTAMP", _ALLOWED)
        raise


FORMAT = TraceFormat(
    name="azure",
    layout="CSV with columns TIMESTAMP (date and time), ContextTokens, GeneratedTokens",
    recognises=_recognises,
    read=_read,
)
