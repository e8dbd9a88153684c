"""Provides the share of a run in which requests still came, which its costs per token are of.

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

KEEPS_UP = (State.STABLE, State.NEAR_SATURATION)
"""States of fleets that serve requests as fast as they come."""

NAMED = 0.03
"""Share of a run from which its drain is named: with less, rates differ in their third digit."""


def arriving_share(run: RunRecord, verdict: Mapping[str, Any]) -> float:
    """The share of the run's duration that its requests take to come at the rate of their law, or
    as they came; 1 where the fleet does not keep up, or requests wait for answers."""
    if verdict["state"] not in KEEPS_UP or run.duration <= 0 or run.interrupted:
        return 1.0
    rate, accepted = run.steady_rate, run.accepted
    if rate is not None and run.sessions is None:
        seconds = len(run.requests) / rate
    elif len(accepted) > 1:
        first, last = float(accepted["arrival"][0]), float(accepted["arrival"][-1])
        seconds = (last - first) * len(accepted) / (len(accepted) - 1)
    else:
        return 1.0
    return min(1.0, seconds / run.duration)


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
