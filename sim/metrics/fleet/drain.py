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

Floats = NDArray[np.float64]

KEEPS_UP = (State.STABLE, State.NEAR_SATURATION)
"""States of fleets that serve requests as fast as they come."""

NAMED = 0.03
"""Share of a run from which its drain is named: with less, rates differ in their third digit."""


class _Dealt(NamedTuple):
    """How requests are dealt to the parts of a fleet, of which each serves its own: the ``part`` of
    each request (-1 for none), and by part the seconds in which its requests ``came`` and in which
    it ``served`` them at the rate that it can keep up."""

    part: NDArray[np.int64]
    came: Floats
    served: Floats

    def sums(self, amounts: NDArray[Any]) -> Floats:
        """By part the sum of ``amounts``, one of each request."""
        there = self.part >= 0
        weights = amounts[there].astype(np.float64)
        found = np.bincount(self.part[there], weights, minlength=len(self.came))
        return np.asarray(found, dtype=np.float64)

    def rate(self, amounts: NDArray[Any]) -> float:
        """``amounts`` served per second, of all parts together."""
        return float((self.sums(amounts) / self.served).sum())


def arriving_share(run: RunRecord, verdict: Mapping[str, Any]) -> float:
    """The share of the run in which its fleet would serve as many tokens at the rate it has while
    requests come; 1 where all of it is overloaded, or requests wait for answers."""
    dealt = _dealt(run, verdict)
    if dealt is None:
        return 1.0
    if len(dealt.came) < 2:
        return float(dealt.served[0]) / run.duration
    outputs = run.requests["generated"]
    rate = dealt.rate(np.where(run.completed, outputs, 0))
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
    dealt = None if _waits(run) else _dealt(run, verdict)
    seconds = _seconds(run)
    if dealt is None or not seconds:
        return {}
    inputs, outputs = run.requests["prompt_tokens"], run.requests["generated"]
    good = dealt.sums(run.within_slo) / dealt.came
    found = {
        "seconds": seconds,
        "drain_s": run.end - float(run.requests["arrival"].max()),
        "request_throughput": dealt.rate(run.completed),
        "request_goodput": float(np.minimum(good, dealt.sums(run.completed) / dealt.served).sum()),
        "output_throughput": dealt.rate(np.where(run.completed, outputs, 0)),
        "total_token_throughput": dealt.rate(np.where(run.completed, inputs + outputs, 0)),
    }
    return {"while_arriving": found | _last(run, verdict if len(dealt.came) > 1 else {})}


COMPARED = ("request_throughput", "request_goodput", "output_throughput")
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


def _dealt(run: RunRecord, verdict: Mapping[str, Any]) -> _Dealt | None:
    """The requests of the replicas of a fleet whose router overloads some of them, else those of
    the fleet as one; None where it is not known how long requests came."""
    seconds = None if run.duration <= 0 or run.interrupted else _seconds(run)
    if not seconds:
        return None
    whole, came = np.zeros(len(run.requests), dtype=np.int64), min(seconds, run.duration)
    if verdict["state"] in KEEPS_UP:
        return _Dealt(whole, np.array([came]), np.array([came]))
    shares = _uneven(run, verdict)
    if not shares:
        return _Dealt(whole, np.array([came]), np.array([run.duration]))
    first, own = float(run.accepted["arrival"][0]), np.full(run.replicas, came)
    if run.scenario.workload.sessions is not None:  # turns come after answers
        last = _latest(run, "arrival") - first
        own = np.where(last > 0, last, came)
    done = np.maximum(own, _latest(run, "finish") - first)
    return _Dealt(_replicas(run), own, np.where(np.array(shares) >= 1, done, own))


def _uneven(run: RunRecord, verdict: Mapping[str, Any]) -> list[float]:
    """The share of its own capacity that each replica takes, where one is overloaded and it is
    known which requests each had; else none."""
    one = verdict.get("busiest_replica")
    if one is None or len(run.pools) > 1 or one["utilisation"] < 1:
        return []
    return [float(each["utilisation"]) for each in one["replicas"]]


def _replicas(run: RunRecord) -> NDArray[np.int64]:
    """The place of the replica of each request of a fleet of one pool, -1 of those without."""
    settings = run.parts[0].pool.settings
    numbers = run.requests["replica"].astype(np.int64)
    return np.where(numbers < 0, -1, (numbers - settings.numbers.start) // settings.engines.step)


def _latest(run: RunRecord, column: str) -> Floats:
    """The latest time in ``column`` of the requests of each replica of a fleet of one pool; 0 where
    there is none."""
    places, times = _replicas(run), np.nan_to_num(run.requests[column])
    found, there = np.zeros(run.replicas), places >= 0
    np.maximum.at(found, places[there], times[there])
    return found


def _last(run: RunRecord, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The name of the replica that finished last, where it is overloaded, and how long after the
    last arrival the others had finished."""
    shares = _uneven(run, verdict)
    finished = _latest(run, "finish") if shares else np.zeros(1)
    last = int(np.argmax(finished))
    if not shares or shares[last] < 1:
        return {"last": None, "others_s": None}
    others = float(np.delete(finished, last).max(initial=0.0))
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
