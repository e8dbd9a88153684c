"""Starts and stops replicas of a fleet while it serves, as a rule of ``sim.scaling`` wants.

All replicas that a pool may have exist from the start, but only those that are ready get requests.
One that is started is held, and paid for, from that moment, and ready after its cold start. One
that is stopped gets no more requests, and is held until the first decision at which it has none
left. Decisions come at a fixed interval, after everything else of that instant but scheduling.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import simpy

from sim.loop.clock import HANDOVER, Alarm, Process
from sim.loop.fleet import Engine, Fleet
from sim.loop.recorder import Recorder
from sim.scaling import Reading, Rule

RATE_OVER = 60.0
"""Seconds over which arrivals are counted."""


@dataclass(slots=True)
class ScaledPool:
    """The replicas of one pool, by number, and the rule that scales them; ``first`` of them are
    there at the start, and ``cold_start`` is how long others take (s)."""

    engines: list[Engine]
    rule: Rule | None
    first: int
    cold_start: float
    since: dict[int, float] = field(default_factory=dict)  # held, by place
    ready: list[int] = field(default_factory=list)
    starting: list[tuple[float, int]] = field(default_factory=list)
    stopping: list[int] = field(default_factory=list)


class Autoscaler:
    """Scales the ``pools`` of ``fleet``, which is to serve so many requests in ``total``."""

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        pools: list[ScaledPool],
        recorder: Recorder,
        *,
        interval: float,
        total: int,
    ) -> None:
        self._env, self._fleet, self._pools, self._recorder = env, fleet, pools, recorder
        self._interval, self._total = interval, total
        self._arrived: deque[tuple[float, int]] = deque([(0.0, 0)])
        for pool in pools:
            pool.ready = list(range(pool.first))
            pool.since = dict.fromkeys(pool.ready, 0.0)
        self._retarget()
        alarm = Alarm(env)
        alarm.start(self._process(alarm))

    def finish(self, end: float) -> None:
        """The run is over: all that is held is held until ``end``."""
        for pool in self._pools:
            for place, since in pool.since.items():
                self._recorder.held(pool.engines[place].index, since, end)
            pool.since = {}

    def _retarget(self) -> None:
        self._fleet.targets = [pool.engines[at] for pool in self._pools for at in pool.ready]

    def _process(self, alarm: Alarm) -> Process:
        env, fleet = self._env, self._fleet
        decision = self._interval
        while fleet.issued < self._total or fleet.outstanding:
            starts = [due for pool in self._pools for due, _ in pool.starting]
            yield alarm.at(min([decision, *starts]), HANDOVER)
            now = env._now
            for pool in self._pools:
                self._begin(pool, now)
            if now >= decision:
                decision += self._interval
                rate = self._rate(now)
                for pool in self._pools:
                    self._release(pool, now)
                    if pool.rule is not None:
                        self._decide(pool, pool.rule, now, rate)
            self._retarget()
        yield alarm.at(math.inf, HANDOVER)

    def _rate(self, now: float) -> float:
        """Requests/s that arrived in the last minute, or since the start."""
        arrived = self._arrived
        arrived.append((now, self._fleet.issued))
        while len(arrived) > 1 and arrived[1][0] <= now - RATE_OVER:
            arrived.popleft()
        since, before = arrived[0]
        return (self._fleet.issued - before) / (now - since)

    @staticmethod
    def _begin(pool: ScaledPool, now: float) -> None:
        """Those whose cold start is over are ready."""
        begun = [place for due, place in pool.starting if due <= now]
        if begun:
            pool.starting = [each for each in pool.starting if each[0] > now]
            pool.ready = sorted([*pool.ready, *begun])

    def _release(self, pool: ScaledPool, now: float) -> None:
        """Give back those that are stopped and empty."""
        for place in [at for at in pool.stopping if not pool.engines[at].outstanding]:
            pool.stopping.remove(place)
            self._recorder.held(pool.engines[place].index, pool.since.pop(place), now)

    def _decide(self, pool: ScaledPool, rule: Rule, now: float, rate: float) -> None:
        """Start or stop as the rule wants: of those that start the last first, then the ones with
        the highest numbers."""
        current = len(pool.ready) + len(pool.starting)
        samples = [_sample(pool.engines[at]) for at in pool.ready]
        wanted = rule.desired(now, current, samples, rate)
        free = [at for at in range(len(pool.engines)) if at not in pool.since]
        for place in free[: max(0, wanted - current)]:
            pool.since[place] = now
            pool.starting.append((now + pool.cold_start, place))
        for _ in range(current - wanted):
            if pool.starting:
                _, place = pool.starting.pop()
                self._recorder.held(pool.engines[place].index, pool.since.pop(place), now)
            else:
                pool.stopping.append(pool.ready.pop())


def _sample(engine: Engine) -> Reading:
    waiting = engine.queued
    return Reading(waiting, engine.outstanding - waiting, engine.kv_used)
