"""Extends SimPy's clock: waits that can be moved, and a fixed order of simultaneous events.

Only these lines touch SimPy's internals. At one instant everything happens in this order, whatever
was scheduled first: iterations complete, replicas fail and come back, clients give up, requests
arrive, some of them again, then those that go from one replica to another do, then schedulers plan.
Within a kind, replicas go by their number. SimPy orders events by (time, priority, insertion); the
priorities here make insertion irrelevant.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Generator
from heapq import heappop, heappush
from typing import Any

import simpy

FAILURE = 1 << 20  # completions are 0 .. FAILURE-1, one for each replica
TIMEOUT = FAILURE + 1
ARRIVAL = FAILURE + 2
RETRY = FAILURE + 3
HANDOVER = FAILURE + 4
SCHEDULING = FAILURE + 5  # + replica number
STARTING = -1  # processes begin before anything else happens

INFINITY = math.inf

Process = Generator[simpy.Event, None, None]
"""A process in the loop: a generator that waits for its ``Alarm`` alone."""


class _Ring(simpy.Event):
    """An event that succeeds at its time."""

    _ok = True
    _value = None


class Alarm:
    """The wait of one process, at an absolute time, that may be moved to an earlier one.

    SimPy has no such thing: ``interrupt`` and ``AnyOf`` cost several times as much and settle ties
    by insertion. Here the process is handed to a new event; the old one pops unnoticed. A process
    is a generator that waits for its alarm and nothing else, by ``yield alarm.at(...)``, and never
    ends; so it needs no ``simpy.Process`` around it, and the same event serves for many waits.
    """

    __slots__ = ("_env", "_event", "_numbers", "_queue", "_resume")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._queue: list[Any] = env._queue  # SimPy narrows the priority in it to two
        self._numbers = env._eid
        self._event = _Ring(env)
        self._resume: list[Any] = []

    def start(self, process: Process) -> None:
        """Let ``process`` run up to its first wait, before anything else that is due now."""
        self._resume = [lambda _: next(process)]
        self.at(self._env._now, STARTING)
        self._resume = [process.send]

    def at(self, time: float, priority: int) -> simpy.Event:
        """An event to ``yield``; it fires at ``time`` (s), never if that is infinite."""
        event = self._event
        event.callbacks = self._resume
        if time < INFINITY:
            heappush(self._queue, (time, priority, next(self._numbers), event))
        return event

    def move(self, time: float, priority: int) -> None:
        """Wake the waiting process at ``time`` instead."""
        old = self._event
        assert old.callbacks, "the process does not wait"
        old.callbacks = []
        self._event = _Ring(self._env)
        self.at(time, priority)

    def cancel(self) -> None:
        """The waiting process never wakes."""
        self._event.callbacks = []


class Stop:
    """A wish to end the run, heeded between two events; ``with Stop() as stop`` makes Ctrl-C one.

    An interrupt in the middle of an event could leave a request unaccounted for. A second signal
    interrupts at once, unless ``renew`` came between. ``signals`` are those that are heeded,
    SIGINT (Ctrl-C) if none is given. Outside the main thread, which alone receives signals,
    nothing is changed.
    """

    def __init__(self, *signals: int) -> None:
        self.requested = False
        self.signal: int | None = None  # the first that came
        self._pressed = False
        self._signals = signals or (signal.SIGINT,)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._previous[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            # None: a handler that Python did not install
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def renew(self) -> None:
        """A new stage begins, in which it takes two signals again to interrupt at once."""
        self._pressed = False

    def _interrupt(self, number: int, _: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = self.requested = True
        self.signal = self.signal or number


def run(env: simpy.Environment, horizon: float, stop: Stop) -> None:
    """Let events happen until none is left, the next one lies behind ``horizon``, or ``stop``.

    As ``env.step`` does it, without a call for each event; failed ones are left to that.
    """
    queue = env._queue
    while queue and not stop.requested:
        entry = heappop(queue)
        time, _, _, event = entry
        if time > horizon:
            heappush(queue, entry)
            return
        if not event._ok:
            heappush(queue, entry)
            env.step()
            continue
        env._now = time
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)


def due_now(env: simpy.Environment) -> bool:
    """Whether another event is due at this very instant."""
    queue = env._queue
    return queue[0][0] == env._now if queue else False
