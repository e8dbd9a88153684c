"""Reads a trace whose columns a user names: CSV or JSON lines with any names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import TraceError
from sim.workload.traces.base import Trace, TraceFormat, sessions_of
from sim.workload.traces.dates import DATES, nanoseconds
from sim.workload.traces.head import head
from sim.workload.traces.rows import Block, csv_blocks, json_blocks, reads_as_number

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""How many of each unit make a second."""


class TraceColumns(NamedTuple):
    """The names of the columns of a trace: arrivals, in a unit of ``PER_SECOND`` or as dates, the
    tokens of prompts and answers, and where there are such, conversations and priorities."""

    arrival: str
    prompt_tokens: str
    output_tokens: str
    session: str | None = None
    priority: str | None = None
    arrival_unit: str = "s"


HOW = (
    "name them (`columns: {arrival: ts, arrival_unit: ms, prompt_tokens: in, output_tokens: out}`, "
    "or `trace describe --columns arrival=ts,...`)"
)
"""The way to read a file with other names."""


def by_names(columns: TraceColumns) -> TraceFormat:
    """The format of files whose columns have these names."""
    return TraceFormat(
        name="columns",
        layout=f"CSV or JSON lines with columns {', '.join(columns[:3])}",
        recognises=lambda _: True,
        read=lambda path: _read(path, columns),
    )


def _read(path: Path, columns: TraceColumns) -> Trace:
    wanted = [*columns[:3], *(each for each in (columns.session, columns.priority) if each)]
    known, times = dict[object, int](), _Arrivals(columns)
    found = Trace.joined(_part(block, columns, times, known) for block in _blocks(path, wanted))
    return found if columns.session is None else replace(found, sessions=columns.session)


def _blocks(path: Path, wanted: list[str]) -> Iterator[Block]:
    container = head(path).container
    if container == "json":
        raise TraceError(f"{path}: one JSON document; columns are named of CSV or JSON lines")
    return csv_blocks(path, wanted) if container == "csv" else json_blocks(path, wanted)


class _Arrivals:
    """The arrivals (s) of consecutive blocks: dates since the first, where that is no number."""

    def __init__(self, columns: TraceColumns) -> None:
        self._name, self._unit = columns.arrival, columns.arrival_unit
        self._dates: bool | None = None
        self._origin = 0

    def of(self, block: Block) -> NDArray[np.float64]:
        """The values of the next block; TraceError for a value that is neither."""
        first = self._dates is None
        if first:
            value = block.columns[self._name][0]
            self._dates = isinstance(value, str) and not reads_as_number(value)
        if not self._dates:
            return block.seconds(self._name, PER_SECOND[self._unit])
        allowed = f"numbers ({self._unit}, or arrival_unit: {', '.join(PER_SECOND)}), or {DATES}"
        ticks = nanoseconds(block, self._name, allowed)
        if first:
            self._origin = int(ticks[0])
        seconds: NDArray[np.float64] = (ticks - self._origin) / 1e9
        return seconds


def _part(block: Block, columns: TraceColumns, times: _Arrivals, known: dict[object, int]) -> Trace:
    return Trace(
        times.of(block),
        block.tokens(columns.prompt_tokens),
        block.tokens(columns.output_tokens),
        priorities=None if columns.priority is None else block.priorities(columns.priority),
        session_ids=None
        if columns.session is None
        else sessions_of(block.columns[columns.session], known),
    )
