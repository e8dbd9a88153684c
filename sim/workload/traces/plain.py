"""How is the plain format read, the one to write for traffic of your own?

CSV: ``arrival_s`` in seconds from any origin, ``prompt_tokens`` and ``output_tokens``. Other
columns may stand beside them. The table of requests that a run writes has these names too.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    return Trace.joined(
        Trace(
            block.numbers("arrival_s"),
            block.tokens("prompt_tokens"),
            block.tokens("output_tokens"),
        )
        for block in csv_blocks(path, _COLUMNS)
    )


FORMAT = TraceFormat(
    name="csv",
    layout="CSV with columns arrival_s (seconds), prompt_tokens, output_tokens",
    recognises=_recognises,
    read=_read,
)
