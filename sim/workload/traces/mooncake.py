"""How are Mooncake's traces read?

JSON lines: ``timestamp`` in milliseconds, ``input_length`` and ``output_length`` in tokens, and
``hash_ids``, which name the prefix blocks of 512 tokens and are ignored. Other services publish
the same three keys with timestamps in seconds, beside keys of their own (``chat_id``). So a file
with any further key is not recognised as Mooncake's; naming the format says that it is.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import json_blocks

_KEYS = ("timestamp", "input_length", "output_length")


def _recognises(head: Head) -> bool:
    return head.container == "jsonl" and set(head.names) - {"hash_ids"} == set(_KEYS)


def _read(path: Path) -> Trace:
    return Trace.joined(
        Trace.of(block, *_KEYS, per_second=1e3) for block in json_blocks(path, _KEYS)
    )


FORMAT = TraceFormat(
    name="mooncake",
    layout="JSON lines with timestamp (milliseconds), input_length, output_length, and at most"
    " hash_ids beside them",
    recognises=_recognises,
    read=_read,
)
