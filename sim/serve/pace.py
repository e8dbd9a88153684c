"""Lets simulated time pass as the wall clock does, or that many times as fast.

The clock starts with the first request. Between two things that are due nothing runs; an arrival
comes in between. How late tokens leave the server is measured for every one of them.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from sim.loop.live import LiveFleet

AT_ONCE = 200
"""Instants that happen before others have their turn, when the machine is behind."""

RESOLUTION = 1e-4
"""Seconds: how finely the lateness of tokens is counted."""

CLASSES = 20_000
"""Steps of the histogram; anything later counts in the last one."""

BEHIND = 0.010
"""Seconds: a machine whose tokens are later than that at the 99th percentile cannot keep up."""


class RealTime:
    """Drives ``fleet`` in the running event loop, ``speed`` simulated seconds a second."""

    def __init__(self, fleet: LiveFleet, speed: float) -> None:
        self.speed = speed
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        """Now, by the loop's clock."""
        self._base = inf  # when the first request came, by the loop's clock
        self._handle: asyncio.Handle | None = None

    @property
    def started(self) -> bool:
        """Whether a request has come."""
        return self._base < inf

    def simulated(self, moment: float) -> float:
        """The simulated time (s) at a ``moment`` of the loop's clock, at which the simulation
        starts if it had not."""
        if self._base == inf:
            self._base = moment
        return (moment - self._base) * self.speed

    def moment(self, simulated: float) -> float:
        """When, by the loop's clock, it is that late in the simulation."""
        return self._base + simulated / self.speed

    def wake(self) -> None:
        """Something was sent: see what is due, and when to look next."""
        if self._handle is not None:
            self._handle.cancel()
        due = self._fleet.due
        self._handle = None if due == inf else self._loop.call_at(self.moment(due), self._turn)

    def _turn(self) -> None:
        self._handle = None
        if self._fleet.advance(self.simulated(self._loop.time()), AT_ONCE):
            self.wake()
        else:
            self._handle = self._loop.call_soon(self._turn)

    def catch_up(self, moment: float) -> None:
        """Let happen what was due at that ``moment``, unless that takes long."""
        if self.started:
            self._fleet.advance(self.simulated(moment), AT_ONCE)

    def stop(self) -> float:
        """Time stands still from now on; the simulated time (s)."""
        if self._handle is not None:
            self._handle.cancel()
        now = self.simulated(self._loop.time())
        while not self._fleet.advance(now, AT_ONCE):
            pass
        return now


class Lateness:
    """How long after they were due tokens left the server: real seconds, in steps of 0.1 ms.

    ``held`` tokens waited for clients to read those before, and are not among ``tokens``.
    """

    def __init__(self) -> None:
        self._counts = [0] * (CLASSES + 1)
        self.tokens = self.held = 0
        self.worst = 0.0

    def add(self, seconds: float, *, held: bool = False) -> None:
        """A token was that late, unless it was ``held``."""
        if held:
            self.held += 1
            return
        self.tokens += 1
        if seconds > self.worst:
            self.worst = seconds
        step = int(seconds / RESOLUTION)
        self._counts[step if 0 <= step < CLASSES else 0 if step < 0 else CLASSES] += 1

    def percentile(self, share: float) -> float:
        """The lateness (s) that this share of the tokens did not exceed, rounded up to a step, and
        no more than the worst."""
        wanted, seen = share * self.tokens, 0
        for step, count in enumerate(self._counts):
            seen += count
            if seen >= wanted and seen:
                return min((step + 1) * RESOLUTION, self.worst) if step < CLASSES else self.worst
        return 0.0

    def document(self) -> dict[str, Any]:
        """The figures, in milliseconds."""
        if not self.tokens:
            return {"tokens": 0, "held": self.held} | dict.fromkeys(["p50_ms", "p99_ms", "max_ms"])
        return {
            "tokens": self.tokens,
            "held": self.held,
            "p50_ms": round(self.percentile(0.5) * 1e3, 1),
            "p99_ms": round(self.percentile(0.99) * 1e3, 1),
            "max_ms": round(self.worst * 1e3, 1),
        }
