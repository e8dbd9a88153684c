"""Delivers the requests that are due on the wall clock, which does not wait for the engine.

Open traffic arrives at its own times, however late the engine looks; a closed loop sends after each
answer. Seconds since the start of the run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from heapq import heappop, heappush
from itertools import chain

from sim.errors import UsageError
from sim.loop.recorder import Recorder
from sim.request import Prefix, Request, TrafficClass
from sim.schedulers import Scheduler
from sim.workload import AnyTraffic, ClosedTraffic, OpenTraffic, SessionTraffic


class ArrivalSource(ABC):
    """Makes requests when their time has come, numbered in the order of their arrival."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.issued = 0

    @property
    def exhausted(self) -> bool:
        """Whether every request has been issued."""
        return self.issued == self.total

    @abstractmethod
    def next_at(self) -> float:
        """When the next one is due, as far as known; infinite if none is."""

    @abstractmethod
    def take(self) -> Request:
        """The next one; its arrival is when it was due."""

    @abstractmethod
    def answered(self, now: float) -> None:
        """A request was done, or refused, at ``now``."""

    def _issue(
        self,
        arrival: float,
        prompt: int,
        output: int,
        kind: TrafficClass,
        prefix: Prefix,
        session: int = -1,
    ) -> Request:
        request = Request(self.issued, arrival, prompt, output, kind, prefix, session)
        self.issued += 1
        return request


class OpenSource(ArrivalSource):
    """Requests at the times of the traffic."""

    def __init__(self, traffic: OpenTraffic) -> None:
        super().__init__(traffic.total)
        self._rows = chain.from_iterable(chunk.rows() for chunk in traffic.chunks())
        self._next = next(self._rows, None)

    def next_at(self) -> float:
        """The arrival of the next one."""
        return math.inf if self._next is None else self._next[0]

    def take(self) -> Request:
        """The next one."""
        assert self._next is not None
        row, self._next = self._next, next(self._rows, None)
        return self._issue(*row)

    def answered(self, now: float) -> None:
        """Does nothing: open traffic waits for no answer."""


class ClosedSource(ArrivalSource):
    """Clients that send their next request ``think_time`` after their last answer."""

    def __init__(self, traffic: ClosedTraffic) -> None:
        super().__init__(traffic.total)
        self._think_time = traffic.think_time
        self._sends = [0.0] * min(traffic.concurrency, traffic.total)
        self._rows = chain.from_iterable(chunk.rows() for chunk in traffic.lengths())

    def next_at(self) -> float:
        """When the first of the thinking clients will send."""
        return self._sends[0] if self._sends and not self.exhausted else math.inf

    def take(self) -> Request:
        """The request of the client that is due first."""
        return self._issue(heappop(self._sends), *next(self._rows))

    def answered(self, now: float) -> None:
        """Let the client of the request think, then send."""
        heappush(self._sends, now + self._think_time)


def source(traffic: AnyTraffic) -> ArrivalSource:
    """The source that issues the requests of ``traffic``; UsageError for sessions."""
    if isinstance(traffic, SessionTraffic):
        raise UsageError(
            "workload.sessions: an engine that is observed is not sent sessions yet; for the same "
            "lengths without them: --set workload.sessions=null"
        )
    return ClosedSource(traffic) if isinstance(traffic, ClosedTraffic) else OpenSource(traffic)


def take_in(source: ArrivalSource, scheduler: Scheduler, recorder: Recorder, now: float) -> int:
    """Give ``scheduler`` every request that is due by ``now``; how many of them it took."""
    taken = 0
    while source.next_at() <= now:
        request = source.take()
        reason = scheduler.refusal(request)
        if reason is None:
            scheduler.submit(request)
            taken += 1
        else:
            recorder.reject(request, reason)
            source.answered(now)
        if source.exhausted:
            scheduler.flush()
    return taken
