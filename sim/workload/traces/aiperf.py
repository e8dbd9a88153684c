"""Reads the traces of AIPerf, which extend Mooncake's.

JSON lines: ``timestamp`` in milliseconds, ``input_length`` and ``output_length`` in tokens. In a
session (``session_id``) a later turn may have a ``delay`` instead of a timestamp: the time between
the answer to the previous turn and this one. Its arrival is then a result of the simulation, not a
part of the trace, so only files are read in which every row has a timestamp. ``hash_ids`` name the
blocks that prompts share, of 512 tokens unless AIPerf was set otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sim.errors import TraceError
from sim.workload.traces.base import Trace, TraceFormat, sessions_of
from sim.workload.traces.head import Head, head
from sim.workload.traces.prefixes import HASH_IDS, counted
from sim.workload.traces.rows import Block, json_blocks, shown

BLOCK_TOKENS = 512
"""Tokens of a block that ``hash_ids`` name, unless AIPerf was set otherwise."""

_LENGTHS = ("input_length", "output_length")
_TIMES = ("timestamp", "delay")
_SESSION = "session_id"
_OTHERS = (_SESSION, HASH_IDS, "group_id", "type", "extra")


def _recognises(top: Head) -> bool:
    """Any key that AIPerf does not have speaks against it: the unit could be another one."""
    names = set(top.names)
    known = names <= {*_LENGTHS, *_TIMES, *_OTHERS}
    return top.container == "jsonl" and known and "input_length" in names and _is_turn(names)


def _is_turn(names: set[str]) -> bool:
    return bool(names & {_SESSION, "delay"})


def _read(path: Path) -> Trace:
    found = counted(_parts(path), BLOCK_TOKENS)
    if _SESSION in head(path).names:
        return replace(found, sessions=_SESSION)
    return replace(found, session_ids=None)


def _parts(path: Path) -> Iterator[tuple[Trace, Block]]:
    known: dict[object, int] = {}
    for block in json_blocks(path, _LENGTHS, [*_TIMES, HASH_IDS, _SESSION]):
        stamps = block.columns["timestamp"]
        if None in stamps:
            raise _follows(block, stamps.index(None))
        part = Trace.of(block, "timestamp", *_LENGTHS, per_second=1e3)
        yield replace(part, session_ids=sessions_of(block.columns[_SESSION], known)), block


def _follows(block: Block, row: int) -> TraceError:
    delay = block.columns["delay"][row]
    told = "no timestamp" if delay is None else f"a delay ({shown(delay)}) instead of a timestamp"
    return TraceError(
        f"{block.path}:{block.places[row]}: {told}: this turn waits for the answer before it, and"
        " sessions are not supported yet; give every row a timestamp (milliseconds)"
    )


FORMAT = TraceFormat(
    name="aiperf",
    layout="JSON lines with timestamp (milliseconds), input_length, output_length, and also"
    " session_id or delay",
    recognises=_recognises,
    read=_read,
    names_blocks=True,
)
