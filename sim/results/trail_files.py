"""Writes and reads the chunks and absences of a run, which say what each request went through.

``chunks.parquet`` has a row for each part of a prompt that an iteration computed, in order of the
plans; ``absences.parquet`` one for each time that a request was preempted, or had caught up, in
order of time. Directories of older versions have neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.loop.attempt_rows import OUTCOMES, AttemptRows
from sim.results.parquet_file import write_parquet
from sim.results.stored import read_table
from sim.results.whole_file import write_whole
from sim.trails import courses

if TYPE_CHECKING:
    import pandas as pd

CHUNKS, ABSENCES, HANDOVERS = "chunks.parquet", "absences.parquet", "handovers.parquet"
ATTEMPTS, OUTAGES = "attempts.parquet", "outages.parquet"


class Trail(NamedTuple):
    """The tables of both files."""

    chunks: pd.DataFrame
    absences: pd.DataFrame


def chunk_columns(rows: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The columns of ``chunks.parquet``, from rows ``CHUNK`` of ``sim.loop.recorder``."""
    return {
        "plan": rows["plan"],
        "request_id": rows["request"],
        "tokens": rows["tokens"],
        "context": rows["context"],
    }


def absence_columns(rows: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The columns of ``absences.parquet``, from rows ``ABSENCE``."""
    return {"request_id": rows["request"], "time_s": rows["time"], "out": rows["out"] == 1}


def write_trail(directory: Path, chunks: NDArray[np.void], absences: NDArray[np.void]) -> None:
    """Write both files into ``directory``."""

    def write_chunks(file: Path) -> None:
        write_parquet(file, chunk_columns(chunks), rising=("plan", "request_id"))

    write_whole(directory / CHUNKS, write_chunks)
    write_whole(directory / ABSENCES, lambda file: write_parquet(file, absence_columns(absences)))


def write_handovers(directory: Path, rows: NDArray[np.void]) -> None:
    """Write the table of requests that went from a replica that prefills to one that decodes (rows
    of ``sim.loop.recorder.HANDED``), times in seconds."""
    names = {"request": "request_id", "source": "prefill_replica", "target": "replica"}
    names |= {"tokens": "prompt_tokens"}
    columns = {names.get(name, f"{name}_s"): rows[name] for name in rows.dtype.names or ()}
    write_whole(directory / HANDOVERS, lambda file: write_parquet(file, columns))


def write_attempts(directory: Path, rows: AttemptRows) -> None:
    """Write the table of attempts that came to nothing, and the one of outages, times in seconds
    (``sim.loop.attempt_rows``)."""
    failed = {name: rows.failed[name] for name in rows.failed.dtype.names or ()}
    attempts: dict[str, NDArray[Any]] = {
        "request_id": failed["request"],
        "attempt": failed["attempt"],
        "outcome": np.array(OUTCOMES, dtype=object)[failed["outcome"]],
        "replica": failed["replica"],
        "generated_tokens": failed["generated"],
        **{f"{name}_s": failed[name] for name in ("sent", "scheduled", "first_token", "ended")},
    }
    outages: dict[str, NDArray[Any]] = {
        "replica": rows.outages["replica"],
        "lost_requests": rows.outages["lost"],
        **{f"{name}_s": rows.outages[name] for name in ("since", "until", "computing")},
    }
    write_whole(directory / ATTEMPTS, lambda file: write_parquet(file, attempts))
    write_whole(directory / OUTAGES, lambda file: write_parquet(file, outages))


def read_trail(directory: Path, requests: pd.DataFrame, timeseries: pd.DataFrame) -> Trail | None:
    """The trail in the two files of ``directory``, None where one of them is not there; UsageError
    where they are damaged, or do not belong to the tables of the run."""
    chunks, absences = directory / CHUNKS, directory / ABSENCES
    if not (chunks.is_file() and absences.is_file()):
        return None
    found = Trail(
        read_table(chunks, courses.CHUNKS, one_a_request=False),
        read_table(absences, courses.ABSENCES, one_a_request=False),
    )
    plan, request = (found.chunks[name].to_numpy(np.int64) for name in ("plan", "request_id"))
    last = len(timeseries) - 1
    _require(chunks, "plan", plan, plan <= last, f"rows of timeseries.parquet (0 to {last})")
    _require(chunks, "plan", plan, np.diff(plan, prepend=0) >= 0, "rows in ascending order")
    places = requests.set_index("request_id")["replica"]
    for path, frame in zip((chunks, absences), found, strict=True):
        ids = frame["request_id"].to_numpy(np.int64)
        _require(path, "request_id", ids, np.isin(ids, places.index), "ids of requests.parquet")
    if (directory / HANDOVERS).is_file():  # prompts were computed on other replicas
        return found
    same = places.loc[request].to_numpy() == timeseries["replica"].to_numpy()[plan]
    _require(chunks, "request_id", request, same, "requests of the replica that ran the plan")
    return found


def _require(
    path: Path, name: str, values: NDArray[Any], holds: NDArray[np.bool_], allowed: str
) -> None:
    """Raise UsageError that names the first of ``values`` for which ``holds`` is false."""
    if not holds.all():
        row = int(np.argmin(holds))
        raise UsageError(
            f"{path}: {name}: expected {allowed}, found {values[row]} in row {row + 1}"
        )
