"""Gives the plain answer of a run: whether it holds its traffic, meets its SLO, what breaks first.

What *holds* means is decided by two figures. The **utilisation** is the work that arrives, as a
share of what full batches could serve (``full_batch``, ``stability``). The **backlog** is what the
drift of the queue came to: requests still waiting at the last arrival.

- *overloaded*: more than the capacity arrives, beyond doubt, and more wait than fill the batches;
- *too short to tell*: the first without the second, since a batch that fills up swallows an
  overload for a while; or too few requests for the first, although they take more; or an error that
  leaves everything open; or a trace that ends while its queue grows;
- *near saturation*: a utilisation of ``FULL`` or more;
- *stable*: less.

So queues whose utilisation is known to be 0.5 or 0.7 are stable, 0.9 and 0.99 near saturation, and
1.1 overloaded as soon as the sample is long enough to tell it from 1. A replica that takes a larger
share of its own capacity than the fleet, beyond chance, is judged by the same rules, and the worse
state is that of the fleet. Ramps are judged by where
they lead, days by their mean, with what happens at the peak stated too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.loop.recorder import REJECTED, UNFINISHED
from sim.metrics.attainment import MISSED, OPEN
from sim.metrics.busiest import BusiestReplica
from sim.metrics.by_pool import limiting_text
from sim.metrics.failures import given_up_text
from sim.metrics.long_enough import (
    DOUBT,
    FULL,
    SURE,
    enough_of_all,
    grows_at_its_end,
    is_near,
    relaxation,
    too_much,
    too_much_for_one,
    too_short,
    unsettled,
)
from sim.metrics.lost_work import lost_work, lost_work_text
from sim.metrics.objectives import LOST, TIMED_OUT
from sim.metrics.objectives import REJECTED as BY_REJECTION
from sim.metrics.peak import Peak, bursts, peak
from sim.metrics.pools import names
from sim.metrics.reach import reach, reach_text
from sim.metrics.slo_verdict import slo_verdict
from sim.metrics.stability import Load, load, longest_growth
from sim.routers import router_class
from sim.scenario.sections.run import Warmup
from sim.units import show_number, show_share, show_time, show_utilisation

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord

MISSED_ANYWAY = "The SLO is missed all the same"
"""What a stable fleet that misses its SLO is said to do."""

OPENING = 2
"""Requests of each user of a closed loop that are its opening: the first come all at once, and some
of the second ones while those are still being served."""

VAGUE = 0.05
"""Half-width of the interval of a utilisation from which on the interval is stated instead."""

LASTING = 0.02
"""Share of a run for which its queue must have grown to be worth a sentence."""


def judge(run: RunRecord) -> dict[str, Any]:
    """``state`` and ``text``, the figures they rest on (None where there is no such thing), and the
    part of the SLO (``attainment.judge_slo``).

    ``headroom`` is the growth in traffic up to the capacity on average. ``slo_headroom`` is what
    is left to people: 0 where the SLO is missed, else the growth up to the capacity at the peak,
    which no SLO outlasts by much; None where that is not known. Near saturation ``settled`` says
    whether the run outlasts its empty start (``requests_to_settle``: how many would), of which a
    fleet is rid after ``relaxation_requests``; else all three are None. ``scales`` is there where
    the fleet scales itself: its capacity is that of the replicas held. ``lost_work`` is there where
    it lacks a share of the GPU time.
    """
    found = _load(run)
    top = None if found is None else peak(found, run.scenario.workload.arrivals)
    slo = slo_verdict(run, found, top)
    settling = _settling(run, found)
    by_pool = None if found is None or len(run.pools) == 1 else found.by_pool
    most = _most_of_a_pool(run, by_pool)
    state, text = _state(run, found, top, most)
    if found is not None and state == "too short to tell" and _law(run) is not None:
        settling |= {
            "settled": False,
            "requests_to_settle": enough_of_all(found, run.scenario.workload.arrivals),
        }
    if found is not None and state == "stable" and slo["slo_state"] == MISSED:
        text += _late_all_the_same(run, found, slo)
    lost = 0.0 if found is None else lost_work(run)
    completed = int(run.completed.sum()) / run.duration if lost else 0.0
    text = _as_far_as_it_goes(run, text) + given_up_text(run) + lost_work_text(lost, completed)
    if by_pool is not None:
        text += limiting_text([pool.settings.name for pool in run.pools], by_pool)
    if slo["slo_state"] in (MISSED, OPEN):
        text += _opening(run, slo["attainment"])
    if found is not None and found.estimated:
        batching = names(pool.settings.scheduler.batching for pool in run.pools)
        text += (
            f" The capacity is an estimate: {batching} does not state the "
            "shape of its full batches."
        )
    return {
        "state": state,
        "text": text,
        **_figures(found),
        **_uneven(found),
        **({} if by_pool is None else {"by_pool": [_digits(each) for each in by_pool]}),
        **({"scales": True} if any(p.settings.scales is not None for p in run.pools) else {}),
        **({"disturbed": True} if run.scenario.disturbed else {}),
        **({"lost_work": lost} if lost else {}),
        "peak_utilisation": None if top is None else _digits(top.utilisation),
        "slo_headroom": _slo_headroom(found, top, slo, most),
        **settling,
        **slo,
        "cut": None if run.cut is None else run.cut.document(),
        "reach": reach(run),
    }


def judge_capacity(run: RunRecord) -> dict[str, Any]:
    """The ``state`` of a verdict, and the figures that it rests on, without its SLO part."""
    found = _load(run)
    top = None if found is None else peak(found, run.scenario.workload.arrivals)
    by_pool = None if found is None or len(run.pools) == 1 else found.by_pool
    state, _ = _state(run, found, top, _most_of_a_pool(run, by_pool))
    return {"state": state, **_figures(found)}


def _state(run: RunRecord, found: Load | None, top: Peak | None, most: float) -> tuple[str, str]:
    """What the fleet does with its traffic, and in words; ``most`` is the largest share of its own
    capacity that a pool takes."""
    state, text = _without_load(run) if found is None else _under_load(run, found, top)
    if found is not None and found.uneven is not None and state in ("stable", "near saturation"):
        state, text = _unevenly(run, found, found.uneven, state, text)
    if most < 1 or state not in ("stable", "near saturation"):
        return state, text
    told = text.partition(": ")[2]
    return "overloaded", (
        f"Overloaded: the router sends one pool more than it can serve, although {told}"
    )


def _unevenly(
    run: RunRecord, found: Load, one: BusiestReplica, state: str, text: str
) -> tuple[str, str]:
    """The state of a fleet with room of which replica ``one`` takes more of its own capacity."""
    taken = f"replica {one.replica} takes {show_utilisation(one.utilisation)} of its own capacity"
    although = f"although {text.partition(': ')[2]}"
    if too_much_for_one(found, run.scenario.workload.arrivals):
        if one.backlog > one.batch:
            return "overloaded", f"Overloaded: the router deals unevenly, {taken}, {although}"
        return "too short to tell", (
            f"Too short to tell: the router deals unevenly, {taken}, {although} "
            + _simulate(run, found)
        )
    if state == "stable" and one.utilisation - SURE * one.error >= FULL:
        return "near saturation", f"Near saturation: {taken}, {although}"
    return state, text


def _settling(run: RunRecord, found: Load | None) -> dict[str, Any]:
    law = run.scenario.workload.arrivals
    if found is None or not is_near(found, law):
        return dict.fromkeys(("settled", "relaxation_requests", "requests_to_settle"))
    short = too_short(found) or unsettled(found, law)
    return {
        "settled": not short,
        "relaxation_requests": relaxation(found),
        "requests_to_settle": enough_of_all(found, law) if short else None,
    }


def _most_of_a_pool(run: RunRecord, by_pool: Sequence[float] | None) -> float:
    """The largest share of its own capacity that a pool's requests take, where the router shares
    them out whatever there is to do, or pools serve different models; else 0."""
    scenario = run.scenario
    apart = len({pool.settings.model for pool in run.pools}) > 1  # requests have no choice
    blind = by_pool and (apart or router_class(scenario.router, scenario.folders).blind)
    return max(by_pool) if by_pool and blind else 0.0


def _slo_headroom(
    found: Load | None, top: Peak | None, slo: Mapping[str, Any], most: float
) -> float | None:
    """None where nothing is known of it: no load, a verdict that is open, or a peak beyond the
    capacity that the SLO survives. ``most`` is the share of the pool that ends it."""
    if slo["slo_state"] == MISSED:
        return 0.0
    if found is None or slo["slo_state"] == OPEN:
        return None
    one = 0.0 if found.uneven is None else found.uneven.utilisation
    used = max(found.utilisation, most, one, 0.0 if top is None else top.utilisation)
    return _digits(1 / used - 1) if used < 1 else None


def _opening(run: RunRecord, attainment: float | None) -> str:
    """What the SLO comes to without the first requests of each user, which find does not count;
    empty where that is not more, or the scenario says itself what to leave out."""
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
        f"`infersim find` counts only those, and so does run.warmup={first}."
    )


def opened(text: str) -> str:
    """The ``text`` of a verdict whose SLO turned out too close to call: the predicted times decide.

    >>> opened("Stable: the traffic takes 70% of the capacity. The SLO is missed all the same.")
    'Stable: the traffic takes 70% of the capacity. At the predicted times the SLO is missed.'
    """
    return text.replace(MISSED_ANYWAY, "At the predicted times the SLO is missed")


def _late_all_the_same(run: RunRecord, found: Load, slo: Mapping[str, Any]) -> str:
    """Why requests miss the SLO although there is capacity left."""
    if slo["first_limit"] == BY_REJECTION:
        return " The SLO is missed because of the rejected requests."
    if slo["first_limit"] == LOST:
        return " The SLO is missed because of requests that were lost with a replica or found none."
    if slo["first_limit"] == TIMED_OUT:
        return " The SLO is missed because of requests whose clients did not wait any longer."
    accepted = run.requests["status"] != REJECTED
    fine = run.within_slo | run.set_aside(run.scenario.slo.of_request)
    why = bursts(found, fine[accepted])
    if why is None:
        return f" {MISSED_ANYWAY}."
    return (
        f" {MISSED_ANYWAY}, and bursts are why: in {show_utilisation(why.share)} of "
        f"the {why.name} more than the capacity arrives "
        f"({show_utilisation(why.peak.utilisation)} of it {why.peak.when}), and "
        f"{show_share(why.late)} of the requests beyond the SLO come then or right after."
    )


def _uneven(found: Load | None) -> dict[str, Any]:
    """The entry ``busiest_replica``, there where a router deals unevenly."""
    if found is None or found.uneven is None:
        return {}
    one = found.uneven
    return {
        "busiest_replica": {
            "replica": one.replica,
            "utilisation": _digits(one.utilisation),
            "utilisation_error": _digits(one.error),
        }
    }


def _figures(found: Load | None) -> dict[str, float | None]:
    """Four digits: more would be noise, and not the same with leaps and without."""
    if found is None:
        names = ("utilisation", "utilisation_error", "headroom", "drift_per_s", "drift_error_per_s")
        return dict.fromkeys(names)
    return {
        "utilisation": _digits(found.utilisation),
        "utilisation_error": _digits(found.error),
        "headroom": _digits(1 / found.utilisation - 1),
        "drift_per_s": _digits(found.drift.per_second),
        "drift_error_per_s": _digits(found.drift.error),
    }


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _load(run: RunRecord) -> Load | None:
    """None where the load is no property of the traffic, or nothing is known of the fleet."""
    arrivals = run.scenario.workload.arrivals
    arrived = run.requests["arrival"][run.requests["status"] != REJECTED]
    if not run.completed.any() or arrived[-1] <= arrived[0]:
        return None
    return None if arrivals is not None and arrivals.kind in ("closed", "burst") else load(run)


def _without_load(run: RunRecord) -> tuple[str, str]:
    if not run.completed.any():
        return "no traffic served", "No request was completed."
    arrivals = run.scenario.workload.arrivals
    if arrivals is not None and arrivals.kind == "closed":
        return "closed loop", "Closed loop: clients wait for their answers, so the load adapts."
    if run.scenario.workload.sessions is not None:
        return "offline", (
            "Offline: all sessions start together, and later turns wait for their answers; only "
            "throughput counts."
        )
    if len(run.requests) == 1:
        return "offline", "A single request, which has the fleet to itself: no load to judge."
    return "offline", "Offline: all requests are there from the start; only throughput counts."


def _under_load(run: RunRecord, found: Load, top: Peak | None) -> tuple[str, str]:
    """The state of a fleet to which requests come whatever it does."""
    share, error, excess = found.utilisation, found.error, found.utilisation - 1
    were = "was" if found.backlog == 1 else "were"
    waiting = f"{found.backlog:,} {were} waiting at the last arrival"
    traffic = (
        "the traffic takes"
        if len(found.arrived) == len(run.requests)
        else "what is accepted of the traffic takes"
    )
    taken = f"{traffic} {show_utilisation(share)} of the capacity{_when(run, top)}"
    if too_much(found):
        if found.backlog > found.batch:
            return "overloaded", (
                f"Overloaded: {show_number(found.rate)} requests/s arrive{_when(run, None)}, "
                f"{show_number(found.rate / share)} can be served ({share:.0%} of the capacity); "
                f"{waiting}. Latencies depend on how long this goes on."
            )
        return "too short to tell", (
            f"Too short to tell: probably overloaded, {taken}, but only {waiting}. "
            + _simulate(run, found)
        )
    between = (
        f"{traffic} between {share - SURE * error:.0%} and {share + SURE * error:.0%} of the "
        f"capacity{_when(run, top)}"
    )
    everything_open = share - SURE * error < FULL and excess + SURE * error > 0
    if everything_open or (excess > SURE * error and too_short(found)):
        return "too short to tell", f"Too short to tell: {between}. {_simulate(run, found)}"
    if share >= FULL:
        told = between if SURE * error > VAGUE else taken
        return "near saturation", f"Near saturation: {_near(run, told, found)}{_growth(run, found)}"
    if _law(run) is None and grows_at_its_end(found):
        return "too short to tell", (
            f"Too short to tell: {taken}, but {found.late:.0%} in its last tenth, and {waiting}. "
            "A longer trace would tell."
        )
    left = int((run.requests["status"] == UNFINISHED).sum())
    late = ", and count as beyond the limits" if run.scenario.slo.stated else ""
    were = "1 request was" if left == 1 else f"{left:,} requests were"
    ending = f" {were} not finished when it ended{late}." if left else ""
    return "stable", f"Stable: {taken}.{_growth(run, found)}{ending}"


def _near(run: RunRecord, taken: str, found: Load) -> str:
    """What to say of a utilisation close to 1, and of one beyond it that chance may have made."""
    excess = found.utilisation - 1
    if excess > 0 and not too_short(found):
        return f"probably overloaded, {taken}."
    told = " It may be too much already." if excess + SURE * found.error > DOUBT else ""
    if excess - DOUBT > found.error / 2:  # else no number would show it for sure
        return f"{taken}.{told} {_simulate(run, found)}"
    if excess > 0:
        return f"{taken}.{told}"
    return (
        f"{taken}.{told} A little more load, or a little less speed than predicted, and waiting "
        "times explode."
    )


def _simulate(run: RunRecord, found: Load) -> str:
    if _law(run) is None:
        if run.cut is not None:
            return f"The whole trace ({run.cut.remedy}) would tell."
        if len(run.requests) == run.scenario.run.requests:
            return "More requests of the trace (run.requests) would tell."
        return "A longer trace would tell."
    enough = enough_of_all(found, run.scenario.workload.arrivals)
    assert enough is not None
    return f"Simulate {enough:,} requests or more{reach_text(reach(run), enough)}."


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
    if run.cut is not None and _law(run) is None:
        return f"{text} of this part"
    return text if cut is None or cut.has_peak else f"{text}, which was not simulated"


def _as_far_as_it_goes(run: RunRecord, text: str) -> str:
    """``text`` with a first sentence on the part of the curve that a run lacks, if any."""
    cut = run.cut
    state, colon, rest = text.partition(": ")
    if cut is None or not colon:
        return text
    return f"{state}: {cut.text}. {rest[0].upper()}{rest[1:]}"


def _growth(run: RunRecord, found: Load) -> str:
    """What a rate that changes did to the queue for a while; empty where it does not change."""
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
