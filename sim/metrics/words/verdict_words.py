"""Words the verdict of a run: what its fleet does with the traffic, and why an SLO is missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.loop.recorder import REJECTED, UNFINISHED
from sim.metrics.enough.needed_requests import reach, simulate_more
from sim.metrics.fleet.by_pool import limiting_text
from sim.metrics.fleet.failures import given_up_text
from sim.metrics.fleet.lost_work import lost_work_text
from sim.metrics.load.busiest import BusiestReplica
from sim.metrics.load.long_enough import DOUBT, SURE, enough_of_all, too_short
from sim.metrics.load.peak import Peak, bursts
from sim.metrics.load.stability import Load
from sim.metrics.load.verdict import FleetVerdict, Why
from sim.metrics.record.pools import names
from sim.metrics.record.queues import longest_growth
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import SloState, State, Unserved
from sim.metrics.texts import SENT_MOST, Composed, replica_name
from sim.scenario.sections.run import Warmup
from sim.units import show_number, show_share, show_time, show_utilisation

OPENING = 2
"""Requests of each user of a closed loop that are its opening: the first come all at once, and some
of the second ones while those are still being served."""

VAGUE = 0.05
"""Half-width of the interval of a utilisation from which on the interval is stated instead."""

LASTING = 0.02
"""Share of a run for which its queue must have grown to be worth a sentence."""

WITHOUT_LOAD = {
    Why.NOTHING_SERVED: "No request was completed.",
    Why.SINGLE_REQUEST: "A single request, which has the fleet to itself: no load to judge.",
    Why.CLOSED_LOOP: "clients wait for their answers, so the load adapts.",
    Why.SESSIONS_TOGETHER: "all sessions start together, and later turns wait for their answers; "
    "only throughput counts.",
    Why.ALL_AT_ONCE: "all requests are there from the start; only throughput counts.",
}
"""The texts for a fleet whose load is no property of its traffic."""

WITHOUT_STATE = (Why.NOTHING_SERVED, Why.SINGLE_REQUEST)
"""Of these the sentence does not begin with the state."""


ABOUT_TO_EXPLODE = (
    "A little more load, or a little less speed than predicted, and waiting times explode."
)

CAPACITY_OF_ALL = "the fleet's capacity"
"""The capacity where that of a replica is named next to it."""

UNSERVED: Mapping[str, str] = {
    Unserved.REJECTED: "the rejected requests",
    Unserved.LOST: "requests that were lost with a replica or found none",
    Unserved.TIMED_OUT: "requests whose clients did not wait any longer",
}
"""The requests by which an SLO is missed where a fleet has capacity left."""


def verdict_text(
    run: RunRecord, verdict: FleetVerdict, slo: Mapping[str, Any], lost: float
) -> Composed:
    """The text of a verdict, whose part on the SLO is ``slo``; ``lost`` is the share of the GPU
    time that failed attempts took."""
    found, why, told, state = verdict.load, verdict.whys[0], "", ""
    if found is None:
        told = WITHOUT_LOAD[why]
    else:
        told = _taken(run, verdict, found)
    if why not in WITHOUT_STATE:
        state = f"{verdict.state.capitalize()}: "
        if run.cut is not None:
            state += f"{run.cut.text}. "
            told = f"{told[0].upper()}{told[1:]}"
    parts = {"state": state, "told": told}
    if found is not None and verdict.state == State.STABLE and slo["slo_state"] == SloState.MISSED:
        parts |= _missed(run, found, slo)
    completed = int(run.completed.sum()) / run.duration if lost else 0.0
    parts["lost"] = given_up_text(run) + lost_work_text(lost, completed)
    if verdict.by_pool is not None:
        parts["pools"] = limiting_text([pool.settings.name for pool in run.pools], verdict.by_pool)
    if slo["slo_state"] in (SloState.MISSED, SloState.OPEN):
        parts["opening"] = _opening(run, slo["attainment"])
    if found is not None and found.estimated:
        batching = names(pool.settings.scheduler.batching for pool in run.pools)
        parts["estimated"] = (
            f" The capacity is an estimate: {batching} does not state the "
            "shape of its full batches."
        )
    return Composed(parts)


def opened(text: Composed) -> Composed:
    """The ``text`` of a verdict whose SLO turned out too close to call: the predicted times decide.

    >>> missed = {"told": "Stable.", "missed": " The SLO is missed all the same", "late": "."}
    >>> opened(Composed(missed)), opened(Composed({"told": "Stable."}))
    ('Stable. At the predicted times the SLO is missed.', 'Stable.')
    """
    if "missed" not in text.parts:
        return text
    return text.saying(missed=" At the predicted times the SLO is missed")


def _taken(run: RunRecord, verdict: FleetVerdict, found: Load) -> str:
    """The traffic's share of the capacity, and of that of a replica or a pool that overrules it."""
    if Why.POOL in verdict.whys:
        told = _under_load(run, verdict, found)
        return f"the router sends one pool more than it can serve, although {told}"
    if len(verdict.whys) == 1:
        return _under_load(run, verdict, found)
    told = f"{_shares(run, verdict, found)[0]}.{_growth(run, found)}"
    if verdict.whys[1] == Why.REPLICA_NEAR:
        told += f" {ABOUT_TO_EXPLODE}"
    if verdict.whys[1] == Why.REPLICA_SWALLOWED:
        told += f" {_simulate(run, found)}"
    return f"{told}{_ending(run)}"


def _shares(run: RunRecord, verdict: FleetVerdict, found: Load) -> tuple[str, str]:
    """The traffic's share of the capacity, and the interval of it; that of the busiest replica goes
    first where a router deals unevenly."""
    share, error, one = found.utilisation, found.error, found.uneven
    capacity = f"{'the capacity' if one is None else CAPACITY_OF_ALL}{_when(run, verdict.peak)}"
    all_there = len(found.arrived) == len(run.requests)
    traffic = "the traffic takes" if all_there else "what is accepted of the traffic takes"
    between = f"between {share - SURE * error:.0%} and {share + SURE * error:.0%}"
    first = "" if one is None else f"{_busiest(one)}; "
    return (
        f"{first}{traffic} {show_utilisation(share)} of {capacity}",
        f"{first}{traffic} {between} of {capacity}",
    )


def _busiest(one: BusiestReplica) -> str:
    """What the busiest replica takes of its own capacity."""
    used = show_utilisation(one.utilisation)
    return f"{replica_name(one.replica)}, {SENT_MOST}, takes {used} of its own capacity"


def _under_load(run: RunRecord, verdict: FleetVerdict, found: Load) -> str:
    """The traffic of the fleet as a whole, and its fate."""
    why, share, error, one = verdict.whys[0], found.utilisation, found.error, found.uneven
    were = "was" if found.backlog == 1 else "were"
    waiting = f"{found.backlog:,} {were} waiting at the last arrival"
    taken, between = _shares(run, verdict, found)
    match why:
        case Why.PILED_UP:
            dealt = " as they are dealt" if one else f" ({share:.0%} of the capacity)"
            served = f"{show_number(found.rate / verdict.most)} can be served{dealt}"
            return (
                f"{'' if one is None else f'{_busiest(one)}; '}"
                f"{show_number(found.rate)} requests/s arrive{_when(run, None)}, {served}; "
                f"{waiting}. Latencies depend on how long this goes on."
            )
        case Why.SWALLOWED:
            return f"probably overloaded, {taken}, but only {waiting}. {_simulate(run, found)}"
        case Why.UNKNOWN:
            return f"{between}. {_simulate(run, found)}"
        case Why.NEAR:
            told = between if SURE * error > VAGUE else taken
            return f"{_near(run, told, found)}{_growth(run, found)}"
        case Why.GROWING:
            return (
                f"{taken}, but {found.late:.0%} in its last tenth, and {waiting}. "
                "A longer trace would tell."
            )
    return f"{taken}.{_growth(run, found)}{_ending(run)}"


def _ending(run: RunRecord) -> str:
    """The requests that were not finished when the run ended; empty where there are none."""
    left = int((run.requests["status"] == UNFINISHED).sum())
    late = ", and count as beyond the limits" if run.scenario.slo.stated else ""
    were = "1 request was" if left == 1 else f"{left:,} requests were"
    return f" {were} not finished when it ended{late}." if left else ""


def _near(run: RunRecord, taken: str, found: Load) -> str:
    """The text on a utilisation close to 1, and on one beyond it that may be chance."""
    excess = found.utilisation - 1
    if excess > 0 and not too_short(found):
        return f"probably overloaded, {taken}."
    told = " It may be too much already." if excess + SURE * found.error > DOUBT else ""
    if excess - DOUBT > found.error / 2:  # else no number would show it for sure
        return f"{taken}.{told} {_simulate(run, found)}"
    if excess > 0:
        return f"{taken}.{told}"
    return f"{taken}.{told} {ABOUT_TO_EXPLODE}"


def _simulate(run: RunRecord, found: Load) -> str:
    if _law(run) is None:
        if run.cut is not None:
            return f"The whole trace ({run.cut.remedy}) would tell."
        if len(run.requests) == run.scenario.run.requests:
            return "More requests of the trace (run.requests) would tell."
        return "A longer trace would tell."
    enough = enough_of_all(found)
    assert enough is not None
    return simulate_more(reach(run), enough)


def _law(run: RunRecord) -> str | None:
    """The kind of the arrivals; None for a trace."""
    arrivals = run.scenario.workload.arrivals
    return None if arrivals is None else arrivals.kind


def _when(run: RunRecord, top: Peak | None) -> str:
    """At which of several rates the traffic is judged, and what it takes at the peak; empty where
    there is but one."""
    cut = run.cut
    if _law(run) == "ramp":
        text = " at the end of the ramp" if cut is None else " when the run ends"
    elif _law(run) is None:
        cut, text = None, " on average" if top is not None else ""
    elif cut is not None:
        text = " on average over a whole cycle"
    else:
        text = " on average" if top is not None or _law(run) == "diurnal" else ""
    if top is None:
        return text
    text += f", {show_utilisation(top.utilisation)} {top.when}"
    if top.brief is not None:
        text += f" and {show_utilisation(top.brief.utilisation)} {top.brief.when}"
    if run.cut is not None and _law(run) is None:
        return f"{text} of this part"
    return text if cut is None or cut.has_peak else f"{text}, which was not simulated"


def _growth(run: RunRecord, found: Load) -> str:
    """The effect of a changing rate on the queue for a while; empty where it does not change."""
    if _law(run) not in ("ramp", "diurnal", None):
        return ""
    accepted = run.accepted
    grown = longest_growth(run.reached(accepted), accepted["scheduled"])
    lasted, span = grown.until - grown.since, float(np.ptp(accepted["arrival"]))
    if grown.requests <= found.batch or lasted < LASTING * span:
        return ""
    return (
        f" The queue was longest {show_time(grown.until)} after the start: "
        f"{grown.requests:,} requests, after it had grown for {show_time(lasted)}."
    )


def _missed(run: RunRecord, found: Load, slo: Mapping[str, Any]) -> dict[str, str]:
    """Why requests miss the SLO although there is capacity left: the parts ``missed``, unless
    requests that were not served make it so, and ``late``."""
    if slo["first_limit"] in UNSERVED:
        return {"late": f" The SLO is missed because of {UNSERVED[slo['first_limit']]}."}
    missed = {"missed": " The SLO is missed all the same"}
    accepted = run.requests["status"] != REJECTED
    fine = run.within_slo | run.set_aside(run.scenario.slo.of_request)
    why = bursts(found, fine[accepted])
    if why is None:
        return {**missed, "late": "."}
    return {
        **missed,
        "late": f", and bursts are why: in {show_utilisation(why.share)} of "
        f"the {why.name} more than the capacity arrives "
        f"({show_utilisation(why.peak.utilisation)} of it {why.peak.when}), and "
        f"{show_share(why.late)} of the requests beyond the SLO come then or right after.",
    }


def _opening(run: RunRecord, attainment: float | None) -> str:
    """The SLO's result without the first requests of each user, which find does not count; empty
    where that is not more, or the scenario says itself what to leave out."""
    arrivals = run.scenario.workload.arrivals
    if arrivals is None or arrivals.kind != "closed":
        return ""
    later = run.within_slo[OPENING * arrivals.concurrency :]
    if attainment is None or run.scenario.run.warmup != Warmup() or not later.size:
        return ""
    share, first = float(np.mean(later)), OPENING * arrivals.concurrency
    if share <= attainment:
        return ""
    return (
        f" All {arrivals.concurrency:,} users begin at once: without the first two requests of "
        f"each, {show_share(share, run.scenario.slo.attainment)} of requests are within the SLO. "
        f"`infersim find` counts only those, in longer runs; run.warmup={first} does so here."
    )
