"""How are BurstGPT's traces read, both versions?

CSV: ``Timestamp`` in whole seconds, ``Request tokens`` and ``Response tokens``. The second version
inserts columns (``Session ID``, ``Elapsed time``), so columns are found by name. A response of zero
tokens means that the request failed: such rows are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sim.workload.traces.base import FAILED, Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    return Trace.joined(_parts(path))


def _parts(path: Path) -> Iterator[Trace]:
    for block in csv_blocks(path, _COLUMNS):
        failed = block.zeros("Response tokens")
        served = block.without(failed)
        yield Trace(
            served.seconds("Timestamp"),
            served.tokens("Request tokens"),
            served.tokens("Response tokens"),
            {FAILED: sum(failed)} if any(failed) else {},
        )


FORMAT = TraceFormat(
    name="burstgpt",
    layout="CSV with columns Timestamp (seconds), Request tokens, Response tokens",
    recognises=_recognises,
    read=_read,
)
