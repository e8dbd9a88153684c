"""Computes the work that was done for attempts which came to nothing.

Prompt tokens that were computed, output tokens, and the GPU time of both. The time of an iteration
is shared equally by the tokens computed in it. Times in seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import AttemptRows
from sim.loop.recorder import GAVE_UP
from sim.metrics.record.run_record import RunRecord
from sim.units import show_number, show_share

Floats = NDArray[np.float64]

WORTH_SAYING = 0.01
"""Share of the GPU time from which on a verdict says that it was lost."""


def lost_work(run: RunRecord) -> float:
    """The share of the GPU time that attempts took which came to nothing; 0 where it is not worth
    a word."""
    if run.attempts is None or not len(run.attempts.failed):
        return 0.0
    share = wasted(run, run.attempts)["gpu_share"] or 0.0
    return float(share) if share >= WORTH_SAYING else 0.0


def lost_work_text(share: float, completed: float) -> str:
    """The sentence on capacity where ``share`` of the GPU time went to failed attempts, and
    ``completed`` requests were served per second; empty for 0.

    >>> lost_work_text(0.8, 9.41)
    ' That capacity leaves out part of the lost work: 80% of the GPU time went to failed attempts, and 9.41 requests/s were completed.'
    """  # noqa: E501
    if not share:
        return ""
    return (
        f" That capacity leaves out part of the lost work: {show_share(share)} of the GPU time "
        f"went to failed attempts, and {show_number(completed)} requests/s were completed."
    )


def wasted(run: RunRecord, rows: AttemptRows) -> dict[str, Any]:
    """The tokens and the GPU time of failed attempts, and its share of the time in which GPUs
    computed (None where they did not)."""
    plans = run.plans
    gpus = _gpus(run, plans["replica"])
    tokens = plans["prefill_tokens"] + plans["decode"].astype(np.int64) * plans["iterations"]
    seconds = run.durations * gpus
    each = np.divide(seconds, tokens, out=np.zeros(len(plans)), where=tokens > 0)
    chunks = [rows.chunks]
    if run.trail is not None:
        left = run.requests["id"][run.requests["status"] == GAVE_UP]
        chunks.append(run.trail[0][np.isin(run.trail[0]["request"], left)])
    lost = np.concatenate(chunks)
    unfinished = float((rows.outages["computing"] * _replica_gpus(run, rows)).sum())
    spent = float((lost["tokens"] * each[lost["plan"]]).sum()) + unfinished
    spent += _decoding(run, rows, each)
    busy = float(seconds.sum()) + unfinished
    return {
        "prompt_tokens": int(lost["tokens"].sum()),
        "output_tokens": int(rows.failed["generated"].sum()),
        "gpu_seconds": _digits(spent),
        "gpu_share": _digits(spent / busy) if busy else None,
    }


def _decoding(run: RunRecord, rows: AttemptRows, each: Floats) -> float:
    """GPU seconds in which failed attempts got tokens after their first; ``each`` has those of one
    token of each plan. Exact where no attempt was preempted."""
    plans, spent = run.plans, 0.0
    started = rows.failed[rows.failed["generated"] > 1]
    for number in np.unique(started["replica"]).tolist():
        mine, own = started[started["replica"] == number], plans["replica"] == number
        steps = np.where(plans["decode"][own] > 0, plans["iterations"][own], 0)
        given, cost = (np.concatenate([[0.0], np.cumsum(v)]) for v in (steps, steps * each[own]))
        begin = given[np.searchsorted(plans["end"][own], mine["first_token"], side="right")]
        spent += float(
            np.interp(begin + mine["generated"] - 1, given, cost).sum()
            - np.interp(begin, given, cost).sum()
        )
    return spent


def _gpus(run: RunRecord, numbers: NDArray[np.int32]) -> Floats:
    """GPUs that compute a plan of the replica, or data rank, of each number."""
    found = np.zeros(len(numbers))
    for pool in run.pools:
        layout = pool.deployment.layout
        found[np.isin(numbers, pool.settings.numbers)] = layout.gpus / layout.batches
    return found


def _replica_gpus(run: RunRecord, rows: AttemptRows) -> Floats:
    """GPUs of the replica of each outage."""
    whole = np.array([pool.deployment.layout.batches for pool in run.pools], dtype=float)
    owner = pools_of(run, rows)
    return np.asarray(_gpus(run, rows.outages["replica"]) * whole[owner])


def pools_of(run: RunRecord, rows: AttemptRows) -> NDArray[np.int64]:
    """The place of the pool of each outage."""
    found = np.zeros(len(rows.outages), dtype=np.int64)
    for place, pool in enumerate(run.pools):
        found[np.isin(rows.outages["replica"], pool.settings.numbers)] = place
    return found


def _digits(value: float) -> float:
    """Six digits: more would not be the same with leaps and without."""
    return float(f"{value:.6g}")
