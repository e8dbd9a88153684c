"""The only lines that touch SimPy's internals: waits that can be moved, and the order of a tie.

At one instant everything happens in this order, whatever was scheduled first: iterations complete,
then requests arrive, then schedulers plan. Within a kind, replicas go by their number. SimPy orders
events by (time, priority, insertion); the priorities here make insertion irrelevant.
"""

from __future__ import annotations

import math
from heapq import heappush

import simpy

ARRIVAL = 1 << 20  # completions are 0 .. ARRIVAL-1, one for each replica
SCHEDULING = ARRIVAL + 1  # + replica number
LAST = SCHEDULING + ARRIVAL  # after everything else of that instant


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


def due_now(env: simpy.Environment) -> bool:
    """Whether another event is due at this very instant."""
    queue = env._queue
    return bool(queue) and queue[0][0] == env._now
