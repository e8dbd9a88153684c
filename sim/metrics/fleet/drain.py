"""Provides the share of a run in which requests still came, which its costs per token are of,
and what came per second, which no throughput exceeds in the long run.

A run ends with the last answer. After the last arrival a fleet only finishes what it has begun; one
whose traffic goes on never does. So costs per token are those while requests come. An overloaded
fleet goes on at its capacity until the end, so that the whole run counts. Where a router overloads
some replicas and others have room, each counts by its own rule.

The rates at the top of a summary are of the whole run, as ``vllm bench serve`` divides. Those of
``while_arriving`` are of the time in which requests come: a goodput at the offered load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.metrics.texts import replica_name
from sim.scenario.sections.arrivals import BurstArrivals, ClosedArrivals
from sim.units import show_time

KEEPS_UP = (State.STABLE, State.NEAR_SATURATION)
"""States of fleets that serve requests as fast as they come."""

NAMED = 0.03
"""Share of a run from which its drain is named: with less, rates differ in their third digit."""


class _Dealt(NamedTuple):
    """Requests that a part of the fleet had (``rows``): the time in which they came, ``came``, and
    the time in which it served them at the rate that it can keep up, ``served`` (s)."""

    rows: NDArray[np.bool_]
    came: float
    served: float


def arriving_share(run: RunRecord, verdict: Mapping[str, Any]) -> float:
    """The share of the run in which its fleet would serve as many tokens at the rate it has while
    requests come; 1 where all of it is overloaded, or requests wait for answers."""
    parts = _parts(run, verdict)
    if len(parts) < 2:
        return parts[0].served / run.duration if parts else 1.0
    outputs = run.requests["generated"]
    rate = _rate(parts, np.where(run.completed, outputs, 0))
    return float(outputs[run.completed].sum()) / (rate * run.duration) if rate else 1.0


def while_arriving(run: RunRecord, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The entry ``while_arriving`` of a summary; nothing in a closed loop.

    ``seconds`` is the time in which requests came, ``drain_s`` what the run went on after the last
    one; ``last`` names the overloaded replica that was the last to finish, and the others had
    ``others_s`` after the last arrival; both None where no replica is overloaded alone. Rates have
    the keys of the summary. Requests within the SLO are divided by the time in which they came;
    what was served by the same time, on an overloaded replica by that until it was done, and there
    no more requests are within the SLO than that.
    """
    parts = [] if _waits(run) else _parts(run, verdict)
    seconds = _seconds(run) if parts else None
    if not seconds:
        return {}
    inputs, outputs = run.requests["prompt_tokens"], run.requests["generated"]
    within = run.within_slo
    found = {
        "seconds": seconds,
        "drain_s": run.end - float(run.requests["arrival"].max()),
        "request_throughput": _rate(parts, run.completed),
        "request_goodput": sum(_goodput(run, within, part) for part in parts),
        "output_throughput": _rate(parts, np.where(run.completed, outputs, 0)),
        "total_token_throughput": _rate(parts, np.where(run.completed, inputs + outputs, 0)),
    }
    return {"while_arriving": found | _last(run, verdict if len(parts) > 1 else {})}


COMPARED = ("request_goodput", "output_throughput")
"""The rates of which ``mean_while_arriving`` has the means."""


def mean_while_arriving(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The means of ``COMPARED`` while requests came, over the runs of these ``summaries``, with
    ``drain_s`` and ``last`` of the one whose end took longest; None where one has no such entry."""
    rows = [each for s in summaries if (each := s["infersim"].get("while_arriving"))]
    if not rows or len(rows) < len(summaries):
        return None
    longest = max(rows, key=_drained)
    return {
        **{key: sum(row[key] for row in rows) / len(rows) for key in COMPARED},
        "drain_s": longest["drain_s"],
        "last": longest["last"],
    }


def _drained(found: Mapping[str, Any]) -> float:
    return float(found["drain_s"])


def _waits(run: RunRecord) -> bool:
    """Whether requests wait for answers, or all come at once."""
    return isinstance(run.scenario.workload.arrivals, BurstArrivals | ClosedArrivals)


def _rate(parts: Sequence[_Dealt], amounts: NDArray[Any]) -> float:
    return sum(float(amounts[part.rows].sum()) / part.served for part in parts)


def _goodput(run: RunRecord, within: NDArray[np.bool_], part: _Dealt) -> float:
    """The requests ``within`` the SLO per second in which requests came, and no more than are
    served per second."""
    good, served = within[part.rows].sum() / part.came, run.completed[part.rows].sum() / part.served
    return float(min(good, served))


def _parts(run: RunRecord, verdict: Mapping[str, Any]) -> list[_Dealt]:
    """The replicas of a fleet whose router overloads some of them, else the fleet as one; none
    where it is not known how long requests came."""
    came = None if run.duration <= 0 or run.interrupted else _seconds(run)
    if not came:
        return []
    came, everything = min(came, run.duration), np.ones(len(run.requests), dtype=np.bool_)
    if verdict["state"] in KEEPS_UP:
        return [_Dealt(everything, came, came)]
    shares = _uneven(run, verdict)
    if not shares:
        return [_Dealt(everything, came, run.duration)]
    first, found = float(run.accepted["arrival"][0]), []
    for at, (rows, used) in enumerate(zip(_by_replica(run), shares, strict=True)):
        there = run.requests[rows]
        if len(there) < 2:
            continue
        own = came
        if run.scenario.workload.sessions is not None:  # turns come after answers
            own = float(there["arrival"].max()) - first
        done = _finished(run)[at] - first
        found.append(_Dealt(rows, own, max(own, done) if used >= 1 else own))
    return found


def _uneven(run: RunRecord, verdict: Mapping[str, Any]) -> list[float]:
    """The share of its own capacity that each replica takes, where one is overloaded and it is
    known which requests each had; else none."""
    one = verdict.get("busiest_replica")
    if one is None or len(run.pools) > 1 or one["utilisation"] < 1:
        return []
    return [float(each["utilisation"]) for each in one["replicas"]]


def _by_replica(run: RunRecord) -> list[NDArray[np.bool_]]:
    """The requests of each replica of a fleet of one pool."""
    settings = run.parts[0].pool.settings
    numbers = run.requests["replica"].astype(np.int64)
    places = np.where(numbers < 0, -1, (numbers - settings.numbers.start) // settings.engines.step)
    return [places == place for place in range(run.replicas)]


def _finished(run: RunRecord) -> list[float]:
    """When each replica of a fleet of one pool had finished; 0 where it finished nothing."""
    times = np.nan_to_num(run.requests["finish"])
    return [float(times[rows].max(initial=0.0)) for rows in _by_replica(run)]


def _last(run: RunRecord, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The name of the replica that finished last, where it is overloaded, and how long after the
    last arrival the others had finished."""
    shares = _uneven(run, verdict)
    finished = _finished(run) if shares else []
    last = int(np.argmax(finished)) if shares else 0
    if not shares or shares[last] < 1:
        return {"last": None, "others_s": None}
    others = max((time for place, time in enumerate(finished) if place != last), default=0.0)
    after = max(0.0, others - float(run.requests["arrival"].max()))
    return {"last": replica_name(last), "others_s": after}


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
    seconds = None if _waits(run) or run.sessions is not None else _seconds(run)
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
    if verdict["state"] not in KEEPS_UP:
        return _uneven_note(while_arriving(run, verdict).get("while_arriving", {}))
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


def _uneven_note(found: Mapping[str, Any]) -> str | None:
    """The note on a fleet of which an overloaded replica finished last."""
    late = still_working(found)
    if not late:
        return None
    return (
        f"{late[0].upper()}{late[1:]}, the others {show_time(found['others_s'])}, so that rates "
        f"over the whole run are lower than over the {show_time(found['seconds'])} in which "
        f"requests came: goodput is {found['request_goodput']:.3g} requests/s there, output "
        f"{found['output_throughput']:,.0f} tokens/s. Costs and energy per token are those while "
        "requests come."
    )


def still_working(found: Mapping[str, Any]) -> str:
    """Which replica was the last to finish, to stand within a sentence; empty where none is
    overloaded.

    >>> still_working({"last": "the fourth replica (3)", "drain_s": 84.0})
    'the fourth replica (3) was still working 84 s after the last arrival'
    """
    if found.get("last") is None:
        return ""
    return f"{found['last']} was still working {show_time(found['drain_s'])} after the last arrival"
