"""Which requests were recorded in this file? Formats, how they are told apart, and one reader.

A new format is one file here with a ``FORMAT``, and its entry in ``FORMATS``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.errors import TraceError, UsageError, did_you_mean
from sim.workload.traces import azure, mooncake, plain
from sim.workload.traces.base import Trace, TraceFormat
from sim.workload.traces.rows import head, listed

__all__ = ["FORMATS", "Trace", "TraceFormat", "detect", "read_trace"]

FORMATS: dict[str, TraceFormat] = {
    module.FORMAT.name: module.FORMAT for module in (azure, mooncake, plain)
}
"""The formats by the name that a scenario calls them."""


def read_trace(
    path: Path, trace_format: str = "auto", time_scale: float = 1.0, limit: int | None = None
) -> Trace:
    """The requests in ``path``, sorted by arrival, with times in seconds since the first of them.

    Sorting is stable: requests that arrive together keep the order of the file. ``time_scale``
    multiplies all gaps (0.25: four times as fast), ``limit`` keeps the first requests by arrival;
    every row is checked all the same. ``trace_format`` is a key of ``FORMATS``, or "auto" to tell
    by the column names (UsageError otherwise). TraceError, with file and line, for anything that
    breaks the format.
    """
    if trace_format == "auto":
        reader = detect(path)
    elif trace_format in FORMATS:
        reader = FORMATS[trace_format]
    else:
        raise UsageError(
            f"unknown trace format {trace_format!r}{did_you_mean(trace_format, FORMATS)};"
            f" known: auto, {', '.join(FORMATS)}"
        )
    trace = reader.read(path)
    order = np.argsort(trace.arrivals, kind="stable")[:limit]
    arrivals = trace.arrivals[order]
    with np.errstate(over="ignore"):  # scaled beyond all numbers: infinite, for the caller to see
        seconds = (arrivals - arrivals[0]) * time_scale
    return Trace(
        seconds,
        trace.prompt_tokens[order],
        trace.output_tokens[order],
    )


def detect(path: Path) -> TraceFormat:
    """The format of ``path``, by its column names alone; TraceError if it is not exactly one."""
    top = head(path)
    fitting = [candidate for candidate in FORMATS.values() if candidate.recognises(top)]
    if len(fitting) == 1:
        return fitting[0]
    known = "".join(f"\n  {f.name}: {f.layout}" for f in FORMATS.values())
    rows = "CSV columns" if top.container == "csv" else "JSON keys"
    problem = "fit more than one format" if fitting else "fit no known trace format"
    raise TraceError(f"{path}: the {rows} {listed(top.names)} {problem}; formats:{known}")
