"""Brings traffic to the replicas: arrivals, the router, and clients that wait for their answer.

Requests become objects only when they arrive and are forgotten when they finish.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import simpy

from sim.loop.admission import DeadlineAdmission
from sim.loop.clock import ARRIVAL, Alarm, Process
from sim.loop.engine import Engine
from sim.loop.front_end import Threads
from sim.loop.handover import HandOvers
from sim.loop.recorder import Recorder
from sim.loop.session_rows import SessionRows, rows_of_trace
from sim.request import Prefix, Request, TrafficClass
from sim.routers import Router
from sim.workload import ClosedTraffic, OpenTraffic
from sim.workload.adapters import AdapterDraw

if TYPE_CHECKING:
    from sim.loop.clients import Clients

PROGRESS_EVERY = 4096  # requests

Progress = Callable[[int, int], None]
"""Called now and then with (requests that have arrived, requests in all)."""


class Endpoint(NamedTuple):
    """The replicas that serve one model, and the router before them."""

    replicas: list[Engine]
    router: Router


class Fleet:
    """Identical replicas behind one router. ``front_end`` is the time (s) that a request spends
    outside the engine: HTTP, tokeniser, hand-over; its first token is that much later. Each token
    of its prompt adds ``per_prompt_token``. Requests reach the router in the order in which they
    are sent."""

    def __init__(
        self,
        env: simpy.Environment,
        router: Router,
        recorder: Recorder,
        *,
        front_end: float,
        progress: Progress | None = None,
    ) -> None:
        self.replicas: list[Engine] = []
        self.targets: list[Engine] = []  # those that take requests, where not all do
        self.closed = False  # none does
        self._absent: dict[str, set[int]] = {}  # places of those that do not, by the reason
        self.handovers: HandOvers | None = None  # where pools prefill and decode apart
        self.clients: Clients | None = None  # where they may give up, or replicas fail
        self.admission: DeadlineAdmission | None = None  # where late requests are refused
        self.endpoints: Mapping[int, Endpoint] = {}  # by class, where there are several models
        self.holds = False  # whether requests wait at the gateway while no replica serves
        self.front_end = front_end
        self.per_prompt_token = 0.0
        self.adapters: AdapterDraw | None = None  # where requests ask for some
        self.threads: Threads | None = None  # of front ends that handle one request at a time
        self.issued = 0
        self._held: deque[Request] = deque()
        self._env = env
        self._router = router
        self._recorder = recorder
        self._progress = progress

    def _dispatch(
        self,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        traffic_class: TrafficClass,
        prefix: Prefix,
        session: int = -1,
    ) -> bool:
        """Send one request to a replica; False if none can ever serve it."""
        request = Request(
            self.issued, arrival, prompt_tokens, output_tokens, traffic_class, prefix, session
        )
        self.issued += 1
        if self.adapters is not None:
            self.adapters.mark(request)
        request.queued = self._env._now
        if self.threads is not None:
            self.threads.take(arrival)
        if self.clients is not None:
            return self.clients.send(request)
        if self.holds and self.closed:
            self.hold(request)
            return True
        return self.place(request) is not None

    def passing(self, prompt_tokens: int) -> float:
        """Seconds that a request of so many tokens spends in a front end that is free."""
        return self.front_end + self.per_prompt_token * prompt_tokens

    def _reaches(self, sent: float, prompt_tokens: int) -> float:
        """When a request that is sent then reaches the router, if none does before it."""
        begin = sent if self.threads is None else self.threads.begins(sent)
        return begin + self.passing(prompt_tokens)

    def place(self, request: Request) -> Engine | HandOvers | None:
        """Send ``request`` to a replica that takes requests, or on its way from one that prefills
        it to one that decodes; None if it can never be served."""
        if (handovers := self.handovers) is not None:
            if (reason := handovers.dispatch(request)) is None:
                return handovers
            self._recorder.reject(request, reason)
            return None
        replicas, router = self.targets or self.replicas, self._router
        if self.endpoints:
            replicas, router = self.endpoints[request.traffic_class.index]
        index = router.choose(request, replicas) if len(replicas) > 1 else 0
        replica = replicas[index]
        reason = replica.scheduler.refusal(request)
        if reason is None and self.admission is not None:
            reason = self.admission.refusal(request, replica)
        if reason is not None:
            self._recorder.reject(request, reason)
            return None
        replica.submit(request)
        return replica

    def without(self, why: str, places: Collection[int]) -> None:
        """The replicas at these places alone take no requests for that reason; where prompts are
        computed apart, some of both sides must."""
        self._absent[why] = set(places)
        absent = set[int]().union(*self._absent.values())
        self.targets = [each for at, each in enumerate(self.replicas) if at not in absent]
        self.closed = not self.targets
        if self.handovers is not None:
            self.closed = not self.handovers.left_with(self.targets)
        if self.threads is not None:
            self.threads.resize(max(1, len(self.targets)))
        while self._held and not self.closed:
            request = self._held.popleft()
            if self.clients is not None:
                self.clients.admitted(request)
            elif self.place(request) is None:
                self.gave_up(request)

    def hold(self, request: Request) -> None:
        """``request`` waits at the gateway until a replica serves."""
        self._held.append(request)

    def let_go(self, request: Request) -> None:
        """``request``, which waits at the gateway, leaves it."""
        self._held.remove(request)

    @property
    def held(self) -> Sequence[Request]:
        """Requests that wait at the gateway until a replica serves."""
        return self._held

    def answer(self, request: Request) -> None:
        """The client has its answer to ``request``."""

    def gave_up(self, request: Request) -> None:
        """The client has given ``request`` up."""
        self.answer(request)

    def all_sent(self, total: float) -> bool:
        """Whether all of ``total`` requests have come, or none comes any more; never where the
        ``total`` is infinite, since the run ends by the clock."""
        return self.issued >= total

    @property
    def session_rows(self) -> SessionRows | None:
        """Which request belongs to which conversation; None where there are none."""
        return None

    @property
    def outstanding(self) -> int:
        """Requests that have arrived and are neither finished nor rejected."""
        return sum(replica.outstanding for replica in self.replicas) + len(self._held)

    def flush(self) -> None:
        """Run batches that wait for more requests: none arrives before something finishes."""
        for replica in self.replicas:
            replica.flush()


class OpenFleet(Fleet):
    """Requests arrive when the trace says so, whatever the replicas do."""

    _sessions: list[int] | None = None  # of all requests so far, where a trace has them

    @property
    def session_rows(self) -> SessionRows | None:
        """The rows of the sessions, if the traffic has any."""
        named = self._sessions
        return None if named is None else rows_of_trace(np.array(named[: self.issued]))

    def start(self, traffic: OpenTraffic) -> None:
        """Begin to play ``traffic`` (the replicas are there by now)."""
        alarm = Alarm(self._env)
        alarm.start(self._arrivals(traffic, alarm))

    def _arrivals(self, traffic: OpenTraffic, alarm: Alarm) -> Process:
        env = self._env
        for chunk in traffic.chunks():
            if self._progress is not None:
                self._progress(self.issued, traffic.total)
            if chunk.sessions is not None:
                self._sessions = (self._sessions or []) + chunk.sessions
            for row in chunk.rows():
                due = self._reaches(row[0], row[1])
                if due > env._now:
                    yield alarm.at(due, ARRIVAL)
                self._dispatch(*row)
        self.flush()
        yield alarm.at(math.inf, ARRIVAL)


class AnsweredFleet(Fleet):
    """Requests of which some are sent only when earlier ones are answered.

    Subclasses keep what is to be sent, and say when the next is (``_due``), how long its prompt is
    (``_prompt``), and send it (``_send_next``); ``_wake`` is called when another may have become
    the next.
    """

    def _due(self) -> float:
        """When the next request is sent (s); infinity if that is unknown."""
        raise NotImplementedError

    def _prompt(self) -> int:
        """Tokens of the prompt of the next request; 0 if there is none."""
        raise NotImplementedError

    def _send_next(self) -> None:
        """Send what is due next."""
        raise NotImplementedError

    def _play(self, total: int) -> None:
        """Begin to send ``total`` requests."""
        self._wake_at = -math.inf  # while the process does not wait
        self._alarm = Alarm(self._env)
        self._alarm.start(self._requests(total))

    def _requests(self, total: int) -> Process:
        env = self._env
        while self.issued < total:
            due = self._reaches(self._due(), self._prompt())
            if due > env._now:
                self._wake_at = due
                yield self._alarm.at(due, ARRIVAL)
                self._wake_at = -math.inf
                continue
            if self._progress is not None and self.issued % PROGRESS_EVERY == 0:
                self._progress(self.issued, total)
            self._send_next()
        self.flush()
        yield self._alarm.at(math.inf, ARRIVAL)

    def _wake(self) -> None:
        """Let the process that waits see the next request, if that is earlier than it waits for."""
        due = self._reaches(self._due(), self._prompt())
        if due < self._wake_at:
            self._wake_at = due
            self._alarm.move(due, ARRIVAL)


class ClosedFleet(AnsweredFleet):
    """``concurrency`` clients, each sending its next request ``think_time`` after its last
    answer."""

    def start(self, traffic: ClosedTraffic) -> None:
        """Begin with one request from each client at time 0 (the replicas are there by now)."""
        self._think_time = traffic.think_time
        self._sends = [0.0] * min(traffic.concurrency, traffic.total)  # a heap of times to send at
        self._lengths = chain.from_iterable(chunk.rows() for chunk in traffic.lengths())
        self._next = next(self._lengths, None)  # what the next request is
        self._play(traffic.total)

    def _due(self) -> float:
        return self._sends[0] if self._sends else math.inf

    def _prompt(self) -> int:
        return 0 if self._next is None else self._next[0]

    def _send_next(self) -> None:
        arrival, row = heappop(self._sends), self._next
        assert row is not None
        self._next = next(self._lengths, None)
        if not self._dispatch(arrival, *row):
            heappush(self._sends, self._env._now + self._think_time)  # refused: its client goes on

    def answer(self, request: Request) -> None:
        """A client has its answer and will think, then send its next request."""
        send = self._env._now + self._think_time
        heappush(self._sends, send)
        self._wake()


def make_fleet(
    env: simpy.Environment,
    traffic: OpenTraffic | ClosedTraffic,
    router: Router,
    recorder: Recorder,
    make_replica: Callable[[int, Callable[[Request], None] | None], Engine],
    *,
    replicas: int,
    front_end: float,
    progress: Progress | None = None,
) -> Fleet:
    """A fleet of ``replicas``, ready to run. ``make_replica`` gets the number of the replica and
    what it is to call when a request is done (None: nothing)."""
    if isinstance(traffic, ClosedTraffic):
        closed = ClosedFleet(env, router, recorder, front_end=front_end, progress=progress)
        closed.replicas = [make_replica(index, closed.answer) for index in range(replicas)]
        closed.start(traffic)
        return closed
    fleet = OpenFleet(env, router, recorder, front_end=front_end, progress=progress)
    fleet.replicas = [make_replica(index, None) for index in range(replicas)]
    fleet.start(traffic)
    return fleet
