"""Reads the plain format, the one to write for traffic of your own.

CSV: ``arrival_s`` in seconds from any origin, ``prompt_tokens`` and ``output_tokens``, and
optionally ``priority``, a whole number of which lower ones go first. Other columns are ignored. The
table of requests that a run writes has these names too.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head, head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
_PRIORITY = "priority"


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    ranked = [_PRIORITY] if _PRIORITY in head(path).names else []
    return Trace.joined(
        Trace(
            block.seconds("arrival_s"),
            block.tokens("prompt_tokens"),
            block.tokens("output_tokens"),
            priorities=block.priorities(_PRIORITY) if ranked else None,
        )
        for block in csv_blocks(path, [*_COLUMNS, *ranked])
    )


FORMAT = TraceFormat(
    name="csv",
    layout="CSV with columns arrival_s (seconds), prompt_tokens, output_tokens, perhaps priority",
    recognises=_recognises,
    read=_read,
)
