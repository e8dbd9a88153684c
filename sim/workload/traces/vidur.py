"""Reads the traces of Vidur.

CSV: ``arrived_at`` in seconds, ``num_prefill_tokens`` and ``num_decode_tokens``
(microsoft/vidur, vidur/request_generator/trace_replay_request_generator.py). Files with the two
lengths alone have no arrivals, and are no trace.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import csv_blocks

_COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def _recognises(head: Head) -> bool:
    return head.container == "csv" and set(_COLUMNS) <= set(head.names)


def _read(path: Path) -> Trace:
    return Trace.joined(Trace.of(block, *_COLUMNS) for block in csv_blocks(path, _COLUMNS))


FORMAT = TraceFormat(
    name="vidur",
    layout="CSV with columns arrived_at (seconds), num_prefill_tokens, num_decode_tokens",
    recognises=_recognises,
    read=_read,
)
