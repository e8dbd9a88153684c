"""Provides the queues in which requests wait, behind ``scheduler.order``.

All are used alike: ``queue[0]`` is the request that leaves next, ``popleft`` takes it, ``append``
adds a newcomer, ``appendleft`` takes back a preempted request, and iterating goes in the order of
leaving. A queue also knows its order backwards: ``victim`` is the request that leaves the batch
when memory runs out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Reversible
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from sim.request import Request


class Queue(Protocol):
    """The requests that a scheduler has not taken yet."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def __getitem__(self, index: int, /) -> Request: ...

    def append(self, request: Request, /) -> None:
        """``request`` arrives."""

    def appendleft(self, request: Request, /) -> None:
        """``request`` was preempted and waits again."""

    def popleft(self) -> Request:
        """Take who leaves next."""

    def remove(self, request: Request, /) -> None:
        """``request``, which is in the queue, waits no longer."""

    def oldest(self) -> Request:
        """The request that arrived first, for policies that never preempt (the queue is not
        empty)."""

    def victim(self, running: Reversible[Request], /) -> Request:
        """Whom to preempt of the requests that run, given in order of admission (not empty)."""


class Fifo(deque[Request]):
    """First in, first out, preempted ones before all others: a plain deque, because the event loop
    looks into it at every iteration."""

    __slots__ = ()

    def oldest(self) -> Request:
        """The head."""
        return self[0]

    def victim(self, running: Reversible[Request], /) -> Request:
        """The request that was admitted last."""
        return next(iter(reversed(running)))


class Resorted(Fifo):
    """First in, first out, unless the scheduler sorts it anew before it looks into it."""

    __slots__ = ()

    def sort(self, key: Callable[[Request], float]) -> None:
        """The smallest ``key`` leaves first, of equals who was before."""
        found = sorted(self, key=key)
        self.clear()
        self.extend(found)

    def oldest(self) -> Request:
        """The request that arrived first, by a walk over the queue."""
        return min(self, key=lambda request: request.arrival)


class Sorted:
    """The smallest ``key`` leaves first, the earlier of equals; preempted ones before all others,
    the last of them first. ``key`` is asked once, when a request arrives."""

    __slots__ = ("_arrived", "_front", "_heap", "_key")

    def __init__(self, key: Callable[[Request], float]) -> None:
        self._key = key
        self._front: list[Request] = []  # preempted; the last leaves first
        self._heap: list[tuple[float, int, Request]] = []
        self._arrived = count()

    def __len__(self) -> int:
        return len(self._front) + len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        yield from reversed(self._front)
        for _, _, request in sorted(self._heap):
            yield request

    def __getitem__(self, index: int, /) -> Request:
        if index:
            raise IndexError("only the head of a sorted queue can be looked at; iterate over it")
        return self._front[-1] if self._front else self._heap[0][2]

    def append(self, request: Request, /) -> None:
        """``request`` arrives and takes its place."""
        heappush(self._heap, (self._key(request), next(self._arrived), request))

    def appendleft(self, request: Request, /) -> None:
        """``request`` goes before all others."""
        self._front.append(request)

    def popleft(self) -> Request:
        """Take who leaves next."""
        return self._front.pop() if self._front else heappop(self._heap)[2]

    def remove(self, request: Request, /) -> None:
        """``request`` waits no longer: a walk over the queue."""
        self._front = [waiting for waiting in self._front if waiting is not request]
        self._heap = [entry for entry in self._heap if entry[2] is not request]
        heapify(self._heap)

    def oldest(self) -> Request:
        """The request that came first, by a walk over the queue."""
        return min(self._heap, key=lambda entry: entry[1])[2]

    def victim(self, running: Reversible[Request], /) -> Request:
        """The request that was admitted last."""
        return next(iter(reversed(running)))


class Ranked:
    """The smallest ``key`` leaves first, the earlier request of equals; preempted ones take the
    place of their rank again, and the last by rank is preempted first. As vLLM's priority queue."""

    __slots__ = ("_heap", "_key")

    def __init__(self, key: Callable[[Request], float]) -> None:
        self._key = key
        self._heap: list[tuple[float, float, int, Request]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        for _, _, _, request in sorted(self._heap):
            yield request

    def __getitem__(self, index: int, /) -> Request:
        if index:
            raise IndexError("only the head of a ranked queue can be looked at; iterate over it")
        return self._heap[0][3]

    def append(self, request: Request, /) -> None:
        """``request`` arrives and takes its place."""
        heappush(self._heap, (self._key(request), request.queued, request.id, request))

    appendleft = append

    def popleft(self) -> Request:
        """Take who leaves next."""
        return heappop(self._heap)[3]

    def remove(self, request: Request, /) -> None:
        """``request`` waits no longer: a walk over the queue."""
        self._heap = [entry for entry in self._heap if entry[3] is not request]
        heapify(self._heap)

    def oldest(self) -> Request:
        """The request that came first, by a walk over the queue."""
        return min(self._heap, key=lambda entry: entry[1:3])[3]

    def victim(self, running: Reversible[Request], /) -> Request:
        """The request that would leave the queue last, by a walk over the batch."""
        return max(running, key=lambda request: (self._key(request), request.queued, request.id))
