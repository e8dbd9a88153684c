"""Decides whether a fleet meets its SLO, by more than the requests of its run.

What these had is ``attainment.judge_slo``. It stays open where only requests miss the SLO that the
end of the run cut off, and where they may be within it only because they came early: to an empty
fleet, before the peak, or while sessions are still short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.attainment import judge_slo
from sim.metrics.intervals import share_interval
from sim.metrics.long_enough import (
    doubt,
    enough_of_all,
    grows_at_its_end,
    holds_without_start,
    is_near,
    relaxation,
    too_much,
    too_short,
)
from sim.metrics.peak import Peak
from sim.metrics.run_record import RunRecord
from sim.metrics.slo_text import is_apart
from sim.metrics.stability import Load
from sim.metrics.states import DoubtKind, SloState
from sim.metrics.unfinished import missed_by_unfinished_alone
from sim.metrics.usual_sessions import Usual, usual


def slo_verdict(run: RunRecord, found: Load | None, top: Peak | None) -> dict[str, Any]:
    """The SLO part of a verdict (``attainment.judge_slo``) for the load that was ``found``, None if
    that is no property of the traffic, and its peak."""
    slo = _judged(run, found)
    slo |= _by_the_end(run, found, slo)
    if found is not None:
        slo |= _in_the_long_run(run, found, top, slo)
    return slo


def _judged(run: RunRecord, found: Load | None) -> dict[str, Any]:
    """The SLO part of these requests alone; near saturation with the intervals of a fleet that
    remembers for long. Where more may arrive than is served there is no such interval: then it says
    only whether the requests could miss the SLO by chance."""
    slo = judge_slo(run)
    if found is None or not is_near(found, run.scenario.workload.arrivals):
        return slo
    if too_short(found) and slo["slo_state"] != SloState.MISSED:
        return slo
    return judge_slo(run, relaxation(found))


def _by_the_end(run: RunRecord, found: Load | None, slo: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of an SLO that only requests miss which the end of the run cut off; nothing
    where more arrives than is served."""
    if slo["slo_state"] != SloState.MISSED or (found is not None and too_much(found)):
        return {}
    if not missed_by_unfinished_alone(run):
        return {}
    return {"slo_state": SloState.OPEN, "slo_doubts": [DoubtKind.UNFINISHED], "first_limit": None}


def _in_the_long_run(
    run: RunRecord, found: Load, top: Peak | None, slo: Mapping[str, Any]
) -> dict[str, Any]:
    """What becomes of the SLO part where the requests so far may be within the limits only because
    the fleet was empty when they came; nothing where they are beyond them all the same."""
    if slo["slo_state"] not in (SloState.MET, SloState.OPEN):
        return {}
    law = run.scenario.workload.arrivals
    why = doubt(found, top, law)
    grows = law is None and grows_at_its_end(found)
    lacks_peak = run.cut is not None and not run.cut.has_peak
    flattered = (
        slo["slo_state"] == SloState.MET and is_near(found, law) and not _without_start(found, slo)
    )
    expected = usual(run)
    young = (
        expected is not None
        and slo["slo_state"] == SloState.MET
        and _missed_later(run, expected, slo)
    )
    if why is None and not grows and not lacks_peak and not flattered and not young:
        return {}
    enough = enough_of_all(found, law)
    if young and expected is not None:
        enough = max(enough or 0, expected.enough)
    return {
        "slo_state": SloState.OPEN,
        "slo_doubts": [why or DoubtKind.LENGTH, *slo["slo_doubts"]],
        "requests_to_decide": enough,
    }


def _missed_later(run: RunRecord, expected: Usual, slo: Mapping[str, Any]) -> bool:
    """Whether the second half of a run that lacks later turns of its sessions leaves open whether
    it meets the SLO: latencies rise while sessions grow older."""
    apart = any(is_apart(name) for name in slo["limits"])
    if apart or slo["target"] is None or not expected.outlasts(run.duration):
        return False
    counted = run.within_slo[run.completed & ~run.warmup]
    low, _ = share_interval(counted[len(counted) // 2 :])
    return low < float(slo["target"])


def _without_start(found: Load, slo: Mapping[str, Any]) -> bool:
    """Whether the SLO would be met even if none of its late requests had come at the start."""
    apart = [limit for name, limit in slo["limits"].items() if is_apart(name)]
    shares = [(limit["low"], limit["target"]) for limit in apart]
    if len(apart) < len(slo["limits"]):
        shares.append((slo["attainment_low"], slo["target"]))
    start = relaxation(found) / len(found.arrived)
    return all(target == 1 or holds_without_start(low, target, start) for low, target in shares)
