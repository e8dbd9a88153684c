"""Turns records of real runs, made by other programs, into run directories.

A format is one file here with a ``FORMAT``, and its entry in ``FORMATS``. What its reader returns
is a ``Recording``: requests with their times, and what the file states of model, device and engine.
"""

from __future__ import annotations

from calibrate.recordings import aiperf, guidellm, prometheus, request_log, vllm_bench
from calibrate.recordings.recording import RecordingFormat
from sim.errors import UsageError, did_you_mean

__all__ = ["FORMATS", "find_format"]

FORMATS: dict[str, RecordingFormat] = {
    module.FORMAT.name: module.FORMAT
    for module in (vllm_bench, guidellm, aiperf, request_log, prometheus)
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
