"""Provides the share of a run in which requests still came, which its costs per token are of,
and what came per second, which no throughput exceeds in the long run.

A run ends with the last answer. After the last arrival a fleet only finishes what it has begun; one
whose traffic goes on never does. So costs per token are those while requests come. An overloaded
fleet goes on at its capacity until the end, so that the whole run counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.loop.recorder import REJECTED
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.scenario.sections.arrivals import BurstArrivals, ClosedArrivals

KEEPS_UP = (State.STABLE, State.NEAR_SATURATION)
"""States of fleets that serve requests as fast as they come."""

NAMED = 0.03
"""Share of a run from which its drain is named: with less, rates differ in their third digit."""


def arriving_share(run: RunRecord, verdict: Mapping[str, Any]) -> float:
    """The share of the run's duration that its requests take to come at the rate of their law, or
    as they came; 1 where the fleet does not keep up, or requests wait for answers."""
    if verdict["state"] not in KEEPS_UP or run.duration <= 0 or run.interrupted:
        return 1.0
    seconds = _seconds(run)
    return 1.0 if seconds is None else min(1.0, seconds / run.duration)


def _seconds(run: RunRecord) -> float | None:
    """The time that the requests take to come at the rate of their law, or as they came; None where
    fewer than two did."""
    rate, accepted = run.steady_rate, run.accepted
    if rate is not None and run.sessions is None:
        return len(run.requests) / rate
    if len(accepted) < 2:
        return None
    first, last = float(accepted["arrival"][0]), float(accepted["arrival"][-1])
    return (last - first) * len(accepted) / (len(accepted) - 1)


def offered(run: RunRecord) -> dict[str, float]:
    """The requests and tokens that arrive per second in an open loop, by the keys of the summary's
    throughput; none where requests wait for answers, or all come at once."""
    waits = isinstance(run.scenario.workload.arrivals, BurstArrivals | ClosedArrivals)
    seconds = None if waits or run.sessions is not None else _seconds(run)
    if not seconds:
        return {}
    outputs = float(run.requests["output_tokens"].sum()) / seconds
    return {
        "request_throughput": len(run.requests) / seconds,
        "output_throughput": outputs,
        "total_token_throughput": outputs + float(run.requests["prompt_tokens"].sum()) / seconds,
    }


def drain_note(run: RunRecord, verdict: Mapping[str, Any]) -> str | None:
    """A note on the end of a run where it distorts rates enough to be misread."""
    share = arriving_share(run, verdict)
    if 1 - share < NAMED:
        return None
    accepted = int((run.requests["status"] != REJECTED).sum())
    came = accepted / (share * run.duration)
    return (
        f"{came:.3g} requests/s were accepted and served while they came; for the last "
        f"{1 - share:.0%} of the run the fleet only finished what it had begun, so that rates over "
        "the whole run are lower. Costs and energy per token are those while requests come."
    )
