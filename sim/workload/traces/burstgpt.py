"""Reads BurstGPT's traces, both versions.

CSV: ``Timestamp`` in whole seconds, ``Request tokens`` and ``Response tokens``. The second version
inserts columns (``Session ID``, ``Elapsed time``), so columns are found by name. A response of zero
tokens means that the request failed: such rows are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sim.workload.traces.base import FAILED, Trace, TraceFormat, sessions_of
from sim.workload.traces.head import Head, head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
_SESSION = "Session ID"


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    named = [_SESSION] if _SESSION in head(path).names else []
    found = Trace.joined(_parts(path, named))
    return replace(found, sessions=_SESSION) if named else found


def _parts(path: Path, named: Sequence[str]) -> Iterator[Trace]:
    known: dict[object, int] = {}
    for block in csv_blocks(path, [*_COLUMNS, *named]):
        failed = block.zeros("Response tokens")
        served = block.without(failed)
        yield Trace(
            served.seconds("Timestamp"),
            served.tokens("Request tokens"),
            served.tokens("Response tokens"),
            {FAILED: sum(failed)} if any(failed) else {},
            session_ids=sessions_of(served.columns[_SESSION], known) if named else None,
        )


FORMAT = TraceFormat(
    name="burstgpt",
    layout="CSV with columns Timestamp (seconds), Request tokens, Response tokens",
    recognises=_recognises,
    read=_read,
)
