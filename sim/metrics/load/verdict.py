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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sim.loop.recorder import REJECTED
from sim.metrics.load.busiest import BusiestReplica
from sim.metrics.load.long_enough import (
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
from sim.metrics.load.peak import Peak, peak
from sim.metrics.load.stability import Load, load
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import SloState, State
from sim.routers import router_class


class Why(Enum):
    """The basis of a fleet's ``state``."""

    NOTHING_SERVED = "no request was completed", State.NOTHING_SERVED
    CLOSED_LOOP = "clients wait for answers", State.CLOSED_LOOP
    SESSIONS_TOGETHER = "all sessions start together", State.OFFLINE
    SINGLE_REQUEST = "there is but one request", State.OFFLINE
    ALL_AT_ONCE = "all requests start together", State.OFFLINE
    PILED_UP = "more arrives than is served, and more wait than fill the batches", State.OVERLOADED
    SWALLOWED = "more arrives than is served, but batches took it in so far", State.TOO_SHORT
    UNKNOWN = "the error of the utilisation leaves open whether it is too much", State.TOO_SHORT
    NEAR = "the utilisation is close to 1", State.NEAR_SATURATION
    GROWING = "the trace ends while its queue grows", State.TOO_SHORT
    ROOM = "there is capacity left", State.STABLE
    REPLICA_PILED_UP = "of a fleet with room, a replica is overloaded", State.OVERLOADED
    REPLICA_SWALLOWED = "of a fleet with room, a replica may be overloaded", State.TOO_SHORT
    REPLICA_NEAR = "of a fleet with room, a replica is near saturation", State.NEAR_SATURATION
    POOL = "of a fleet with room, a pool is overloaded", State.OVERLOADED

    @property
    def state(self) -> State:
        """The state that follows."""
        return self.value[1]


HAS_ROOM = (State.STABLE, State.NEAR_SATURATION)


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """The verdict on a fleet under its traffic. ``whys`` has the reason of the fleet as a whole,
    then those of a replica and of a pool that overrule it. ``load`` is None where that is no
    property of the traffic, ``peak`` where its rate is constant. ``fullest`` is the largest share
    of its own capacity that a pool takes, where the router shares requests out whatever there is to
    do, or pools serve different models; else 0."""

    whys: tuple[Why, ...]
    load: Load | None
    peak: Peak | None
    fullest: float

    @property
    def state(self) -> State:
        """The state of the fleet."""
        return self.whys[-1].state

    @property
    def by_pool(self) -> tuple[float, ...] | None:
        """The share of each of several pools' capacity that their requests take."""
        found = self.load
        return None if found is None or len(found.by_pool) == 1 else found.by_pool

    @property
    def most(self) -> float:
        """The largest share of its own capacity that is taken: the fleet's, that of a pool which
        the router does not spare, or that of a replica to which it sends the most."""
        assert self.load is not None
        one = self.load.uneven
        return max(self.load.utilisation, self.fullest, 0.0 if one is None else one.utilisation)

    def figures(self) -> dict[str, Any]:
        """The ``state`` and the figures it rests on; four digits: more would be noise, and not the
        same with leaps and without."""
        found = self.load
        names = ("utilisation", "utilisation_error", "headroom", "drift_per_s", "drift_error_per_s")
        figures: dict[str, Any] = dict.fromkeys(names)
        if found is not None:
            drifted = found.drift.per_second, found.drift.error
            values = (found.utilisation, found.error, 1 / self.most - 1, *drifted)
            figures = dict(zip(names, map(digits, values), strict=True))
        return {"state": self.state, **figures}

    def settling(self) -> dict[str, Any]:
        """Whether the run outlasts its empty start, where that matters, and how many requests
        would."""
        found = self.load
        settling: dict[str, Any] = dict.fromkeys(
            ("settled", "relaxation_requests", "requests_to_settle")
        )
        if found is None:
            return settling
        if is_near(found):
            short = too_short(found) or unsettled(found)
            settling |= {
                "settled": not short,
                "relaxation_requests": relaxation(found),
                "requests_to_settle": enough_of_all(found) if short else None,
            }
        if self.state == State.TOO_SHORT and found.law is not None:
            settling |= {"settled": False, "requests_to_settle": enough_of_all(found)}
        return settling

    def slo_headroom(self, slo: Mapping[str, Any]) -> float | None:
        """The growth in traffic up to the capacity at the peak; 0 where the SLO is missed, None
        where nothing is known of it: no load, a verdict that is open, or a peak beyond the capacity
        that the SLO survives."""
        found = self.load
        if slo["slo_state"] == SloState.MISSED:
            return 0.0
        if found is None or slo["slo_state"] == SloState.OPEN:
            return None
        used = max(self.most, 0.0 if self.peak is None else self.peak.utilisation)
        return digits(1 / used - 1) if used < 1 else None

    def uneven(self) -> dict[str, Any]:
        """The entry ``busiest_replica``, there where a router deals unevenly; ``replicas`` has all
        of its pool."""
        one = None if self.load is None else self.load.uneven
        if one is None:
            return {}
        return {
            "busiest_replica": {
                "replica": one.replica,
                "utilisation": digits(one.utilisation),
                "utilisation_error": digits(one.error),
                "replicas": [
                    {"replica": number, "utilisation": digits(used)} for number, used in one.shares
                ],
            }
        }


def judge(run: RunRecord) -> FleetVerdict:
    """The verdict on a run's fleet under its traffic."""
    found = _load(run)
    if found is None:
        return FleetVerdict((_without_load(run),), None, None, 0.0)
    top = peak(found)
    whys = [_under_load(found)]
    fullest = _fullest(run, found)
    one = found.uneven
    if one is not None and whys[-1].state in HAS_ROOM:
        whys += _unevenly(found, one, whys[-1].state)
    if fullest >= 1 and whys[-1].state in HAS_ROOM:
        whys.append(Why.POOL)
    return FleetVerdict(tuple(whys), found, top, fullest)


def _unevenly(found: Load, one: BusiestReplica, state: State) -> tuple[Why, ...]:
    """Reasons that overrule the ``state`` of a fleet with room whose replica ``one`` takes more of
    its own capacity: as for a fleet, more than that without being beyond doubt is too short to
    tell."""
    if too_much_for_one(found):
        return (Why.REPLICA_PILED_UP if one.backlog > one.batch else Why.REPLICA_SWALLOWED,)
    if one.utilisation >= 1:
        return (Why.REPLICA_SWALLOWED,)
    if state == State.STABLE and one.utilisation - SURE * one.error >= FULL:
        return (Why.REPLICA_NEAR,)
    return ()


def _without_load(run: RunRecord) -> Why:
    """Why there is no load to judge."""
    workload = run.scenario.workload
    if not run.completed.any():
        return Why.NOTHING_SERVED
    if workload.arrivals is not None and workload.arrivals.kind == "closed":
        return Why.CLOSED_LOOP
    if workload.sessions is not None:
        return Why.SESSIONS_TOGETHER
    return Why.SINGLE_REQUEST if len(run.requests) == 1 else Why.ALL_AT_ONCE


def _under_load(found: Load) -> Why:
    """The reason for a fleet whose requests come whatever it does."""
    share, error, excess = found.utilisation, found.error, found.utilisation - 1
    if too_much(found):
        return Why.PILED_UP if found.backlog > found.batch else Why.SWALLOWED
    everything_open = share - SURE * error < FULL and excess + SURE * error > 0
    if everything_open or (excess > SURE * error and too_short(found)):
        return Why.UNKNOWN
    if share >= FULL:
        return Why.NEAR
    return Why.GROWING if grows_at_its_end(found) else Why.ROOM


def _fullest(run: RunRecord, found: Load) -> float:
    """``FleetVerdict.fullest`` of a run with several pools; else 0."""
    scenario = run.scenario
    if len(run.pools) == 1:
        return 0.0
    apart = len({pool.settings.model for pool in run.pools}) > 1  # requests have no choice
    blind = apart or router_class(scenario.router, scenario.folders).blind
    return max(found.by_pool) if blind else 0.0


def digits(value: float) -> float:
    """``value`` to four digits."""
    return float(f"{value:.4g}")


def _load(run: RunRecord) -> Load | None:
    """The load; None where it is no property of the traffic, or nothing is known of the fleet."""
    arrivals = run.scenario.workload.arrivals
    arrived = run.requests["arrival"][run.requests["status"] != REJECTED]
    if not run.completed.any() or arrived[-1] <= arrived[0]:
        return None
    return None if arrivals is not None and arrivals.kind in ("closed", "burst") else load(run)
