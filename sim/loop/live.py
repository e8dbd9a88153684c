"""Brings real arrivals to the replicas, and says when each token comes while they run.

``LiveFleet`` is the fleet of the event loop for traffic that is not known in advance. The caller
owns the clock: it sends requests when they come, asks when something is due next, and lets
everything happen that is due by then. What happens is what the same arrivals would have brought
about as a trace, to the last bit: leaps are cut by an arrival alone, or by a client that goes away,
and the tokens inside one are delivered at the boundaries that ``sim.growth`` gives. Times in
simulated seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from math import inf, nextafter, ulp
from typing import Any

import simpy

from sim.growth.sampled import Sampled
from sim.loop.attempt_rows import UNAVAILABLE
from sim.loop.client_replicas import ClientPipeline, ClientRank, ClientReplica
from sim.loop.clock import ARRIVAL, Alarm, Process, Stop, run
from sim.loop.engine import Engine
from sim.loop.fleet import Fleet
from sim.loop.handover import PrefillRank, PrefillReplica
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.request import Prefix, Request, TrafficClass
from sim.routers import Router
from sim.schedulers import Scheduler

Told = Callable[[Request, int, float, int], None]
"""Called with (request, tokens that it has by now, when it got the last of them, the number of the
replica or data rank that it is on); where prompts are computed apart, with them, too."""


UNSERVED, FAILED = "no replica is in service", "the replica that had it failed"
"""Why requests come to nothing."""


class Telling(Replica):
    """A replica that knows which of its tokens were delivered, and counts what it does.

    ``tell``         is called with the last tokens of requests
    ``preemptions``  so far
    ``queries``      prompt tokens that were looked up in the prefix cache, if there is one
    ``hits``         those of them that were there
    ``drafted``      drafts that were checked
    ``accepted``     those that were accepted, by their place among the drafts of a sequence
    ``checks``       how often those of one sequence were
    ``sizes``        iterations that have ended, by the number of their tokens
    """

    tell: Told

    def __init__(self, *given: Any, **named: Any) -> None:
        self.preemptions = self.queries = self.hits = 0
        self.drafted = self.checks = 0
        self.accepted: Counter[int] = Counter()
        self.sizes: Counter[int] = Counter()
        self._told = 0  # iterations of the plan in flight whose tokens were delivered
        self._moved = False  # a plan has ended since tokens were last delivered
        self._lost: list[Request] = []  # preempted since then
        super().__init__(*given, **named)

    def account(self, end: float) -> None:
        """Record what ran until ``end``, and count it."""
        plan, iterations, prompts = self.flight.plan, self._iterations, 0
        batch = self.scheduler.decoding
        for chunk in plan.chunks:
            prompts += chunk.tokens
            request = chunk.request
            first = request.scheduled == self.flight.start and not request.preemptions
            if first and self._caches:
                self.queries += request.prompt_tokens
                self.hits += chunk.context
        for number in range(self._told, iterations):
            self.sizes[prompts + self._decoded(number)] += 1
        if isinstance(batch, Sampled) and plan.decode:
            self.checks += plan.decode * iterations
            self.drafted += plan.decode * iterations * batch.courses.drafts
            self._count_accepted(batch, iterations)
        super().account(end)
        self._told, self._moved = 0, True

    def _decoded(self, number: int) -> int:
        """Tokens that decoding sequences get from iteration ``number`` of the plan in flight."""
        plan, batch = self.flight.plan, self.scheduler.decoding
        return (
            batch.tokens_of(number) if isinstance(batch, Sampled) and plan.decode else plan.decode
        )

    def _count_accepted(self, batch: Sampled, iterations: int) -> None:
        """Count the drafts that the next that many ``iterations`` accept."""
        for request in self.scheduler.members():
            if request.joined >= 0:
                for right in batch.accepted_by(request, iterations):
                    for place in range(right):
                        self.accepted[place] += 1

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        super()._deliver(finished, number, end)  # which drops those whose client has gone
        for request in finished:
            self.tell(request, request.output_tokens, end, self.index)

    def _note_preempted(self, now: float) -> None:
        self.preemptions += len(self.scheduler.preempted)
        self._lost += self.scheduler.preempted
        super()._note_preempted(now)

    @property
    def places(self) -> int:
        """Requests that could join the next batch: none where memory, or a budget, has left some
        in the queue."""
        if self._iterations and self.flight.waiting:
            return 0
        return _free(self.scheduler)

    @property
    def next_token(self) -> float:
        """When the next iteration inside the leap in flight ends; the last one is an event."""
        run, following = self._run, self._told + 1
        if run is None or following >= self._iterations:
            return inf
        return run.boundary(run.done + following)

    def news(self, now: float) -> list[tuple[Request, int]]:
        """Requests that may have got a token by ``now`` which was not delivered, and how many each
        has; afterwards it was."""
        inside = self.next_token <= now
        if not inside and not self._moved:
            return []
        if inside:
            self.sizes[self._decoded(self._told)] += 1
            self._told += 1
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


class LiveReplica(Telling, ClientReplica):
    """A replica that knows which of its tokens were delivered."""


class LiveRank(Telling, ClientRank):
    """A data rank that does."""


class LivePrefill(Telling, PrefillReplica):
    """A replica of a prefill pool that reports prompts."""


class LivePrefillRank(Telling, PrefillRank):
    """A data rank that does."""


class LivePipeline(ClientPipeline):
    """A pipeline that reports its tokens; each of its passes is an event, at which they came."""

    tell: Told

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named | {"leap": False})

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        super()._deliver(finished, number, end)
        for request in finished:
            self.tell(request, request.output_tokens, end, self.index)

    @property
    def places(self) -> int:
        """Requests that could join a batch."""
        return _free(self.scheduler)

    def news(self) -> Iterator[tuple[Request, int]]:
        """The requests that may have got a token, and how many each has."""
        scheduler = self.scheduler
        for request in scheduler.members():
            yield request, request.generated + scheduler.steps(request)
        for request in scheduler.waiting:  # those that were preempted stand in front
            if not request.preemptions:
                return
            yield request, request.generated


def _free(scheduler: Scheduler) -> int:
    """Sequences that it may take in addition to those that run."""
    return max(0, scheduler.limits.max_num_seqs - len(scheduler.members()))


class LiveFleet(Fleet):
    """Replicas that serve requests as they come. ``told`` hears of every token, ``lost`` of
    requests that no replica has any more, and why."""

    def __init__(
        self,
        router: Router,
        recorder: Recorder,
        *,
        front_end: float,
        told: Told,
        lost: Callable[[Request, str], None],
    ) -> None:
        self.env = env = simpy.Environment()
        super().__init__(env, router, recorder, front_end=front_end)
        self.sent = 0
        self.done_until = -inf
        """Everything up to here has happened; a request can only come later."""
        self._happened = 0.0  # when the last event was
        self._told, self._lost = told, lost
        self._last = 0.0  # arrival of the request sent last
        self._pending: deque[tuple[float, int, int, TrafficClass, Prefix]] = deque()
        self._stop = Stop()
        self._alarm = Alarm(env)
        self.parts: list[Telling] = []
        """Replicas and data ranks; pipelines are not among them."""
        self._pipelines: list[LivePipeline] = []

    def put(self, place: int, engine: Engine) -> Engine:
        """``engine`` is the replica at that ``place``, or its successor."""
        self.replicas[place : place + 1] = [engine]
        self.parts, self._pipelines = [], []
        for each in self.replicas:
            if isinstance(each, LivePipeline):
                each.tell = self._told
                self._pipelines.append(each)
                continue
            for part in each.ranks:
                assert isinstance(part, Telling)
                part.tell = self._told
                self.parts.append(part)
        return engine

    def start(self) -> None:
        """Begin to take requests, with all replicas."""
        self._alarm.start(self._arrivals())
        run(self._env, self._env.now, self._stop)  # up to where all processes wait

    def takes(self, engine: Engine) -> bool:
        """Whether new requests are sent to ``engine``."""
        return engine in self.targets if self._absent else True

    def gave_up(self, request: Request) -> None:
        """Note that a request is given up: its replica failed or was missing, or its client has
        gone."""
        assert self.clients is not None
        found_none = self.clients.outcome(request) == UNAVAILABLE
        self._lost(request, UNSERVED if found_none else FAILED)

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
        arrival = self._possible(max(arrival, self._last), prompt_tokens)
        self._last = arrival
        self.sent += 1
        self._pending.append((arrival, prompt_tokens, output_tokens, traffic_class, prefix))
        if len(self._pending) == 1:
            self._alarm.move(self._reaches(arrival, prompt_tokens), ARRIVAL)
        return arrival

    def begin(self) -> None:
        """Begins the run: all that is due at 0, before the first request."""
        run(self.env, 0.0, self._stop)

    def possible(self, now: float) -> float:
        """``now``, or the first moment after everything that has happened."""
        return now if now > self.done_until else nextafter(self.done_until, inf)

    def _possible(self, arrival: float, prompt_tokens: int) -> float:
        """``arrival``, or the first moment (nearly) whose request reaches the engine in future."""
        front_end, done = self.passing(prompt_tokens), self.done_until
        if arrival + front_end > done:
            return arrival
        step = ulp(done)
        while done - front_end + step + front_end <= done:
            step *= 2
        return max(arrival, done - front_end + step)

    def _arrivals(self) -> Process:
        env, pending = self._env, self._pending
        while True:
            if not pending:
                yield self._alarm.at(inf, ARRIVAL)
            due = self._reaches(*pending[0][:2])
            if due > env._now:
                yield self._alarm.at(due, ARRIVAL)
            self._dispatch(*pending.popleft())

    def leave(self, number: int, arrival: float, now: float) -> float:
        """No client waits any more for the request with that ``number``, which came at ``arrival``,
        from ``now`` on or as soon after that as is still possible: returns how long after its
        arrival (s)."""
        done, waited = self.done_until, max(now - arrival, 0.0)
        step = ulp(max(arrival, waited, 1e-9))
        while waited <= 0 or arrival + waited <= done:
            waited += step
            step *= 2
        assert self.clients is not None
        self.clients.cancel(number, waited)
        return waited

    def waiting(self, more: int) -> int:
        """Requests that would wait if that many ``more`` came: all but those that a batch has
        places for, which those in queues, or still in the front end, take first."""
        takes: Sequence[Engine] = self.targets if self._absent else self.replicas
        if self.handovers is not None:
            takes = self.handovers.prefill
        waiting, places = 0, 0
        for engine in self.replicas:
            for each in engine.ranks:
                assert isinstance(each, Telling | LivePipeline)
                spare = each.places - each.queued
                waiting += max(0, -spare)
                places += max(0, spare) if engine in takes else 0
        return waiting + max(0, len(self._pending) + more - places)

    @property
    def outstanding(self) -> int:
        """Requests that were sent and are not finished."""
        return len(self._pending) + sum(engine.outstanding for engine in self.replicas)

    @property
    def due(self) -> float:
        """When something happens next if nothing is sent; inf: never."""
        soonest: float = self._env.peek()
        for part in self.parts:
            if (token := part.next_token) < soonest:
                soonest = token
        return soonest

    def advance(self, now: float, most: int = 1 << 60) -> bool:
        """Let everything happen that is due until ``now``, at most at that many instants; False if
        some is left."""
        for _ in range(most):
            due = self.due
            if due > now:
                self.done_until = max(now, self.done_until)
                # who looks at replicas between two events, or fails one, does so now
                self._env._now = max(self.done_until, 0.0)
                return True
            self._env._now = self._happened
            run(self._env, due, self._stop)
            self._happened = self._env._now
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
            for request, tokens in pipeline.news():
                told(request, tokens, now, pipeline.index)

    def close(self) -> float:
        """Let go what was planned and came to nothing, when no request is sent or unfinished;
        returns when the last of that was due."""
        self._env._now = self._happened
        run(self._env, inf, self._stop)
        return self._env.now

    @property
    def events(self) -> int:
        """SimPy events so far; asked for once, at the end."""
        return next(self._env._eid)
