"""Reads Mooncake's traces.

JSON lines: ``timestamp`` in milliseconds, ``input_length`` and ``output_length`` in tokens, and
``hash_ids``, which name the blocks of 512 tokens that prompts share. Other services publish the
same three keys with timestamps in seconds, next to keys of their own (``chat_id``). So a file with
any further key is not recognised as Mooncake's; naming the format says that it is.
"""

from __future__ import annotations

from pathlib import Path

from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.prefixes import HASH_IDS, counted
from sim.workload.traces.rows import json_blocks

BLOCK_TOKENS = 512
"""Tokens of a block that ``hash_ids`` name, in Mooncake's traces."""

_KEYS = ("timestamp", "input_length", "output_length")


def _recognises(head: Head) -> bool:
    return head.container == "jsonl" and set(head.names) - {"hash_ids"} == set(_KEYS)


def _read(path: Path) -> Trace:
    blocks = json_blocks(path, _KEYS, [HASH_IDS])
    return counted(
        ((Trace.of(block, *_KEYS, per_second=1e3), block) for block in blocks), BLOCK_TOKENS
    )


FORMAT = TraceFormat(
    name="mooncake",
    layout="JSON lines with timestamp (milliseconds), input_length, output_length, and at most"
    " hash_ids as well",
    recognises=_recognises,
    read=_read,
    names_blocks=True,
)
