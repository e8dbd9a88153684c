"""Reads the requests of a vLLM server's log, and the times at which each passed its stages.

``requests.jsonl`` has a line per request: its tokens, and its times by two clocks, which are never
mixed.

- ``arrival_time`` is Unix time (s), when the front end got the request.
- ``queued_ts``, ``scheduled_ts``, ``first_token_ts`` and ``last_token_ts`` are a monotonic clock
  (s): when the engine's core took the request into its queue, first scheduled part of it, and
  handed over its first and its last token.

The core looks for new requests between two iterations. So a time from ``queued_ts`` on has neither
the front end (HTTP, tokeniser) in it nor the rest of the iteration during which a request came: it
is shorter than a client's, and several requests are taken up at one moment. Between the first and
the last token nothing is known. ``meta.json`` next to the file says how the engine was started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.errors import TraceError
from sim.workload.traces.rows import Block, json_blocks

REQUESTS, META = "requests.jsonl", "meta.json"

LENGTHS = ("input_toks", "output_toks")
TIMES = ("queued_ts", "first_token_ts", "last_token_ts")
OPTIONAL = ("scheduled_ts", "arrival_time")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RequestLog:
    """Columns of equal length, in the order of the file: lengths in tokens, times in seconds.

    A request that is not ``served`` has no output tokens, and no time but ``queued``; NaN is a time
    that is not known. ``arrived`` is None where no request has that time.
    """

    prompt_tokens: Integers
    output_tokens: Integers
    queued: Floats
    scheduled: Floats
    first_token: Floats
    last_token: Floats
    arrived: Floats | None
    served: NDArray[np.bool_]


def read(path: Path) -> RequestLog:
    """The requests of the file ``path``.

    TraceError, with file and line, for a file without rows or without a served request, a row that
    lacks what others have, and times that do not follow one another.
    """
    block = _whole(path)
    failed = block.zeros("output_toks")
    if all(failed):
        raise TraceError(f"{path}: none of the {len(failed):,} requests was served")
    served, kept = block.without(failed), ~np.array(failed)
    queued = block.seconds("queued_ts")
    in_turn = ("scheduled_ts", *TIMES[1:])
    times = {name: np.full(len(failed), np.nan) for name in in_turn}
    before, earlier = queued[kept], "queued_ts"
    for name in in_turn:
        if name in block.columns:
            now = served.seconds(name)
            if (now < before).any():
                allowed = f"{earlier} of the same row, or later"
                served.fail(int(np.argmax(now < before)), name, allowed)
            times[name][kept] = now
            before, earlier = now, name
    outputs = np.zeros(len(failed), dtype=np.int64)
    outputs[kept] = served.tokens("output_toks")
    return RequestLog(
        prompt_tokens=block.tokens("input_toks"),
        output_tokens=outputs,
        queued=queued,
        scheduled=times["scheduled_ts"],
        first_token=times["first_token_ts"],
        last_token=times["last_token_ts"],
        arrived=_arrived(served, kept),
        served=kept,
    )


def _whole(path: Path) -> Block:
    """All rows of the log as one block; a time that no row has is no column."""
    blocks = list(json_blocks(path, [*LENGTHS, *TIMES], OPTIONAL))
    if not blocks:
        raise TraceError(f"{path}: the file is empty, it holds no request")
    columns: dict[str, Sequence[object]] = {
        name: [value for block in blocks for value in block.columns[name]]
        for name in blocks[0].columns
    }
    places = [place for block in blocks for place in block.places]
    given = {name: any(value is not None for value in columns[name]) for name in OPTIONAL}
    kept = {name: column for name, column in columns.items() if given.get(name, True)}
    return Block(path, places, kept)


def _arrived(served: Block, kept: NDArray[np.bool_]) -> Floats | None:
    if "arrival_time" not in served.columns:
        return None
    arrived = np.full(len(kept), np.nan)
    arrived[kept] = served.seconds("arrival_time")
    return arrived
