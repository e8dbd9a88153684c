"""Drains, starts and fails replicas of a fleet, at times that a scenario gives or while it serves.

A replica that is drained takes no new requests and serves those it has. One that fails loses them,
and its memory. One that is started takes requests again: at once if it still serves some, else it
starts anew, empty, and is ready after its cold start; at time 0 there is none. In a pool that
scales itself replicas can only fail, and another is started at once. None fails any more when all
requests of the traffic are over. A replica is held, and paid
for, until it is drained and has nothing left, and again from the order to start; one that
failed stays held. At one instant this comes with the failures of a scenario, before clients give
up. Times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import simpy

from sim.loop.clients import Clients
from sim.loop.clock import FAILURE, Alarm, Process
from sim.loop.fleet import Fleet
from sim.loop.recorder import Recorder

Action = Literal["drain", "start", "fail"]


class Command(NamedTuple):
    """``do`` that to the replica at that ``place`` of the fleet, ``at`` a time."""

    at: float
    do: Action
    place: int


class SteeredReplica(NamedTuple):
    """How long it takes to start (``cold_start``, s), whether it ``keeps`` what its caches hold
    when it does, how many ``numbers`` it has, and whether its pool is ``scaled``."""

    cold_start: float
    keeps: bool
    numbers: int
    scaled: bool


class Steerer:
    """Plays commands on the ``replicas`` of ``fleet``, by their place in it."""

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        clients: Clients,
        replicas: Sequence[SteeredReplica],
    ) -> None:
        self.failed: set[int] = set()
        self.drained: set[int] = set()
        self._env, self._fleet, self._clients = env, fleet, clients
        self._replicas = replicas
        self._coming: list[tuple[float, int, Command]] = []
        self._numbers = count()
        self._starting: list[tuple[float, int]] = []  # a heap: when they are ready
        self._drained_at: dict[int, float] = {}
        self._given_back: list[tuple[int, float, float]] = []  # place, drained, started again
        self._wakes = -math.inf
        self._alarm = Alarm(env)
        self._alarm.start(self._process())

    def finish(self, end: float, recorder: Recorder) -> None:
        """The run is over: note how long each replica was held, where one was not all the time."""
        for place in list(self._drained_at):
            self._take_back(place, end)
        if not self._given_back:
            return
        plans, handed = recorder.plan_rows(), recorder.handed_rows()
        for place, engine in enumerate(self._fleet.replicas):
            if self._replicas[place].scaled:
                continue
            numbers = range(engine.index, engine.index + self._replicas[place].numbers)
            own = plans["end"][np.isin(plans["replica"], numbers)]
            sent = handed["arrived"][np.isin(handed["source"], numbers)]
            since = 0.0
            for _, drained, started in (each for each in self._given_back if each[0] == place):
                worked = [float(ends[ends <= started].max(initial=0.0)) for ends in (own, sent)]
                recorder.held(engine.index, since, min(max(drained, *worked), end))
                since = started
            if since < end:
                recorder.held(engine.index, since, end)

    def _take_back(self, place: int, now: float) -> None:
        """A replica that was drained is wanted again, or the run is over."""
        drained = self._drained_at.pop(place, None)
        if drained is not None and not self._fleet.replicas[place].outstanding:
            self._given_back.append((place, drained, now))

    @property
    def starting(self) -> set[int]:
        """Places of replicas that are not ready yet."""
        return {place for _, place in self._starting}

    def add(self, command: Command) -> None:
        """``command`` is to be played, now or later."""
        heappush(self._coming, (command.at, next(self._numbers), command))
        if command.at < self._wakes:
            self._wakes = command.at
            self._alarm.move(command.at, FAILURE)

    def _process(self) -> Process:
        env, starting, coming = self._env, self._starting, self._coming
        while True:
            ready = starting[0][0] if starting else math.inf
            self._wakes = min(ready, coming[0][0] if coming else math.inf)
            yield self._alarm.at(self._wakes, FAILURE)
            self._wakes = -math.inf  # while it does not wait
            while starting and starting[0][0] <= env._now:
                self._begin(heappop(starting)[1])
            while coming and coming[0][0] <= env._now:
                _, _, (_, do, place) = heappop(coming)
                {"drain": self._drain, "start": self._start, "fail": self._fail}[do](place)
            self._fleet.without("drained", self.drained)

    def _drain(self, place: int) -> None:
        self._stay(place)
        if place not in self.failed:
            self.drained.add(place)
            self._drained_at.setdefault(place, self._env._now)

    def _start(self, place: int) -> None:
        failed = place in self.failed
        if place in self.starting or not (failed or place in self.drained):
            return
        self._take_back(place, self._env._now)
        if not failed and self._fleet.replicas[place].outstanding:
            self.drained.discard(place)
            return
        now, takes = self._env._now, self._replicas[place].cold_start
        if now and takes:
            heappush(self._starting, (now + takes, place))
        else:
            self._begin(place)

    def _begin(self, place: int) -> None:
        """The replica is ready."""
        if place in self.failed:
            self.failed.discard(place)
            self._clients.revive(place)
        elif not self._replicas[place].keeps:
            self._clients.renew(place)
        self.drained.discard(place)

    def _fail(self, place: int) -> None:
        if self._clients.served:  # the run is over
            return
        if self._replicas[place].scaled:
            self._clients.fail_scaled(place, None)
            return
        self._stay(place)
        if place not in self.failed:
            self.failed.add(place)
            if place in self._drained_at and self._fleet.replicas[place].outstanding:
                self._drained_at[place] = self._env._now
            self._clients.fail(place)

    def _stay(self, place: int) -> None:
        """A replica that starts does not any more."""
        self._starting[:] = [each for each in self._starting if each[1] != place]
        self._starting.sort()
