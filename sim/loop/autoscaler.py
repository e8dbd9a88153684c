"""Starts and stops replicas of a fleet while it serves, as a rule of ``sim.scaling`` wants.

All replicas that a pool may have exist from the start, but only those that are ready get requests.
One that is started is held, and paid for, from that moment, and ready after its cold start. One
that is stopped gets no more requests, and is held until the first decision at which it has none
left. One that fails stays held and comes back empty after its repair, as Kubernetes restarts it;
until then it has no metrics and counts as one that starts. If fewer are wanted meanwhile, those
that start and those that failed are given back before any that serve. One that fails while it is
stopped is given back at once. Where there are none, requests wait at the gateway. Decisions come
at a fixed interval, after everything else of that instant but scheduling. They see what was true
when the metrics were last read, at an interval of its own, some time ago.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from sim.loop.clock import HANDOVER, Alarm, Process
from sim.loop.engine import Engine
from sim.loop.fleet import Fleet
from sim.loop.recorder import Recorder
from sim.scaling import Activation, Reading, Rule

RATE_OVER = 60.0
"""Seconds over which arrivals are counted."""


@dataclass(slots=True)
class ScaledPool:
    """The replicas of one pool, by their ``places`` in the fleet, and the rule that scales them;
    ``first`` of them are there at the start, and ``cold_start`` is how long others take (s).
    ``activation`` stops the last one, and starts the first."""

    places: range
    rule: Rule | None
    first: int
    cold_start: float
    activation: Activation | None = None
    since: dict[int, float] = field(default_factory=dict)  # held, by place
    ready: list[int] = field(default_factory=list)
    starting: list[tuple[float, int]] = field(default_factory=list)
    stopping: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)  # of those that start

    @property
    def current(self) -> int:
        """Replicas that serve or start."""
        return len(self.ready) + len(self.starting)


class _Seen(NamedTuple):
    """The metrics at one time: requests so far, those that waited at the gateway, and of each pool
    what each of its replicas did."""

    at: float
    issued: int
    held: int
    pools: list[dict[int, Reading]]


class Autoscaler:
    """Scales the ``pools`` of ``fleet``, which is to serve that many requests in ``total``: every
    ``interval`` s, by metrics that are read every ``scrape`` s (None: for each decision) and known
    ``delay`` s later."""

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        pools: list[ScaledPool],
        recorder: Recorder,
        *,
        interval: float,
        scrape: float | None,
        delay: float,
        total: float,
    ) -> None:
        self._env, self._fleet, self._recorder = env, fleet, recorder
        self.pools = pools
        self._interval, self._total = interval, total
        self._scrape, self._delay = interval if scrape is None else scrape, delay
        self._always = scrape is None  # read whenever somebody looks
        self._polling = [
            math.inf if pool.activation is None else pool.activation.polling for pool in pools
        ]
        self._arrived: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._seen: deque[_Seen] = deque([_Seen(0.0, 0, 0, [{} for _ in pools])])
        for pool in pools:
            pool.ready = list(pool.places[: pool.first])
            pool.since = dict.fromkeys(pool.ready, 0.0)
        self._retarget()
        self._alarm = alarm = Alarm(env)
        self._wakes = math.inf
        alarm.start(self._process(alarm))

    def finish(self, end: float) -> None:
        """The run is over: all that is held is held until ``end``."""
        for pool in self.pools:
            for place in list(pool.since):
                self._give_back(pool, place, end)

    def scales(self, place: int) -> bool:
        """Whether the replica at that place of the fleet is one of those that come and go."""
        return self._pool_of(place).rule is not None

    def serves(self, place: int) -> bool:
        """Whether the replica at that place is there, with requests or ready for them."""
        pool = self._pool_of(place)
        return place in pool.ready or place in pool.stopping

    def lose(self, place: int, until: float | None) -> None:
        """The replica at that place, which served, has failed: it is ready again at ``until`` (s;
        None: after a cold start), unless it was to stop."""
        pool, now = self._pool_of(place), self._env._now
        if place in pool.stopping:
            pool.stopping.remove(place)
            self._give_back(pool, place, now)
            self._revive(place)
            return
        due = now + pool.cold_start if until is None else until
        pool.ready.remove(place)
        pool.starting.append((due, place))
        pool.failed.add(place)
        self._retarget()
        if due < self._wakes:
            self._wakes = due
            self._alarm.move(due, HANDOVER)

    def _pool_of(self, place: int) -> ScaledPool:
        return next(pool for pool in self.pools if place in pool.places)

    def _revive(self, place: int) -> None:
        """The replica at that place is no longer one that failed."""
        assert self._fleet.clients is not None
        self._fleet.clients.revive(place)

    def _give_back(self, pool: ScaledPool, place: int, now: float) -> None:
        """The replica at that place is not held any more."""
        number = self._fleet.replicas[place].index
        self._recorder.held(number, pool.since.pop(place), now)

    def _retarget(self) -> None:
        ready = {place for pool in self.pools for place in pool.ready}
        self._fleet.without("stopped", set(range(len(self._fleet.replicas))) - ready)

    def _process(self, alarm: Alarm) -> Process:
        env, always = self._env, self._always
        decision, reading, polls = self._interval, self._scrape, list(self._polling)
        while not self._is_over():
            starts = [due for pool in self.pools for due, _ in pool.starting]
            self._wakes = min([decision, reading, *polls, *starts])
            yield alarm.at(self._wakes, HANDOVER)
            if self._fleet.clients is not None and self._is_over():  # the run has ended before
                break
            now = env._now
            for pool in self.pools:
                self._begin(pool, now)
            due = [at for at, when in enumerate(polls) if when <= now]
            if now >= reading or (always and due):
                reading += self._scrape if now >= reading else 0.0
                self._read(now)
            for at in due:
                polls[at] += self._polling[at]
                self._poll(at, now)
            if now >= decision:
                decision += self._interval
                self._decide(now)
            self._retarget()
        yield alarm.at(math.inf, HANDOVER)

    def _is_over(self) -> bool:
        """Whether all requests have come and are over."""
        fleet = self._fleet
        if not fleet.all_sent(self._total) or fleet.outstanding:
            return False
        return fleet.clients is None or fleet.clients.served

    def _poll(self, at: int, now: float) -> None:
        """Stop the last replicas of a pool that has nothing to do, or start one for what waits."""
        pool, seen = self.pools[at], self._known(now)
        assert pool.activation is not None
        active = seen.held > 0 or any(
            sample.queue or sample.running for sample in seen.pools[at].values()
        )
        wanted = pool.activation.desired(now, pool.current, active=active)
        if (wanted == 0) != (pool.current == 0):
            self._change(pool, now, wanted)

    def _decide(self, now: float) -> None:
        seen = self._known(now)
        rate = self._rate(seen)
        for pool, metrics in zip(self.pools, seen.pools, strict=True):
            self._release(pool, now)
            samples = [metrics[at] for at in pool.ready if at in metrics]
            current = pool.current
            if pool.rule is not None and (samples or seen.held or not current):
                self._change(pool, now, pool.rule.desired(now, current, samples, rate, seen.held))

    def _read(self, now: float) -> None:
        """Note the metrics of replicas that serve."""
        replicas = self._fleet.replicas
        pools = [{at: _sample(replicas[at]) for at in pool.ready} for pool in self.pools]
        self._seen.append(_Seen(now, self._fleet.issued, len(self._fleet.held), pools))

    def _known(self, now: float) -> _Seen:
        """The last metrics that a decision knows of."""
        seen = self._seen
        while len(seen) > 1 and seen[1].at <= now - self._delay:
            seen.popleft()
        return seen[0]

    def _rate(self, seen: _Seen) -> float:
        """Requests/s that had arrived in the minute before, or since the start."""
        arrived = self._arrived
        if seen.at > arrived[-1][0]:
            arrived.append((seen.at, seen.issued))
        while len(arrived) > 1 and arrived[1][0] <= seen.at - RATE_OVER:
            arrived.popleft()
        since, before = arrived[0]
        return (seen.issued - before) / (seen.at - since) if seen.at > since else 0.0

    def _begin(self, pool: ScaledPool, now: float) -> None:
        """Begin to use the replicas whose cold start is over."""
        begun = [place for due, place in pool.starting if due <= now]
        if begun:
            pool.starting = [each for each in pool.starting if each[0] > now]
            pool.ready = sorted([*pool.ready, *begun])
            for place in pool.failed.intersection(begun):
                pool.failed.discard(place)
                self._revive(place)

    def _release(self, pool: ScaledPool, now: float) -> None:
        """Give back those that are stopped and empty."""
        replicas = self._fleet.replicas
        for place in [at for at in pool.stopping if not replicas[at].outstanding]:
            pool.stopping.remove(place)
            self._give_back(pool, place, now)

    def _change(self, pool: ScaledPool, now: float, wanted: int) -> None:
        """Start or stop as it is wanted: of those that start or failed the last first, then the
        ones with the highest numbers."""
        current = pool.current
        free = [at for at in pool.places if at not in pool.since]
        for place in free[: max(0, wanted - current)]:
            pool.since[place] = now
            pool.starting.append((now + pool.cold_start, place))
        for _ in range(current - wanted):
            if pool.starting:
                _, place = pool.starting.pop()
                self._give_back(pool, place, now)
                if place in pool.failed:
                    pool.failed.discard(place)
                    self._revive(place)
            else:
                pool.stopping.append(pool.ready.pop())


def _sample(engine: Engine) -> Reading:
    waiting = engine.queued
    return Reading(waiting, engine.outstanding - waiting, engine.kv_used)
