"""Reads Alibaba Bailian's (Qwen) traces.

JSON lines: ``timestamp`` in seconds, ``input_length`` and ``output_length`` in tokens. Turns of a
conversation name each other (``chat_id``, ``parent_chat_id``, ``turn``), but each has a time of its
own at which it is replayed. ``hash_ids`` name the blocks of 16 tokens that prompts share; ``type``
is ignored. What ``infersim serve`` records of prompts with their blocks is this format, too; it
adds ``priority`` and ``cancelled_after_s``, as the plain format has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.base import Trace, TraceFormat, sessions_of
from sim.workload.traces.head import Head
from sim.workload.traces.plain import CANCELLED, PRIORITY
from sim.workload.traces.prefixes import HASH_IDS, counted
from sim.workload.traces.rows import Block, json_blocks

BLOCK_TOKENS = 16
"""Tokens of a block that ``hash_ids`` name, in Bailian's traces."""

_KEYS = ("timestamp", "input_length", "output_length")
_OWN = ("chat_id", "parent_chat_id", "turn")


def _recognises(head: Head) -> bool:
    return head.container == "jsonl" and {*_KEYS, *_OWN} <= set(head.names)


def _read(path: Path) -> Trace:
    found = counted(_parts(path), BLOCK_TOKENS)
    if found.patience is not None and np.isinf(found.patience).all():
        found = replace(found, patience=None)
    if found.session_ids is not None and not _repeats(found.session_ids):
        return replace(found, session_ids=None)
    return replace(found, sessions="chat_id")


def _repeats(sessions: NDArray[np.int64]) -> bool:
    """Whether any conversation has several requests."""
    named = sessions[sessions >= 0]
    return len(np.unique(named)) < len(named)


def _parts(path: Path) -> Iterator[tuple[Trace, Block]]:
    """Each block of rows; a turn belongs to the conversation of the turn that it names."""
    known: dict[object, int] = {}
    ranked: bool | None = None
    for block in json_blocks(path, _KEYS, [HASH_IDS, *_OWN, PRIORITY, CANCELLED]):
        chats, parents = block.columns["chat_id"], block.columns["parent_chat_id"]
        for chat, parent in zip(chats, parents, strict=True):
            if not isinstance(chat, list | dict) and not isinstance(parent, list | dict):
                known.setdefault(chat, known.get(parent, len(known)))
        if ranked is None:
            ranked = block.columns[PRIORITY][0] is not None
        found = replace(
            Trace.of(block, *_KEYS),
            session_ids=sessions_of(chats, known),
            priorities=block.priorities(PRIORITY) if ranked else None,
            patience=block.patience(CANCELLED),
        )
        yield found, block


FORMAT = TraceFormat(
    name="bailian",
    layout="JSON lines with timestamp (seconds), input_length, output_length, and also"
    " chat_id, parent_chat_id, turn",
    recognises=_recognises,
    read=_read,
    names_blocks=True,
)
