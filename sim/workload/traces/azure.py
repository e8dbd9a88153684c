"""Reads Azure's LLM inference traces (2023 and 2024).

CSV: TIMESTAMP is a date and time with up to nine fractional digits (2023 has seven) and, in 2024,
a UTC offset; ContextTokens is the prompt and GeneratedTokens the output, in tokens. Without an
offset UTC is meant; only differences matter.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.dates import nanoseconds
from sim.workload.traces.head import Head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    stamps, prompts, outputs = [], [], []
    for block in csv_blocks(path, _COLUMNS):
        stamps.append(nanoseconds(block, "TIMESTAMP"))
        prompts.append(block.tokens("ContextTokens"))
        outputs.append(block.tokens("GeneratedTokens"))
    ticks = np.concatenate(stamps)
    # Whole nanoseconds until the first is taken off: a float of the date would lose microseconds.
    seconds = (ticks - ticks.min()) / 1e9
    return Trace(seconds, np.concatenate(prompts), np.concatenate(outputs))


FORMAT = TraceFormat(
    name="azure",
    layout="CSV with columns TIMESTAMP (date and time), ContextTokens, GeneratedTokens",
    recognises=_recognises,
    read=_read,
)
