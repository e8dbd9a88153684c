"""How is a log of a vLLM server read that has the engine's own times of each request?

``requests.jsonl`` has a line per request. Two clocks run in it, which are never mixed:

- ``arrival_time`` is Unix time, when the front end got the request. Only differences among these
  are used, for a note.
- ``queued_ts``, ``scheduled_ts``, ``first_token_ts`` and ``last_token_ts`` are a monotonic clock
  (s): when the engine's core took the request into its queue, first scheduled part of it, and
  handed over its first and its last token. Everything in the run directory is of this clock.

The core looks for new requests between two iterations. So a TTFT from ``queued_ts`` has the queue
and the prefill in it, but neither the front end (HTTP, tokeniser) nor the rest of the iteration
during which a request came: it is shorter than a client's, and several requests are taken up at
one moment. Between the first and the last token nothing is known: no gaps, hence no ITL.

Beside it, where they are there: ``meta.json`` (``server_log_meta``), ``timeseries.csv`` (one row
per tick; ``samples``) and ``workload_hash16.jsonl`` (prompts as ids of prefix blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrate.recordings import samples, server_log_meta
from calibrate.recordings.recording import (
    Floats,
    Recording,
    RecordingFormat,
    Requests,
    Stated,
    in_order,
)
from sim.errors import TraceError
from sim.units import show_time
from sim.workload.traces.rows import Block, json_blocks

REQUESTS, META, SERIES = "requests.jsonl", "meta.json", "timeseries.csv"
WORKLOAD = "workload_hash16.jsonl"

LENGTHS = ("input_toks", "output_toks")
TIMES = ("queued_ts", "first_token_ts", "last_token_ts")
OPTIONAL = ("scheduled_ts", "arrival_time")

ENGINE = "vllm"

TTFT = (
    "TTFT counts from when the engine's core took a request up, between two iterations, to its "
    "first token. That of a simulation has the front end and the rest of the iteration in flight "
    "in it too."
)


def _read(path: Path) -> Recording:
    file = path / REQUESTS if path.is_dir() else path
    block = _whole(file)
    failed = block.zeros("output_toks")
    if all(failed):
        raise TraceError(f"{file}: none of the {len(failed):,} requests was served")
    requests = _requests(block, failed)
    ranked, _ = in_order(requests)
    meta, series, workload = (file.with_name(name) for name in (META, SERIES, WORKLOAD))
    stated = server_log_meta.read(meta) if meta.is_file() else Stated(None, None, ENGINE)
    notes = [*_delays(block.without(failed)), *_shared_prefixes(workload, stated)]
    return Recording(
        files=tuple(each for each in (file, meta, series, workload) if each.is_file()),
        requests=ranked,
        gaps=None,
        samples=samples.read(series) if series.is_file() else None,
        stated=stated,
        ttft=TTFT,
        front_end="none",
        notes=tuple(notes),
    )


def _whole(file: Path) -> Block:
    """All rows of the log as one block; a time that no row has is no column."""
    blocks = list(json_blocks(file, [*LENGTHS, *TIMES], OPTIONAL))
    if not blocks:
        raise TraceError(f"{file}: the file is empty")
    columns: dict[str, Sequence[object]] = {
        name: [value for block in blocks for value in block.columns[name]]
        for name in blocks[0].columns
    }
    places = [place for block in blocks for place in block.places]
    given = {name: any(value is not None for value in columns[name]) for name in OPTIONAL}
    kept = {name: column for name, column in columns.items() if given.get(name, True)}
    return Block(file, places, kept)


def _requests(block: Block, failed: list[bool]) -> Requests:
    """The requests by the engine's monotonic clock."""
    served, kept = block.without(failed), ~np.array(failed)
    named = [name for name in ("scheduled_ts", *TIMES[1:]) if name in block.columns]
    unknown = np.full(len(failed), np.nan)
    times = {"queued_ts": block.seconds("queued_ts"), "scheduled_ts": unknown}
    before, earlier = times["queued_ts"][kept], "queued_ts"
    for name in named:
        now = served.seconds(name)
        if (now < before).any():
            served.fail(int(np.argmax(now < before)), name, f"{earlier} of the same row, or later")
        times[name] = np.full(len(failed), np.nan)
        times[name][kept] = now
        before, earlier = now, name
    outputs = np.zeros(len(failed), dtype=np.int64)
    outputs[kept] = served.tokens("output_toks")
    return Requests(
        arrivals=times["queued_ts"],
        scheduled=times["scheduled_ts"],
        first_token=times["first_token_ts"],
        finish=times["last_token_ts"],
        prompt_tokens=block.tokens("input_toks"),
        output_tokens=outputs,
        failures=tuple("failed" if each else None for each in failed),
    )


def _delays(served: Block) -> list[str]:
    """How much longer than the quickest one requests waited to be taken up.

    Each clock's own differences are compared, so that the unknown offset between the two clocks
    drops out, and with it the delay that the quickest request had.
    """
    if "arrival_time" not in served.columns:
        return []
    came, taken = served.seconds("arrival_time"), served.seconds("queued_ts")
    waited: Floats = (taken - taken[0]) - (came - came[0])
    waited -= waited.min()
    return [
        "From the front end to the engine's core requests took longer than the quickest of them "
        f"did, by {show_time(float(waited.mean()))} on average and "
        f"{show_time(float(np.percentile(waited, 99)))} at p99; TTFT leaves that out."
    ]


def _shared_prefixes(workload: Path, stated: Stated) -> list[str]:
    """What a prefix cache could have spared this engine, if it had one."""
    if stated.conditions.get("enable_prefix_caching") is not True:
        return []
    known = "The engine's prefix cache was on; the trace has lengths only, so that a simulation "
    known += "of it prefills every token."
    if not workload.is_file():
        return [known]
    seen: set[object] = set()
    blocks = again = 0
    for block in json_blocks(workload, ["hash_ids"]):
        for ids in block.columns["hash_ids"]:
            if not isinstance(ids, list):
                raise TraceError(f"{workload}: hash_ids is no list; allowed: ids of prefix blocks")
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
)
