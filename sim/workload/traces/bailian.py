"""Reads Alibaba Bailian's (Qwen) traces.

JSON lines: ``timestamp`` in seconds, ``input_length`` and ``output_length`` in tokens. Turns of a
conversation name each other (``chat_id``, ``parent_chat_id``, ``turn``), but each has a time of its
own at which it is replayed. ``hash_ids`` name the blocks of 16 tokens that prompts share; relations
and ``type`` are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.prefixes import HASH_IDS, counted
from sim.workload.traces.rows import json_blocks

BLOCK_TOKENS = 16
"""Tokens of a block that ``hash_ids`` name, in Bailian's traces."""

_KEYS = ("timestamp", "input_length", "output_length")
_OWN = ("chat_id", "parent_chat_id", "turn")


def _recognises(head: Head) -> bool:
    return head.container == "jsonl" and {*_KEYS, *_OWN} <= set(head.names)


def _read(path: Path) -> Trace:
    blocks = json_blocks(path, _KEYS, [HASH_IDS])
    found = counted(((Trace.of(block, *_KEYS), block) for block in blocks), BLOCK_TOKENS)
    return replace(found, sessions="chat_id")


FORMAT = TraceFormat(
    name="bailian",
    layout="JSON lines with timestamp (seconds), input_length, output_length, and also"
    " chat_id, parent_chat_id, turn",
    recognises=_recognises,
    read=_read,
    names_blocks=True,
)
