"""The only lines that touch SimPy's internals: waits that can be moved, and the order of a tie.

At one instant everything happens in this order, whatever was scheduled first: iterations complete,
then requests arrive, then schedulers plan. Within a kind, replicas go by their number. SimPy orders
events by (time, priority, insertion); the priorities here make insertion irrelevant.
"""

from __future__ import annotations

import math
import signal
import threading
from heapq import heappush
from typing import Any

import simpy

ARRIVAL = 1 << 20  # completions are 0 .. ARRIVAL-1, one for each replica
SCHEDULING = ARRIVAL + 1  # + replica number


class Alarm:
    """The wait of one process, at an absolute time, that may be moved to an earlier one.

    SimPy has no such thing: ``interrupt`` and ``AnyOf`` cost several times as much and settle ties
    by insertion. Here the process's callback is handed to a new event; the old one pops unheard.
    """

    __slots__ = ("_env", "_event")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._event: simpy.Event | None = None

    def at(self, time: float, priority: int) -> simpy.Event:
        """An event to ``yield``; it fires at ``time`` (s), never if that is infinite."""
        env = self._env
        event = simpy.Event(env)
        event._ok = True
        event._value = None
        if time != math.inf:
            entry = (time, priority, next(env._eid), event)
            heappush(env._queue, entry)  # type: ignore[misc] # SimPy narrows the priority to two
        self._event = event
        return event

    def move(self, time: float, priority: int) -> None:
        """Wake the waiting process at ``time`` instead."""
        old = self._event
        assert old is not None
        assert old.callbacks is not None
        callbacks = old.callbacks
        old.callbacks = []
        self.at(time, priority).callbacks = callbacks


class Stop:
    """A wish to end the run, heeded between two events; ``with Stop() as stop`` makes Ctrl-C one.

    An interrupt in the middle of an event could leave a request in nobody's books. A second Ctrl-C
    interrupts at once. Outside the main thread, which alone receives Ctrl-C, nothing is changed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _interrupt(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def run(env: simpy.Environment, horizon: float, stop: Stop) -> None:
    """Let events happen until none is left, the next one lies behind ``horizon``, or ``stop``."""
    queue, step = env._queue, env.step
    while queue and queue[0][0] <= horizon and not stop.requested:
        step()


def due_now(env: simpy.Environment) -> bool:
    """Whether another event is due at this very instant."""
    queue = env._queue
    return bool(queue) and queue[0][0] == env._now
