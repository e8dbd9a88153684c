"""How are Alibaba Bailian's (Qwen) traces read?

JSON lines: ``timestamp`` in seconds, ``input_length`` and ``output_length`` in tokens. Turns of a
conversation name each other (``chat_id``, ``parent_chat_id``, ``turn``), but each has a time of its
own at which it is replayed. The relations, ``hash_ids`` and ``type`` are ignored.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import json_blocks

_KEYS = ("timestamp", "input_length", "output_length")
_OWN = ("chat_id", "parent_chat_id", "turn")


def _recognises(head: Head) -> bool:
    return head.container == "jsonl" and {*_KEYS, *_OWN} <= set(head.names)


def _read(path: Path) -> Trace:
    return Trace.joined(Trace.of(block, *_KEYS) for block in json_blocks(path, _KEYS))


FORMAT = TraceFormat(
    name="bailian",
    layout="JSON lines with timestamp (seconds), input_length, output_length, and beside them"
    " chat_id, parent_chat_id, turn",
    recognises=_recognises,
    read=_read,
)
