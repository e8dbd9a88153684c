"""Compares the traffic with what the fleet can serve. Times in seconds, rates per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.metrics.load.busiest import BusiestReplica, busiest
from sim.metrics.load.request_costs import request_costs
from sim.metrics.load.sessions import per_session
from sim.metrics.load.usual_sessions import usual, usual_shares
from sim.metrics.record.cut_short import TENTH
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.queues import Drift, drift
from sim.metrics.record.run_record import RunRecord
from sim.scenario.sections.arrivals import Arrivals

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a run with open arrivals, against what full batches would serve.

    ``rate`` requests arrive per second that are not rejected, of ``offered``. They are the share
    ``utilisation`` of the capacity, with the standard error ``error``; ``late`` is the same for the
    last tenth of the run, as it came: 100 of 1,000 requests at 0.7 of the capacity exceed it by
    chance once in thousands of runs. ``batch`` requests fill the batches of the fleet, ``backlog``
    were waiting at the last arrival. Each came at one of ``arrived``, and takes full batches of the
    whole fleet as many seconds as ``costs`` has for it. ``estimated`` if the policy does not say
    how full batches look. At a time ``present`` requests are in the fleet, waiting or running, by
    Little's law. ``by_pool`` is what those that each pool got take of its own capacity; ``busiest``
    is the replica that takes the most of its own, None where there is no choice of replicas.
    ``remembered`` requests come while a session lasts: so long the start of a run lacks later
    turns. ``law`` rules the arrivals, None for a trace.
    """

    rate: float
    offered: float
    utilisation: float
    error: float
    late: float
    batch: float
    backlog: int
    drift: Drift
    arrived: Floats
    costs: Floats
    estimated: bool
    present: float
    by_pool: tuple[float, ...]
    busiest: BusiestReplica | None = None
    remembered: float = 0.0
    law: Arrivals | None = None

    @property
    def uneven(self) -> BusiestReplica | None:
        """The busiest replica, where it takes more of its capacity than the fleet by more than
        chance in dealing explains: twice its standard error."""
        top = self.busiest
        return top if top and top.utilisation - 2 * top.error > self.utilisation else None


def load(run: RunRecord) -> Load:
    """The load of a run with open arrivals, at least two of which were accepted at different times.

    Where a law rules the arrivals, its rate is known, and only the lengths are a sample, and how
    many requests a session has where it rules those; a trace is what it is, and nothing of it a
    sample. Sessions count in their usual mix (``usual_sessions``). What a request costs is its time
    in full batches, and in addition what the batches took longer than that while requests were left
    waiting.
    """
    accepted = run.accepted
    arrived = accepted["arrival"]
    span = float(arrived[-1] - arrived[0])
    shares, expected = usual_shares(run), usual(run)
    served = [request_costs(part, accepted, shares, run.reached) for part in run.parts]
    costs, limiting = _of_fleet(run.parts, [own for _, own in served])
    law = run.scenario.workload.arrivals
    sessions, session_error = per_session(run) or (1.0, 0.0)
    if law is None:
        rate = offered = (len(arrived) - 1) / span
    else:
        offered = _rate(law, float(arrived[-1])) * sessions
        rate = offered * len(accepted) / len(run.requests)
    utilisation = rate * float(costs.mean() if shares is None else costs @ shares)
    queued = run.reached(accepted)
    left = np.sort(accepted["scheduled"][~np.isnan(accepted["scheduled"])])
    return Load(
        rate=rate,
        offered=offered,
        utilisation=utilisation,
        error=0.0
        if law is None
        else math.hypot(max(full.error for full, _ in served), session_error / sessions)
        * utilisation,
        late=float(costs[arrived > arrived[-1] - TENTH * span].sum()) / (TENTH * span),
        batch=sum(
            full.slots * part.ranks
            for (full, _), part in zip(served, run.parts, strict=True)
            if part.pool.settings.role == limiting
        ),
        backlog=len(queued) - int(np.searchsorted(left, queued[-1], side="right")),
        drift=drift(queued, left),
        arrived=np.asarray(arrived),
        costs=np.asarray(costs),
        estimated=any(full.estimated for full, _ in served),
        present=rate * float(np.nanmean(accepted["finish"] - arrived)),
        by_pool=tuple(
            rate * _share_of_mean(own, part.serves(accepted), shares)
            for (_, own), part in zip(served, run.parts, strict=True)
        ),
        busiest=None
        if run.scenario.failures or run.scenario.steering  # others serve for those that are out
        else busiest(run.parts, served, accepted, shares, rate, run.reached),
        remembered=0.0 if expected is None else rate * expected.duration,
        law=law,
    )


def _share_of_mean(costs: Floats, mine: NDArray[np.bool_], shares: Floats | None) -> float:
    """The share of ``mine`` in the mean of all ``costs``."""
    if shares is None:
        return float(costs[mine].sum()) / len(costs)
    return float((costs * shares)[mine].sum())


def _rate(law: Arrivals, end: float) -> float:
    """Requests per second: on average, or at the ``end`` of a ramp, where it leads."""
    match law.kind:
        case "poisson" | "gamma" | "constant":
            return law.rate
        case "diurnal":
            return (law.rate + law.peak_rate) / 2
        case "ramp":
            share = min(1.0, end / law.duration)
            return law.rate + (law.final_rate - law.rate) * share
    raise AssertionError(f"{law.kind} arrivals have no rate")


def _of_fleet(parts: Sequence[PoolRun], costs: Sequence[Floats]) -> tuple[Floats, str]:
    """The cost of each request to the fleet, and the role of the pools that bear it: pools of one
    role share the requests, and of several roles the one that takes longest limits."""
    found: dict[str, Floats] = {}
    for part, own in zip(parts, costs, strict=True):
        role = part.pool.settings.role
        together = found.get(role)
        found[role] = own if together is None else together * own / (together + own)
    limiting = max(found, key=lambda role: float(found[role].mean()))
    return found[limiting], limiting
