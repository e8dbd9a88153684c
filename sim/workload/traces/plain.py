"""Reads the plain format, the one to write for traffic of your own.

CSV: ``arrival_s`` in seconds from any origin, ``prompt_tokens`` and ``output_tokens``, and
optionally ``priority``, a whole number of which lower ones go first, ``session``, the name or
number of the conversation that a request belongs to (empty or -1: none), and
``cancelled_after_s``, seconds after its arrival at which its client went away (empty: it waited for
the answer). Other columns are ignored. The table of requests that a run writes has these names too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat, sessions_of
from sim.workload.traces.head import Head, head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
PRIORITY, _SESSION = "priority", "session"
CANCELLED = "cancelled_after_s"


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    names = head(path).names
    ranked = [PRIORITY] if PRIORITY in names else []
    named = [_SESSION] if _SESSION in names else []
    cancelled = [CANCELLED] if CANCELLED in names else []
    known: dict[object, int] = {}
    found = Trace.joined(
        Trace(
            block.seconds("arrival_s"),
            block.tokens("prompt_tokens"),
            block.tokens("output_tokens"),
            priorities=block.priorities(PRIORITY) if ranked else None,
            session_ids=sessions_of(block.columns[_SESSION], known) if named else None,
            patience=block.patience(CANCELLED) if cancelled else None,
        )
        for block in csv_blocks(path, [*_COLUMNS, *ranked, *named, *cancelled])
    )
    return replace(found, sessions=_SESSION) if named else found


FORMAT = TraceFormat(
    name="csv",
    layout="CSV with columns arrival_s (seconds), prompt_tokens, output_tokens, perhaps priority,"
    " session and cancelled_after_s",
    recognises=_recognises,
    read=_read,
)
