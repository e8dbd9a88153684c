"""Reads a log of a vLLM server with the engine's own times of each request.

``sim.workload.request_log`` describes the format. All times in the run directory are of the
engine's monotonic clock; of the front end's Unix times only differences are used, for a note. No
gaps between tokens are known, hence no ITL.

Files next to it are read where they exist: ``meta.json`` (``server_log_meta``), ``timeseries.csv``
(one row per tick; ``samples``) and ``workload_hash16.jsonl`` (prompts as ids of prefix blocks).
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np

from calibrate.recordings import samples, server_log_meta
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, in_order
from calibrate.recordings.stated import Floats, Requests, Stated
from sim.errors import TraceError
from sim.units import show_time
from sim.workload.request_log import META, REQUESTS, RequestLog, read
from sim.workload.traces.rows import json_blocks

SERIES, WORKLOAD = "timeseries.csv", "workload_hash16.jsonl"

TTFT = (
    "TTFT counts from when the engine's core accepted a request, between two iterations, to its "
    "first token. The TTFT of a simulation also includes the front end and the rest of the "
    "iteration in flight."
)


def _read(path: Path, choice: RecordingChoice) -> Recording:
    file = path / REQUESTS if path.is_dir() else path
    log = read(file)
    ranked, _ = in_order(_requests(log))
    meta, series, workload = (file.with_name(name) for name in (META, SERIES, WORKLOAD))
    stated = server_log_meta.read(meta) if meta.is_file() else Stated(None, None, None)
    notes = [*_delays(log), *_shared_prefixes(workload, stated)]
    return Recording(
        files=tuple(each for each in (file, meta, series, workload) if each.is_file()),
        requests=ranked,
        gaps=None,
        samples=samples.read(series) if series.is_file() else None,
        stated=stated,
        ttft=TTFT,
        front_end="none",
        notes=tuple(notes),
        date=_day(stated.conditions.get("started_at")),
    )


def _day(started: object) -> str | None:
    """The day of an ISO 8601 time; None for anything else."""
    try:
        return datetime.fromisoformat(str(started)).date().isoformat()
    except ValueError:
        return None


def _requests(log: RequestLog) -> Requests:
    """The requests by the engine's monotonic clock."""
    return Requests(
        arrivals=log.queued,
        scheduled=log.scheduled,
        first_token=log.first_token,
        finish=log.last_token,
        prompt_tokens=log.prompt_tokens,
        output_tokens=log.output_tokens,
        failures=tuple(None if each else "failed" for each in log.served.tolist()),
    )


def _delays(log: RequestLog) -> list[str]:
    """How much longer than the quickest one requests waited to be taken up.

    Each clock's own differences are compared, so that the unknown offset between the two clocks
    drops out, and with it the delay that the quickest request had.
    """
    if log.arrived is None:
        return []
    came, taken = log.arrived[log.served], log.queued[log.served]
    waited: Floats = (taken - taken[0]) - (came - came[0])
    waited -= waited.min()
    return [
        "From the front end to the engine's core, requests took longer than the quickest of them, "
        f"by {show_time(float(waited.mean()))} on average and "
        f"{show_time(float(np.percentile(waited, 99)))} at p99; TTFT does not include that."
    ]


def _shared_prefixes(workload: Path, stated: Stated) -> list[str]:
    """How much a prefix cache could have saved this engine, if it had one."""
    if stated.conditions.get("enable_prefix_caching") is not True:
        return []
    known = "The engine's prefix cache was on; the trace has lengths only, so a simulation "
    known += "of it prefills every token."
    if not workload.is_file():
        return [known]
    seen: set[object] = set()
    blocks = again = 0
    for block in json_blocks(workload, ["hash_ids"]):
        for ids in block.columns["hash_ids"]:
            if not isinstance(ids, list):
                raise TraceError(
                    f"{workload}: hash_ids is not a list; allowed: ids of prefix blocks"
                )
            blocks += len(ids)
            again += sum(each in seen for each in ids)
            seen.update(ids)
    share = again / blocks if blocks else 0.0
    return [f"{known} At most {share:.1%} of the prompts' blocks had been seen before."]


FORMAT = RecordingFormat(
    name="log",
    layout="a folder with requests.jsonl, or that file: JSON lines with input_toks, output_toks, "
    "queued_ts, first_token_ts, last_token_ts (seconds of one monotonic clock)",
    read=_read,
    marks=("input_toks queued_ts",),
)
