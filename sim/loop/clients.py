"""Plays clients that give up and send again, and replicas that fail and come back.

A request of the traffic becomes one *attempt* after the other. An attempt comes to nothing when its
client has waited ``timeout`` for the whole answer, when the replica that has it fails, or when no
replica is there. A client that goes away (a recorded one, or a real one) sends nothing again; else
it sends the request again, after a while that doubles with each attempt, or gives it up. An attempt
that timed out is dropped at the end of the iteration in flight; what was computed of it is lost.

A replica that fails loses its requests and all of its KV memory; it comes back empty. In a pool
that is scaled only replicas that serve fail, and the autoscaler says when they are back. At one
instant failures come first, then clients give up, then requests arrive, those that are sent again
last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

import numpy as np
import simpy

from sim.loop.attempt_rows import (
    CANCELLED,
    LOST,
    OUTCOMES,
    TIMED_OUT,
    UNAVAILABLE,
    AttemptRecorder,
)
from sim.loop.client_rules import Outage, Rules
from sim.loop.clock import FAILURE, RETRY, TIMEOUT, Alarm, Process
from sim.loop.engine import Engine
from sim.loop.handover import HandOvers
from sim.loop.recorder import GAVE_UP, Recorder
from sim.loop.withdrawing import withdraw
from sim.request import NEVER, Request
from sim.schedulers.roles import HandedOver


class Gateway(Protocol):
    """The receiver of clients' requests: the fleet and its router (``sim.loop.fleet.Fleet``)."""

    replicas: list[Engine]
    handovers: HandOvers | None
    closed: bool
    holds: bool

    def hold(self, request: Request) -> None:
        """Keep ``request`` at the gateway until a replica serves."""

    def place(self, request: Request) -> Engine | HandOvers | None:
        """Send ``request`` to a replica; None if none is there or can ever serve it."""

    def let_go(self, request: Request) -> None:
        """Forget a request that waits at the gateway."""

    def gave_up(self, request: Request) -> None:
        """A request came to nothing."""

    def answer(self, request: Request) -> None:
        """A request was answered."""

    def all_sent(self, total: float) -> bool:
        """Whether all of ``total`` requests have come, or none comes any more."""

    def passing(self, prompt_tokens: int) -> float:
        """Seconds that a request of a prompt of that length spends outside the engine."""

    def without(self, why: str, places: Collection[int]) -> None:
        """Route past the replicas at these places."""


class Scaler(Protocol):
    """Decides which replicas of a scaled pool serve (``sim.loop.autoscaler``)."""

    def scales(self, place: int) -> bool:
        """Whether the replica is one of a pool that is scaled."""

    def serves(self, place: int) -> bool:
        """Whether the replica serves now."""

    def lose(self, place: int, until: float | None) -> None:
        """The replica is out of service until then; None: for good."""


class _Attempt:
    """A request on its way for the ``number``-th time: ``engine`` has it, or it is ``held`` at the
    gateway, or its client waits to send it."""

    __slots__ = ("engine", "held", "number", "over", "request", "sent")

    def __init__(self, request: Request, number: int, sent: float) -> None:
        self.request, self.number, self.sent = request, number, sent
        self.engine: Engine | HandOvers | None = None
        self.held = self.over = False


class _Left(NamedTuple):
    """The fate of an attempt that its engine has still to drop."""

    attempt: _Attempt
    outcome: int
    ended: float
    last: bool


class Clients:
    """The clients of ``fleet``. ``make`` makes the replica at a place anew; ``chances`` gives the
    random numbers of a request by its id; ``patience`` has the seconds after which the client of a
    request goes away, by its id. ``scaler`` scales the fleet, where something does."""

    scaler: Scaler | None = None

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        rules: Rules,
        chances: Callable[[int], np.random.Generator],
        patience: Mapping[int, float] | None = None,
    ) -> None:
        for words in OUTCOMES:  # numbered alike, whichever comes first: with leaps another may
            recorder.reason(words)
        self.rows = AttemptRecorder()
        self.ended = 0.0
        """When the last request was answered, or had left its engine (s)."""
        self._env, self._recorder, self._rules, self._chances = env, recorder, rules, chances
        self._trying: dict[int, _Attempt] = {}  # by request, those that are not over
        self._dropped: dict[Request, _Left] = {}
        self._patience = dict(patience or {})
        # a heap: until when, of which request, how it ends then
        self._waits: list[tuple[float, int, int, int, _Attempt]] = []
        self._again: list[tuple[float, int, _Attempt]] = []  # a heap of when they are there
        self._timeouts, self._retries = Alarm(env), Alarm(env)
        self._timeouts_at = self._retries_at = -math.inf  # when they wake; -inf: they do not wait
        self._down: set[int] = set()
        self._failed: dict[int, tuple[int, int, float, float]] = {}  # of those, by operators

    def start(self, fleet: Gateway, make: Callable[[int], Engine], total: float) -> None:
        """Begin to play, for ``fleet`` with all its replicas, until ``total`` requests are over."""
        if fleet.handovers is not None:
            fleet.handovers.left = self.left
        self._fleet, self._make, self._total = fleet, make, total
        self._timeouts.start(self._give_up())
        self._retries.start(self._send_again())
        failures = Alarm(self._env)
        failures.start(self._fail(failures))

    # -- attempts --------------------------------------------------------------------------------

    def send(self, request: Request) -> bool:
        """``request`` arrives for the first time; False if no replica can ever serve it."""
        return self._send(_Attempt(request, 1, request.arrival))

    def _send(self, attempt: _Attempt) -> bool:
        request, fleet, rules = attempt.request, self._fleet, self._rules
        self._trying[request.id] = attempt
        if not fleet.closed:
            if not self._place(attempt):
                return False
        elif fleet.holds:
            fleet.hold(request)
            attempt.held = True
        else:
            self._over(attempt, UNAVAILABLE)
            self.left(request, -1, 0)
            return True
        if rules.timeout < math.inf:
            self._wait(attempt, attempt.sent + rules.timeout, TIMED_OUT)
        if self._patience and (patience := self._patience.get(request.id)) is not None:
            self._wait(attempt, request.arrival + patience, CANCELLED)
        return True

    def _place(self, attempt: _Attempt) -> bool:
        """Bring ``attempt`` to a replica that serves; False if none can ever serve it."""
        attempt.engine, attempt.held = self._fleet.place(attempt.request), False
        if attempt.engine is None:
            attempt.over = True
            del self._trying[attempt.request.id]
            return False
        return True

    def admitted(self, request: Request) -> None:
        """``request`` has waited at the gateway, and there is a replica now."""
        if not self._place(self._trying[request.id]):
            self.ended = self._env._now
            self._fleet.gave_up(request)

    def cancel(self, number: int, patience: float) -> None:
        """The client of the request with that ``number`` goes away so long (s) after it was sent,
        which is in the future."""
        self._patience[number] = patience
        if (attempt := self._trying.get(number)) is not None:
            self._wait(attempt, attempt.request.arrival + patience, CANCELLED)

    @property
    def went(self) -> bool:
        """Whether some client went away, or an attempt came to nothing."""
        return bool(self._patience or self._failed) or self.rows.any

    @property
    def served(self) -> bool:
        """Whether all requests of the traffic have come and are over; never where more may come."""
        return self._fleet.all_sent(self._total) and not self._trying

    def _wait(self, attempt: _Attempt, until: float, outcome: int) -> None:
        """``attempt`` has that ``outcome`` at the time ``until``, unless it is over by then."""
        until = max(until, self._env._now)
        heappush(self._waits, (until, attempt.request.id, attempt.number, outcome, attempt))
        if until < self._timeouts_at:
            self._timeouts_at = until
            self._timeouts.move(until, TIMEOUT)

    def finished(self, request: Request) -> None:
        """``request`` has its last token."""
        attempt = self._trying.pop(request.id)
        attempt.over = True
        self.ended = self._env._now
        self._fleet.answer(request)

    def _over(self, attempt: _Attempt, outcome: int) -> None:
        """``attempt`` came to nothing: its client tries again, or gives up. ``left`` says what the
        engine had done."""
        request, now, rules = attempt.request, self._env._now, self._rules
        attempt.over = True
        rule = rules.after_timeout if outcome == TIMED_OUT else rules.after_loss
        if outcome == CANCELLED:
            rule = None
        last = rule is None or attempt.number >= rule.attempts
        self._dropped[request] = _Left(attempt, outcome, now, last)
        del self._trying[request.id]
        if rule is None or last:
            self.ended = now
            self._fleet.gave_up(request)
            return
        chance = self._chances(request.id).random(attempt.number)[-1]
        due = now + rule.wait(attempt.number, float(chance))
        following = _Attempt(_anew(request), attempt.number + 1, due)
        self._trying[request.id] = following
        at = due + self._fleet.passing(request.prompt_tokens)
        heappush(self._again, (at, request.id, following))
        if at < self._retries_at:
            self._retries_at = at
            self._retries.move(at, RETRY)

    def left(self, request: Request, replica: int, generated: int) -> None:
        """An attempt that is over has left its engine, after that many tokens."""
        attempt, outcome, ended, last = self._dropped.pop(_asked(request))
        number, sent = attempt.number, attempt.sent
        self.rows.failed(request, number, outcome, replica, generated, sent, ended)
        if last:
            self.ended = self._env._now
            if request.scheduled != request.scheduled:
                request.scheduled = max(ended, request.queued)  # it waited until then
            reason = self._recorder.reason(OUTCOMES[outcome])
            self._recorder.close(request, replica, generated, NEVER, GAVE_UP, reason)

    def unfinished(self, request: Request, replica: int, generated: int) -> None:
        """The run ends with ``request`` on a replica."""
        if self.dropped(request):
            self.left(request, replica, generated)
        else:
            del self._trying[request.id]
            self._recorder.leave_unfinished(request, replica, generated)

    def dropped(self, request: Request) -> bool:
        """Whether the client of ``request`` has gone, which an engine has still."""
        return _asked(request) in self._dropped

    def outcome(self, request: Request) -> int:
        """How the last attempt ended of a ``request`` that its engine has still to drop."""
        return self._dropped[request].outcome

    def close(self) -> None:
        """The run ends; those that wait to send again are unfinished."""
        for found in self._failed.values():
            self.rows.outage(*found, math.inf)
        for attempt in self._trying.values():
            self.rows.unsent.append(attempt.request.id)
            self._recorder.leave_unfinished(attempt.request, -1, 0)

    # -- operators -------------------------------------------------------------------------------

    def fail(self, place: int) -> None:
        """The replica at that ``place`` is gone, with all that it has, until it is ``revived``."""
        self._down.add(place)
        self._failed[place] = self._lose(place)
        self._fleet.without("failed", self._down)

    def fail_scaled(self, place: int, until: float | None) -> None:
        """The replica at that ``place``, of a pool that is scaled, is gone if it serves, and comes
        back ``until`` then (s), or after a cold start."""
        assert self.scaler is not None
        if self.scaler.serves(place):
            self.fail(place)
            self.scaler.lose(place, until)

    def revive(self, place: int) -> None:
        """An empty replica serves in its place."""
        self.rows.outage(*self._failed.pop(place), self._env._now)
        self._down.discard(place)
        self._fleet.without("failed", self._down)

    def renew(self, place: int) -> None:
        """Restart the idle replica at that ``place``."""
        engine = self._fleet.replicas[place]
        assert not engine.outstanding
        engine.fail(self._env._now)
        self._fleet.replicas[place] = self._make(place)

    # -- processes -------------------------------------------------------------------------------

    def _give_up(self) -> Process:
        """Clients whose patience is at its end."""
        env, waits = self._env, self._waits
        while True:
            while waits and (waits[0][-1].over or waits[0][0] <= env._now):
                *_, outcome, attempt = heappop(waits)
                if not attempt.over:
                    self._time_out(attempt, outcome)
            self._timeouts_at = waits[0][0] if waits else math.inf
            yield self._timeouts.at(self._timeouts_at, TIMEOUT)
            self._timeouts_at = -math.inf

    def _time_out(self, attempt: _Attempt, outcome: int) -> None:
        engine, request = attempt.engine, attempt.request
        if engine is None and not attempt.held:  # it is to be sent again, and then given up
            return
        self._over(attempt, outcome)
        if engine is None:
            self._fleet.let_go(request)
            self.left(request, -1, 0)
        elif isinstance(engine, HandOvers):
            engine.withdraw(request)
        else:
            assert withdraw(engine, request), f"{request} is nowhere"

    def _send_again(self) -> Process:
        """Requests that are sent once more."""
        env, again = self._env, self._again
        while True:
            while again and again[0][0] <= env._now:
                _, _, attempt = heappop(again)
                attempt.request.queued = env._now
                self.rows.sent_again(attempt.request, env._now)
                if not self._send(attempt):
                    self.ended = env._now
                    self._fleet.gave_up(attempt.request)
            self._retries_at = again[0][0] if again else math.inf
            yield self._retries.at(self._retries_at, RETRY)
            self._retries_at = -math.inf

    def _fail(self, alarm: Alarm) -> Process:
        """Replicas that fail, and come back."""
        env, fleet = self._env, self._fleet
        outages = self._rules.outages
        coming: list[tuple[float, int, float]] = []  # when, which, and until when it is gone then
        for place, own in enumerate(outages):
            _push_next(coming, place, own)
        while coming:
            yield alarm.at(coming[0][0], FAILURE)
            if self.served:
                break
            while coming and coming[0][0] <= env._now:
                _, place, until = heappop(coming)
                if self.scaler is not None and self.scaler.scales(place):
                    self.fail_scaled(place, until if until < math.inf else None)
                    _push_next(coming, place, outages[place])
                elif place in self._down:
                    self._down.remove(place)
                    _push_next(coming, place, outages[place])
                else:
                    self._down.add(place)
                    if until < math.inf:
                        heappush(coming, (until, place, until))
                    self.rows.outage(*self._lose(place), until)
            fleet.without("failed", self._down)
        yield alarm.at(math.inf, FAILURE)

    def _lose(self, place: int) -> tuple[int, int, float, float]:
        """The replica at ``place`` is gone; an empty one will take its place. Its number, the
        requests that are lost, when, and for how long (s) an iteration that did not end had run."""
        now, fleet = self._env._now, self._fleet
        engine = fleet.replicas[place]
        unfinished, computing = engine.fail(now)
        fleet.replicas[place] = self._make(place)
        lost = 0
        for number, request, generated in unfinished:
            if not self.dropped(request):
                lost += 1
                self._over(self._trying[request.id], LOST)
            self.left(request, number, generated)
        return engine.index, lost, now, computing


def _push_next(coming: list[tuple[float, int, float]], place: int, own: Iterator[Outage]) -> None:
    outage = next(own, None)
    if outage is not None:
        heappush(coming, (outage.since, place, outage.until))


def _anew(request: Request) -> Request:
    """The request, as a client sends it again; its latencies count from when it was first sent."""
    r = request
    texts = r.traffic_class, r.prefix, r.session
    again = Request(r.id, r.arrival, r.prompt_tokens, r.output_tokens, *texts)
    again.adapter = r.adapter
    again.joins = r.joins + 2  # entries of the attempt before, which may join once more, are others
    return again


def _asked(request: Request) -> Request:
    """The request that the fleet was given."""
    return request.asked if isinstance(request, HandedOver) else request
