"""Reads columns of dates and times of day in traces.

A date has up to nine fractional digits and perhaps a UTC offset. Without an offset UTC is meant;
only differences matter. Whole nanoseconds since 1970: a float of the date would lose microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.rows import Block

_STAMP = re.compile(
    r"((?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|([+-])(\d\d):([0-5]\d))?",
    re.ASCII,
)
_PLAIN = re.compile(
    r"(?:(?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:\n|\Z))+", re.ASCII
)
DATES = "dates like 2023-11-16 18:15:46.6805900, with or without an offset like +00:00"
"""The values allowed in a column of dates."""


def nanoseconds(block: Block, name: str, allowed: str = DATES) -> NDArray[np.int64]:
    """Column ``name`` of dates as nanoseconds since 1970, UTC; TraceError, which says what is
    ``allowed``, for a value that is none."""
    texts = block.columns[name]
    stamps = [text for text in texts if type(text) is str]
    if len(stamps) == len(texts) and _PLAIN.fullmatch("\n".join(stamps)):
        return _local(block, stamps, name, allowed)
    # one by one: they have offsets, or one is wrong
    found = [_STAMP.fullmatch(str(text)) for text in texts]
    if None in found:
        block.fail(found.index(None), name, allowed)
    matches = [match for match in found if match is not None]
    ticks = _local(block, [match[1] for match in matches], name, allowed)
    if any(match[2] for match in matches):
        minutes = [int(f"{m[2]}1") * (int(m[3]) * 60 + int(m[4])) if m[2] else 0 for m in matches]
        ticks -= np.array(minutes, dtype=np.int64) * 60_000_000_000
    return ticks


def _local(block: Block, texts: Sequence[str], name: str, allowed: str) -> NDArray[np.int64]:
    """Nanoseconds since 1970 of well-formed dates, each by its own clock."""
    try:
        return np.array(texts, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:  # well-formed, but no such day or hour
        for row, text in enumerate(texts):
            try:
                np.datetime64(text, "ns")
            except ValueError:
                block.fail(row, name, allowed)
        raise
