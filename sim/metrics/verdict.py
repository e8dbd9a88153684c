"""The plain answer: does it hold this traffic, are the limits met, and which breaks first?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.metrics.recorder import REJECTED, UNFINISHED
from sim.metrics.stability import FULL, queue_drift

if TYPE_CHECKING:
    from sim.metrics.summary import RunRecord


def judge(run: RunRecord) -> dict[str, Any]:
    """``state``, ``text`` and the SLO's attainment, in total and limit by limit."""
    state, text = _state(run)
    slo = run.scenario.slo
    judged = ~run.warmup
    judged_count = int(judged.sum())
    attainment = float(run.within_slo[judged].mean()) if judged_count else None
    limits = {}
    for name, limit, latency in (("ttft", slo.ttft, run.ttft), ("tpot", slo.tpot, run.tpot)):
        if limit is not None:
            held = run.completed & (np.isnan(latency) | (latency <= limit))
            share = float(held[judged].mean()) if judged_count else None
            limits[name] = {"limit_ms": limit * 1e3, "attainment": share}
    met = None
    if limits and attainment is not None:
        met = attainment >= slo.attainment
    shares = {name: entry["attainment"] for name, entry in limits.items()}
    first = None
    if shares and None not in shares.values() and min(shares.values()) < 1:
        first = min(shares, key=lambda name: shares[name])
    return {
        "state": state,
        "text": text,
        "slo_met": met,
        "attainment": attainment if limits else None,
        "target": slo.attainment if limits else None,
        "first_limit": first,
        "limits": limits,
    }


def _state(run: RunRecord) -> tuple[str, str]:
    if not run.completed.any():
        return "no traffic served", "No request was completed."
    arrivals = run.scenario.workload.arrivals
    kind = "trace" if arrivals is None else arrivals.kind
    if kind == "closed":
        return "closed loop", "Closed loop: clients wait for their answers, so the load adapts."
    accepted = run.requests["status"] != REJECTED
    arrived = run.requests["arrival"][accepted]
    if kind == "burst" or arrived[-1] <= arrived[0]:
        return "offline", "Offline: all requests are there from the start; only throughput counts."
    front_end = run.deployment.engine.front_end
    drift = queue_drift(arrived + front_end, run.requests["scheduled"][accepted])
    if drift.overloaded:
        rate = len(arrived) / (arrived[-1] - arrived[0])
        return "overloaded", (
            f"Overloaded: of {rate:.3g} requests/s arriving, {drift.share:.0%} stay in the queue, which "
            "grows as long as the traffic lasts. Latencies depend on how long that is."
        )
    occupancy, what = _occupancy(run)
    if occupancy >= FULL:
        return "near saturation", (
            f"Near saturation: {occupancy:.0%} of the {what} taken on average. A little more load, or a "
            "little less speed than predicted, and waiting times explode."
        )
    left = int((run.requests["status"] == UNFINISHED).sum())
    ending = f" {left:,} requests were not finished when it ended." if left else ""
    return "stable", f"Stable: the queue does not grow.{ending}"


def _occupancy(run: RunRecord) -> tuple[float, str]:
    """Mean share of seats, or of KV memory, taken while requests arrived, whichever is more."""
    plans, arrivals = run.plans, run.requests["arrival"]
    during = plans[plans["start"] <= arrivals.max()]
    span = (arrivals.max() - arrivals.min()) * run.replicas
    durations = np.minimum(during["end"], arrivals.max()) - during["start"]
    seats = float(np.dot(during["running"], durations)) / span / run.limits.max_num_seqs
    tokens = run.capacity.usable_blocks * run.capacity.block_size
    memory = float(np.dot(during["reserved"], durations)) / span / tokens
    return (seats, "seats of the batch are") if seats >= memory else (memory, "KV cache is")
