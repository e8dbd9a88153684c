"""Takes a run whose pools prefill and decode apart to pieces, of which each serves whole requests.

In the piece of the prefill pools a request ends when its prompt is complete; from then on it waits
in that of the decode pools. Times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.export.source import ExportSource
from sim.results.stored import read_table
from sim.results.trail_files import HANDOVERS, Trail

COLUMNS = ("request_id", "prefill_replica", "replica", "prefilled_s", "sent_s", "arrived_s")
"""Columns read of the hand-overs."""

PREFILLS = ", prefill"
"""How the name of a pool ends that prefills."""


@dataclass(frozen=True, eq=False)
class PhasePieces:
    """The prefill and decode pieces of a run, and its hand-overs (``COLUMNS``)."""

    prefill: ExportSource
    decode: ExportSource
    handed: pd.DataFrame


def pool_names(source: ExportSource) -> dict[int, str]:
    """The pool of each replica by number, with the phase that it serves; empty for a single pool.

    Data ranks of a replica, and batches in flight, have numbers of their own.
    """
    pools = source.scenario["fleet"]
    found: dict[int, str] = {}
    for pool in pools if len(pools) > 1 else ():
        replicas = pool["replicas"]
        count = replicas["max"] if isinstance(replicas, dict) else replicas
        count *= max(pool["data_parallel"], pool["pipeline_parallel"])
        role = "" if pool["role"] == "both" else f", {pool['role']}"
        found |= {len(found) + at: f"{pool['name']}{role}" for at in range(count)}
    return found


def phases(source: ExportSource) -> PhasePieces | None:
    """The pieces of ``source``; None where each pool serves all of a request. UsageError where the
    table of hand-overs is damaged."""
    if "handover" not in source.summary.get("infersim", {}):
        return None
    path = source.path / HANDOVERS
    if not path.is_file():
        raise UsageError(f"{source.path}: has no {HANDOVERS}, so who prefilled is not known")
    handed = read_table(path, COLUMNS)
    prefills = {number for number, name in pool_names(source).items() if name.endswith(PREFILLS)}
    ran = source.timeseries["replica"].isin(prefills).to_numpy()
    return PhasePieces(
        prefill=_piece(source, _prefilled(source, handed, prefills), ran),
        decode=_piece(source, _decoded(source, handed, prefills, ran), ~ran),
        handed=handed,
    )


def _prefilled(source: ExportSource, handed: pd.DataFrame, prefills: set[int]) -> pd.DataFrame:
    """Requests as the prefill pools saw them: one token each, which comes with the prompt."""
    own = source.requests
    there = handed.set_index("request_id")
    mine = own[own["request_id"].isin(handed["request_id"]) | own["replica"].isin(prefills)].copy()
    done = mine["request_id"].map(there["prefilled_s"])
    replicas = mine["request_id"].map(there["prefill_replica"]).fillna(mine["replica"])
    return mine.assign(
        replica=replicas.astype(own["replica"].dtype),
        first_token_s=done,
        finish_s=done,
        output_tokens=1,
        generated_tokens=done.notna().astype(own["generated_tokens"].dtype),
        preemptions=0,
    )


def _decoded(
    source: ExportSource, handed: pd.DataFrame, prefills: set[int], ran: NDArray[np.bool_]
) -> pd.DataFrame:
    """Requests as the decode pools saw them: they wait from when their prompt was complete until
    the first of their iterations there."""
    complete = handed.set_index("request_id")["prefilled_s"]
    rows = source.requests[~source.requests["replica"].isin(prefills)].copy()
    over = rows["request_id"].isin(handed["request_id"])
    begun = _first_chunks(source, ran)
    rows.loc[over, "arrival_s"] = rows.loc[over, "request_id"].map(complete)
    rows.loc[over, "scheduled_s"] = rows.loc[over, "request_id"].map(begun)
    return rows[rows["arrival_s"].notna()].reset_index(drop=True)


def _first_chunks(source: ExportSource, ran: NDArray[np.bool_]) -> pd.Series[Any]:
    """When each request was first in an iteration of a decode pool."""
    if source.trail is None:
        return pd.Series(dtype=float)
    chunks = source.trail.chunks[~ran[source.trail.chunks["plan"].to_numpy()]]
    starts = source.timeseries["start_s"].to_numpy()[chunks["plan"].to_numpy()]
    return pd.Series(starts, index=chunks["request_id"].to_numpy()).groupby(level=0).min()


def _piece(source: ExportSource, requests: pd.DataFrame, ran: NDArray[np.bool_]) -> ExportSource:
    """``source`` with these requests, and of the trail what happened in the plans that ``ran``
    there; preemptions are those of the decode pools."""
    summary = {**source.summary, "infersim": dict(source.summary["infersim"])}
    del summary["infersim"]["handover"]
    trail = source.trail
    if trail is not None:
        chunks = trail.chunks[ran[trail.chunks["plan"].to_numpy()]]
        away = trail.absences
        ends = requests.set_index("request_id")[["arrival_s", "finish_s"]]
        found = ends.reindex(away["request_id"])
        inside = away["time_s"].to_numpy() >= found["arrival_s"].to_numpy()
        inside &= ~(away["time_s"].to_numpy() > found["finish_s"].to_numpy())
        trail = Trail(chunks, away[inside])
    return replace(source, summary=summary, requests=requests.reset_index(drop=True), trail=trail)
