"""The plain answer: does it hold this traffic, are the limits met, and which breaks first?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.metrics.stability import FULL, SETTLED, load, still_filling
from sim.recorder import REJECTED, UNFINISHED
from sim.units import show_time

if TYPE_CHECKING:
    from sim.metrics.summary import RunRecord


def judge(run: RunRecord) -> dict[str, Any]:
    """``state``, ``text`` and the SLO's attainment, in total and limit by limit."""
    state, text = _state(run)
    slo = run.scenario.slo
    judged = ~run.warmup
    limits: dict[str, tuple[float, float]] = {}
    for name, limit, latency in (("ttft", slo.ttft, run.ttft), ("tpot", slo.tpot, run.tpot)):
        if limit is not None and judged.any():
            held = run.completed & (np.isnan(latency) | (latency <= limit))
            limits[name] = limit, float(held[judged].mean())
    attainment = float(run.within_slo[judged].mean()) if limits else None
    return {
        "state": state,
        "text": text,
        "slo_met": None if attainment is None else attainment >= slo.attainment,
        "attainment": attainment,
        "target": slo.attainment if limits else None,
        "first_limit": _first_limit(run),
        "limits": {
            name: {"limit_ms": limit * 1e3, "attainment": share}
            for name, (limit, share) in limits.items()
        },
    }


def _first_limit(run: RunRecord) -> str | None:
    """The limit that completed requests come closest to, or exceed most, at the wanted attainment.

    None without limits, and without requests to judge by.
    """
    slo, judged = run.scenario.slo, run.completed & ~run.warmup
    pressure = {}
    for name, limit, latency in (("ttft", slo.ttft, run.ttft), ("tpot", slo.tpot, run.tpot)):
        seen = latency[judged & ~np.isnan(latency)]
        if limit is not None and len(seen):
            pressure[name] = float(np.quantile(seen, slo.attainment)) / limit
    return max(pressure, key=lambda name: pressure[name], default=None)


def _state(run: RunRecord) -> tuple[str, str]:
    if not run.completed.any():
        return "no traffic served", "No request was completed."
    arrivals = run.scenario.workload.arrivals
    kind = "trace" if arrivals is None else arrivals.kind
    if kind == "closed":
        return "closed loop", "Closed loop: clients wait for their answers, so the load adapts."
    arrived = run.requests["arrival"][run.requests["status"] != REJECTED]
    if kind == "burst" or arrived[-1] <= arrived[0]:
        return "offline", "Offline: all requests are there from the start; only throughput counts."
    return _state_under_arrivals(run)


def _state_under_arrivals(run: RunRecord) -> tuple[str, str]:
    """The state of a fleet to which requests come whatever it does."""
    accepted = run.requests["status"] != REJECTED
    arrived = run.requests["arrival"][accepted]
    front_end = run.deployment.engine.front_end
    pressure = load(
        arrived + front_end, run.requests["scheduled"][accepted], run.plans, run.replicas
    )
    if pressure.overloaded(run.limits.max_num_seqs * run.replicas):
        assert pressure.utilisation is not None
        rate = len(arrived) / (arrived[-1] - arrived[0])
        return "overloaded", (
            f"Overloaded: {rate:.3g} requests/s arrive, {rate / pressure.utilisation:.3g} are "
            f"served; {pressure.backlog:,} were waiting at the last arrival. Latencies depend on "
            "how long this goes on."
        )
    occupancy, what = _occupancy(run)
    whole_batch = run.scenario.scheduler.batching in ("static", "request")
    if pressure.saturated > 0.5 and pressure.utilisation and not whole_batch:
        occupancy, what = max((occupancy, what), (pressure.utilisation, "capacity is"))
    if occupancy >= FULL:
        return "near saturation", (
            f"Near saturation: {min(occupancy, 1.0):.0%} of the {what} taken on average. A little "
            "more load, or a little less speed than predicted, and waiting times explode."
        )
    needed = SETTLED * float(np.nanmean(run.e2el))
    span = float(arrived[-1] - arrived[0])
    if span < needed and still_filling(arrived, run.requests["finish"][accepted]):
        return "too short to tell", (
            f"Too short to tell: requests arrive for {show_time(span)} and take "
            f"{show_time(needed / SETTLED)} on average, and more are in the system at the end than "
            f"in the middle. Simulate {len(arrived) * needed / span:,.0f} requests or more."
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
    seats = float((during["running"] * durations).sum()) / span / run.limits.max_num_seqs
    tokens = run.capacity.usable_blocks * run.capacity.block_size
    memory = float((during["reserved"] * durations).sum()) / span / tokens
    return (seats, "seats of the batch are") if seats >= memory else (memory, "KV cache is")
