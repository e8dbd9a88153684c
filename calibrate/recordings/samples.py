"""Reads the ``timeseries.csv`` of a server's log, one row per tick.

``t`` in seconds since the log began, which is some tenths of a second before the first request and
taken for the same; tokens per second of prompts and of answers, requests running and waiting, and
the percentage of KV blocks in use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrate.recordings.stated import Floats, Samples
from sim.errors import TraceError
from sim.workload.traces.rows import Block, csv_blocks

RATES = ("prompt_throughput", "gen_throughput")
COUNTS = ("running", "waiting")
USED = "kv_cache_pct"


def read(path: Path) -> Samples:
    """The ticks in ``path``; TraceError, with its line, for a value that breaks the format."""
    blocks = list(csv_blocks(path, ["t", *RATES, *COUNTS, USED]))
    end = _joined(blocks, "t")
    start = np.concatenate([[0.0], end[:-1]])
    if (end <= start).any():
        tick = int(np.argmax(end <= start))
        raise TraceError(f"{path}: t of row {tick + 1:,} is {end[tick]:g}; allowed: ascending")
    used = _joined(blocks, USED) / 100
    if (used > 1).any():
        tick = int(np.argmax(used > 1))
        raise TraceError(
            f"{path}: {USED} of row {tick + 1:,} is {used[tick] * 100:g}; allowed: 0 to 100"
        )
    running, waiting = (np.rint(_joined(blocks, name)).astype(np.int64) for name in COUNTS)
    prompts, outputs = (_joined(blocks, name) * (end - start) for name in RATES)
    return Samples(start, end, prompts, outputs, running, waiting, used)


def _joined(blocks: list[Block], name: str) -> Floats:
    """A column of numbers from 0."""
    return np.concatenate([block.seconds(name) for block in blocks])
