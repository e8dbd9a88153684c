"""Reads recorded requests from trace files, whose format it recognises.

A new format is one file here with a ``FORMAT``, and its entry in ``FORMATS``.
"""

from __future__ import annotations

from pathlib import Path

from sim.errors import TraceError, UsageError, did_you_mean
from sim.workload.traces import (
    aiperf,
    azure,
    bailian,
    burstgpt,
    llmservingsim,
    mooncake,
    plain,
    vidur,
    vllm,
)
from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.columns import PAIRS
from sim.workload.traces.head import head
from sim.workload.traces.named import HOW, TraceColumns, by_names
from sim.workload.traces.rows import listed
from sim.workload.traces.scaling import TracePlay

__all__ = [
    "FORMATS",
    "Trace",
    "TraceColumns",
    "TraceFormat",
    "TracePlay",
    "detect",
    "find_format",
    "read_trace",
]

FORMATS: dict[str, TraceFormat] = {
    module.FORMAT.name: module.FORMAT
    for module in (azure, burstgpt, mooncake, bailian, aiperf, llmservingsim, vidur, vllm, plain)
}
"""The formats by the name that a scenario calls them."""


def read_trace(
    path: Path,
    trace_format: str = "auto",
    *,
    columns: TraceColumns | None = None,
    played: TracePlay | None = None,
) -> Trace:
    """The requests in ``path``, sorted by arrival, with times in seconds since the first of them.

    Sorting is stable: requests that arrive together keep the order of the file. ``played`` then
    changes the trace. Every row is checked all the same. ``trace_format`` is a key of ``FORMATS``,
    or "auto" to tell by the column names (UsageError otherwise); ``columns`` says what those are
    called. TraceError, with file and line, for anything that breaks the format.
    """
    trace = find_format(path, trace_format, columns).read(path)
    if not len(trace):
        rows = "; ".join(f"{count:,} {reason}" for reason, count in trace.skipped.items())
        raise TraceError(f"{path}: no request is left; skipped: {rows}")
    return (played or TracePlay()).of(trace)


def find_format(
    path: Path, trace_format: str = "auto", columns: TraceColumns | None = None
) -> TraceFormat:
    """The format of that name, or with those ``columns``, or the one that ``path`` has; errors as
    for ``read_trace``."""
    if columns is not None:
        return by_names(columns)
    if trace_format == "auto":
        return detect(path)
    if trace_format not in FORMATS:
        raise UsageError(
            f"unknown trace format {trace_format!r}{did_you_mean(trace_format, FORMATS)};"
            f" known: auto, {', '.join(FORMATS)}"
        )
    return FORMATS[trace_format]


def detect(path: Path) -> TraceFormat:
    """The format of ``path``, by its column names alone; TraceError if it is not exactly one."""
    top = head(path)
    fitting = [candidate for candidate in FORMATS.values() if candidate.recognises(top)]
    if len(fitting) == 1:
        return fitting[0]
    known = "".join(f"\n  {f.name}: {f.layout}" for f in FORMATS.values())
    rows = "CSV columns" if top.container == "csv" else "JSON keys"
    problem = "fit more than one format" if fitting else "fit no known trace format"
    if len(top.names) == 1 and any(mark in top.names[0] for mark in ";\t|"):
        problem += " (the columns of a CSV file are separated by commas)"
    if any(set(pair) <= set(top.names) for pair in PAIRS):
        problem += (
            " (lengths without arrivals can be drawn from: `lengths: {kind: joint, path: ...}`)"
        )
    raise TraceError(f"{path}: the {rows} {listed(top.names)} {problem}; {HOW}; formats:{known}")
