"""Brings real arrivals to the replicas, and says when each token comes while they run.

``LiveFleet`` is the fleet of the event loop for traffic that is not known in advance. The caller
owns the clock: it sends requests when they come, asks when something is due next, and lets
everything happen that is due by then. What happens is what the same arrivals would have brought
about as a trace, to the last bit: leaps are cut by an arrival alone, and the tokens inside one are
told at the boundaries that ``sim.growth`` gives. Times in simulated seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import inf, nextafter, ulp
from typing import Any

import simpy

from sim.loop.clock import ARRIVAL, Alarm, Process, Stop, run
from sim.loop.fleet import Engine, Fleet
from sim.loop.lockstep import LockStep, Rank
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.withdrawing import Withdrawing
from sim.request import Prefix, Request, TrafficClass
from sim.routers import Router

Told = Callable[[Request, int, float, int], None]
"""Called with (request, tokens that it has by now, when it got the last of them, the number of the
replica or data rank that it is on)."""


class LiveReplica(Withdrawing):
    """A replica that knows which of its tokens were told, and counts what it does.

    ``preemptions``  so far
    ``queries``      prompt tokens that were looked up in the prefix cache
    ``hits``         those of them that were there
    ``drafted``      drafts that were checked, and ``accepted`` of them
    ``checks``       how often those of one sequence were
    ``sizes``        iterations by the number of their tokens; of those of a leap with drafts, that
                     of their mean
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self.preemptions = self.queries = self.hits = 0
        self.drafted = self.accepted = self.checks = 0
        self.sizes: Counter[int] = Counter()
        self._told = 0  # iterations of the plan in flight whose tokens were told
        self._moved = False  # a plan has ended since tokens were last told
        self._lost: list[Request] = []  # preempted since then
        super().__init__(*given, **named)

    def _account(self, end: float) -> None:
        plan, iterations, prompts = self._plan, self._iterations, 0
        for chunk in plan.chunks:
            prompts += chunk.tokens
            request = chunk.request
            if request.scheduled == self._started and not request.preemptions:
                self.queries += request.prompt_tokens
                self.hits += chunk.context
        super()._account(end)
        decoded = plan.decode * iterations
        if self._drafts is not None and decoded:
            self.checks += decoded
            self.drafted += decoded * self._drafts.courses.drafts
            self.accepted += self._drafts.accepted
            decoded = self._drafts.delivered
        each, more = divmod(decoded, iterations)
        self.sizes[prompts + each] += iterations - more
        if more:
            self.sizes[prompts + each + 1] += more
        self._told, self._moved = 0, True

    def _gone(self, request: Request, generated: int) -> None:
        self._recorder.leave_unfinished(request, self.index, generated)

    def holds(self, number: int) -> Request | None:
        """The unfinished request with that number, if it is here."""
        scheduler = self.scheduler
        here: list[Request] = [*scheduler.waiting, *scheduler.coming, *scheduler.members()]
        return next((request for request in here if request.id == number), None)

    def _note_preempted(self, now: float) -> None:
        self.preemptions += len(self.scheduler.preempted)
        self._lost += self.scheduler.preempted
        super()._note_preempted(now)

    @property
    def next_token(self) -> float:
        """When the next iteration inside the leap in flight ends; the last one is an event."""
        run, following = self._run, self._told + 1
        if run is None or following >= self._iterations:
            return inf
        return run.boundary(run.done + following)

    def news(self, now: float) -> list[tuple[Request, int]]:
        """The requests that may have got a token by ``now`` which was not told, and how many each
        has; afterwards it was."""
        inside = self.next_token <= now
        if not inside and not self._moved:
            return []
        self._told += inside
        scheduler, told = self.scheduler, self._told
        gained = scheduler.decoding.gained_after
        found = [(request, request.generated) for request in self._lost]
        self._moved, self._lost = False, []
        for request in scheduler.members():
            if request.joined >= 0:
                found.append((request, request.generated + gained(request, told)))
            elif request.generated:
                found.append((request, request.generated))
        return found


class LiveRank(LiveReplica, Rank):
    """A data rank that knows which of its tokens were told."""


class LiveFleet(Fleet):
    """Replicas that serve whoever comes. ``told`` hears of every token.

    ``engines`` are all replicas, ``replicas`` those that new requests are sent to.
    """

    def __init__(
        self,
        router: Router,
        recorder: Recorder,
        *,
        front_end: float,
        told: Told,
    ) -> None:
        self.env = env = simpy.Environment()
        super().__init__(env, router, recorder, front_end=front_end)
        self.engines: list[Engine] = []
        self.sent = 0
        self.done_until = -inf
        """Everything up to here has happened; a request can only come later."""
        self._told = told
        self._last = 0.0  # arrival of the request sent last
        self._pending: deque[tuple[float, int, int, TrafficClass, Prefix]] = deque()
        self._leaving: deque[tuple[float, int]] = deque()
        self._stop = Stop()
        self._alarm, self._exit = Alarm(env), Alarm(env)
        self.parts: list[LiveReplica] = []
        self._pipelines: list[Pipeline] = []

    def start(self, replicas: list[Engine]) -> None:
        """Begin to take requests, with these ``replicas``."""
        self.engines = replicas
        self.replicas = list(replicas)
        for engine in replicas:
            if isinstance(engine, Pipeline):
                self._pipelines.append(engine)
            elif isinstance(engine, LockStep):
                self.parts += [rank for rank in engine.ranks if isinstance(rank, LiveRank)]
            elif isinstance(engine, LiveReplica):
                self.parts.append(engine)
        self._alarm.start(self._arrivals())
        self._exit.start(self._departures())
        run(self._env, self._env.now, self._stop)  # up to where all of them wait

    def finish(self, request: Request, number: int) -> None:
        """``request`` has its last token, of the replica with that number."""
        self._told(request, request.output_tokens, self._env._now, number)

    def send(
        self,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        traffic_class: TrafficClass,
        prefix: Prefix,
    ) -> float:
        """A client sends a request, the one with the number ``sent``, at ``arrival``, or as soon
        after that as is still possible: returns when.

        Requests arrive in the order in which they are sent, and reach the engine after everything
        that has happened.
        """
        arrival = self._possible(max(arrival, self._last))
        self._last = arrival
        self.sent += 1
        self._pending.append((arrival, prompt_tokens, output_tokens, traffic_class, prefix))
        if len(self._pending) == 1:
            self._alarm.move(arrival + self.front_end, ARRIVAL)
        return arrival

    def _possible(self, arrival: float) -> float:
        """``arrival``, or the first moment (nearly) whose request reaches the engine in future."""
        front_end, done = self.front_end, self.done_until
        if arrival + front_end > done:
            return arrival
        step = ulp(done)
        while done - front_end + step + front_end <= done:
            step *= 2
        return max(arrival, done - front_end + step)

    def _arrivals(self) -> Process:
        env, front_end, pending = self._env, self.front_end, self._pending
        while True:
            if not pending:
                yield self._alarm.at(inf, ARRIVAL)
            due = pending[0][0] + front_end
            if due > env._now:
                yield self._alarm.at(due, ARRIVAL)
            self._dispatch(*pending.popleft())

    def leave(self, now: float, number: int) -> None:
        """Nobody waits for the request with that ``number`` any more, from ``now`` on."""
        last = self._leaving[-1][0] if self._leaving else self.done_until
        self._leaving.append((max(now, nextafter(last, inf)), number))
        if len(self._leaving) == 1:
            self._exit.move(self._leaving[0][0], ARRIVAL)

    def _departures(self) -> Process:
        env, leaving = self._env, self._leaving
        while True:
            if not leaving:
                yield self._exit.at(inf, ARRIVAL)
            if leaving[0][0] > env._now:
                yield self._exit.at(leaving[0][0], ARRIVAL)
            self._withdraw(leaving.popleft()[1])

    def _withdraw(self, number: int) -> None:
        if number >= self.issued:  # still on its way into the engine
            due = self._pending[number - self.issued][0] + self.front_end
            self.leave(nextafter(due, inf), number)
            return
        for engine in self.engines:
            if isinstance(engine, Pipeline):
                continue
            for part in engine.ranks if isinstance(engine, LockStep) else (engine,):
                assert isinstance(part, LiveReplica)
                if (request := part.holds(number)) is not None:
                    part.withdraw(request)
                    if engine._iterations > 1:
                        engine._cut()
                    return

    @property
    def outstanding(self) -> int:
        """Requests that have arrived and are not finished, on all engines."""
        return sum(engine.outstanding for engine in self.engines)

    @property
    def due(self) -> float:
        """When something happens next if nothing is sent; inf: never."""
        soonest: float = self._env.peek()
        for part in self.parts:
            if (token := part.next_token) < soonest:
                soonest = token
        return soonest

    def advance(self, now: float, most: int = 1 << 60) -> bool:
        """Let everything happen that is due until ``now``, at most at so many instants; False if
        some is left."""
        for _ in range(most):
            due = self.due
            if due > now:
                self.done_until = max(now, self.done_until)
                return True
            run(self._env, due, self._stop)
            self.done_until = due
            self._tell(due)
        return False

    def _tell(self, now: float) -> None:
        """Say which tokens came at ``now``."""
        told = self._told
        for part in self.parts:
            for request, tokens in part.news(now):
                told(request, tokens, now, part.index)
        for pipeline in self._pipelines:
            for request, tokens in _pipelined(pipeline):
                told(request, tokens, now, pipeline.index)

    def close(self) -> float:
        """Nothing more is sent, and nothing is unfinished: let go what was planned and came to
        nothing. When the last of that was due."""
        run(self._env, inf, self._stop)
        return self._env.now

    @property
    def events(self) -> int:
        """SimPy events so far; asked for once, at the end."""
        return next(self._env._eid)


def _pipelined(pipeline: Pipeline) -> Iterator[tuple[Request, int]]:
    """The requests of a pipeline that may have got a token, and how many each has."""
    scheduler = pipeline.scheduler
    for request in scheduler.members():
        yield request, request.generated + scheduler.steps(request)
    for request in scheduler.waiting:  # those that were preempted stand in front
        if not request.preemptions:
            return
        yield request, request.generated
