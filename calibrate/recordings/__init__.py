"""Turns records of real runs, made by other programs, into run directories.

A format is one file here with a ``FORMAT``, and its entry in ``FORMATS``. What its reader returns
is a ``Recording``: requests with their times, and what the file states of model, device and engine.
"""

from __future__ import annotations

import json
from pathlib import Path

from calibrate.recordings import (
    aiperf,
    genai_perf,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    prometheus,
    request_log,
    trtllm_bench,
    vllm_bench,
)
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat
from sim.errors import TraceError, UsageError, did_you_mean
from sim.workload.traces.text import whole

__all__ = ["FORMATS", "find_format", "read_recording"]

FORMATS: dict[str, RecordingFormat] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        *(vllm_bench, guidellm, aiperf, genai_perf, inference_perf, llmperf, trtllm_bench),
        *(inferencex, request_log, prometheus),
    )
}
"""The formats by the name that ``infersim observe --from`` calls them."""


def find_format(name: str) -> RecordingFormat:
    """The format of that name; UsageError, with those there are, for any other."""
    if name not in FORMATS:
        known = "".join(f"\n  {known.name}: {known.layout}" for known in FORMATS.values())
        raise UsageError(
            f"--from {name}: no such format{did_you_mean(name, FORMATS)}; known:{known}"
        )
    return FORMATS[name]


def read_recording(known: RecordingFormat, path: Path, choice: RecordingChoice) -> Recording:
    """The record at ``path``; a TraceError names the format that the file looks like, where that
    is another one."""
    try:
        return known.read(path, choice)
    except TraceError as error:
        like = _looks_like(path)
        if like in (None, known.name):
            raise
        told = f"{error}; this looks like a result of {like}: --from {like}"
        raise TraceError(told) from None


def _looks_like(path: Path) -> str | None:
    """The name of the format whose marks are in the first object or row of ``path``."""
    names = _names(path) if path.is_file() else set()
    fitting = (
        each.name
        for each in FORMATS.values()
        if any(names.issuperset(mark.split()) for mark in each.marks)
    )
    return next(fitting, None)


def _names(path: Path) -> set[str]:
    """The keys of the first JSON object, or the cells of the first row."""
    try:
        text = whole(path)
    except TraceError:
        return set()
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return set(text.partition("\n")[0].strip().split(","))
    first = found[0] if isinstance(found, list) and found else found
    return set(first) if isinstance(first, dict) else set()
