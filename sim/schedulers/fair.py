"""Provides the queue of ``order: fair``: the class of traffic that was served least goes first.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024):
each class has a counter of the tokens that it was served, over its weight; prompts count when they
are admitted, answers as they are delivered, an output token twice as much as one of a prompt. A
class of which nothing waited is lifted to the others when it comes back, so that idle time is not
saved up. Preempted requests go before all others.

Answers are counted whenever a request is admitted, and when they end; the class that is chosen then
stays first until the next such moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Reversible

from sim.request import Request, TrafficClass

PROMPT_TOKEN, OUTPUT_TOKEN = 1.0, 2.0
"""The weights of a token, as in the paper."""


class FairQueue:
    """``progress`` says how many tokens a request that decodes has got that are not written into it
    yet."""

    __slots__ = ("_active", "_first", "_front", "_last", "_queues", "_served", "progress")

    def __init__(self) -> None:
        self.progress: Callable[[Request], int] = lambda request: 0
        self._queues: dict[TrafficClass, deque[Request]] = {}
        self._front: list[Request] = []  # preempted; the last leaves first
        self._served: dict[TrafficClass, float] = {}
        self._active: dict[Request, int] = {}  # that were admitted; output tokens counted so far
        self._first: TrafficClass | None = None
        self._last: TrafficClass | None = None  # whose request was admitted last

    def __len__(self) -> int:
        return len(self._front) + sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Request]:
        yield from reversed(self._front)
        waiting = [request for queue in self._queues.values() for request in queue]
        yield from sorted(waiting, key=lambda request: (request.queued, request.id))

    def __getitem__(self, index: int, /) -> Request:
        if index:
            raise IndexError("only the head of a fair queue can be looked at; iterate over it")
        return self._front[-1] if self._front else self._queues[self._choice()][0]

    def append(self, request: Request, /) -> None:
        """``request`` arrives, behind those of its class."""
        queue = self._queues.setdefault(request.traffic_class, deque())
        if not queue:
            self._lift(request.traffic_class)
        queue.append(request)
        if self._first is None:
            self._first = request.traffic_class

    def appendleft(self, request: Request, /) -> None:
        """``request`` was preempted, and goes before all others."""
        self._settle(request)
        self._active.pop(request, None)
        self._front.append(request)

    def popleft(self) -> Request:
        """Take who leaves next."""
        if self._front:
            request = self._front.pop()
        else:
            own = self._choice()
            request = self._queues[own].popleft()
            self._served[own] = (
                self._counted(own) + PROMPT_TOKEN * request.prompt_tokens / own.weight
            )
            self._last = own
            for running in self._active:
                self._settle(running)
            self._choose()
        self._active[request] = request.generated
        return request

    def remove(self, request: Request, /) -> None:
        """``request`` waits no longer: a walk over the queue."""
        if request in self._front:
            self._front.remove(request)
            return
        self._queues[request.traffic_class].remove(request)
        if not self._queues[request.traffic_class]:
            self._choose()

    def oldest(self) -> Request:
        """The request that arrived first, by a walk over the queue."""
        return min(self, key=lambda request: request.arrival)

    def victim(self, running: Reversible[Request], /) -> Request:
        """The request that was admitted last."""
        return next(iter(reversed(running)))

    def _choice(self) -> TrafficClass:
        """The class whose request is next, chosen again if one has left the batch."""
        done = [r for r in self._active if r.last_token == r.last_token]  # not NaN
        if done:
            for request in done:
                self._settle(request)
                del self._active[request]
            self._choose()
        assert self._first is not None
        return self._first

    def _choose(self) -> None:
        waiting = [own for own, queue in self._queues.items() if queue]
        if not waiting:
            self._first = None
            return
        self._first = min(waiting, key=lambda own: (self._counted(own), own.index))

    def _lift(self, back: TrafficClass) -> None:
        """The class ``back``, of which nothing waited, is served no later than the others that do,
        or than the one that was served last, but has saved nothing up."""
        present = [self._counted(own) for own, queue in self._queues.items() if queue]
        if not present and self._last is not None:
            present = [self._counted(self._last)]
        self._served[back] = max(self._counted(back), min(present, default=0.0))

    def _counted(self, own: TrafficClass) -> float:
        return self._served.get(own, 0.0)

    def _settle(self, request: Request) -> None:
        """Count the tokens that ``request`` has got since it was last looked at."""
        over = request.last_token == request.last_token  # not NaN: nothing more is delivered
        got = request.output_tokens if over else request.generated + self.progress(request)
        own, new = request.traffic_class, got - self._active.get(request, got)
        if new:
            self._served[own] = self._counted(own) + OUTPUT_TOKEN * new / own.weight
            self._active[request] = got
