"""Reads the traces of LLMServingSim.

JSON lines: ``arrival_time_ns`` in nanoseconds, ``input_toks`` and ``output_toks``. Rows of agents
(``sub_requests``) hold several requests, each waiting for the one before: they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sim.errors import TraceError
from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.head import Head
from sim.workload.traces.rows import json_blocks

_TIME = "arrival_time_ns"


def _recognises(head: Head) -> bool:
    names = set(head.names)
    flat = {"input_toks", "output_toks"} <= names
    return head.container == "jsonl" and _TIME in names and (flat or "sub_requests" in names)


def _read(path: Path) -> Trace:
    return Trace.joined(_parts(path))


def _parts(path: Path) -> Iterator[Trace]:
    for block in json_blocks(path, [_TIME], ["input_toks", "output_toks", "sub_requests"]):
        for line, requests in zip(block.places, block.columns["sub_requests"], strict=True):
            if requests is not None:
                raise TraceError(
                    f"{path}:{line}: sub_requests: each of them waits for the one before, and"
                    " sessions are not supported yet; only flat rows (input_toks, output_toks) are"
                    " read"
                )
        yield Trace.of(block, _TIME, "input_toks", "output_toks", per_second=1e9)


FORMAT = TraceFormat(
    name="llmservingsim",
    layout="JSON lines with arrival_time_ns (nanoseconds), input_toks, output_toks",
    recognises=_recognises,
    read=_read,
)
