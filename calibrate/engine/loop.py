"""Runs the engine's loop against the wall clock: arrivals, schedule, forward, complete.

An iteration begins when the one before it ended, unless the engine was idle, and ends when its
tokens are in the host's memory; what ``complete`` takes after that belongs to the next one, as a
client sees it. Seconds since the start of the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from calibrate.engine.arrivals import ArrivalSource, take_in
from calibrate.engine.executor import EngineExecutor
from calibrate.engine.log import Log, Phases
from calibrate.engine.verified import VerifiedBatch
from sim.errors import InfersimError
from sim.loop.clock import Stop
from sim.scenario import Scenario
from sim.schedulers import Plan, Scheduler

NAP = 0.1
"""Longest sleep of an idle engine, s: the longest that Ctrl-C may take to act."""

Progress = Callable[[int, int], None]
"""Called now and then with (requests done, requests in all)."""


class Clock(Protocol):
    """A clock to run against."""

    def now(self) -> float:
        """Seconds since the start."""

    def wait(self, until: float) -> None:
        """Let time pass until ``until``, or less."""


class WallClock:
    """Real time, from the moment this is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def wait(self, until: float) -> None:
        """Sleep until ``until``, but no longer than ``NAP``."""
        time.sleep(max(0.0, min(NAP, until - self.now())))


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The ends of a run before its last token (a signal, a ``horizon`` in seconds), and its
    ``progress``: requests done, requests in all."""

    stop: Stop
    horizon: float = math.inf
    progress: Progress | None = None

    @classmethod
    def of(cls, scenario: Scenario, stop: Stop, progress: Progress | None) -> Self:
        """The limits of a run of ``scenario``."""
        horizon = scenario.run.horizon
        return cls(stop, math.inf if horizon is None else horizon, progress)

    def reached(self, now: float) -> bool:
        """Whether the run ends at ``now``."""
        return self.stop.requested or now >= self.horizon


class Loop:
    """One engine serving one source of requests, recorded as the simulator records itself."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: EngineExecutor,
        source: ArrivalSource,
        clock: Clock,
        limits: RunLimits | None = None,
    ) -> None:
        drafts = isinstance(scheduler.decoding, VerifiedBatch)
        self.log = Log(len(scheduler.decoding.windows), drafts=drafts)
        self.interrupted = False
        self._scheduler = scheduler
        self._executor = executor
        self._source = source
        self._clock = clock
        self._limits = limits or RunLimits(Stop())
        self._outstanding = 0
        self._flushed: tuple[int, int] | None = None

    def run(self) -> float:
        """Serve until nothing is left, the horizon has passed, or a stop is requested; returns
        the time of the end."""
        clock, scheduler = self._clock, self._scheduler
        now = clock.now()
        while not self._limits.reached(now):
            self._outstanding += take_in(self._source, scheduler, self.log.recorder, now)
            plan = scheduler.schedule(now)
            if plan is not None:
                now = self._iterate(plan, now)
            elif self._wait(now):
                now = clock.now()
            else:
                break
        self.interrupted = self._limits.stop.requested
        self.log.close(scheduler)
        return now

    def _wait(self, now: float) -> bool:
        """Wait for an event after which something can run; False if nothing is left to do."""
        until = min(self._source.next_at(), self._scheduler.wakeup(now))
        if until < math.inf:
            self._clock.wait(min(until, self._limits.horizon))
            return True
        if not self._outstanding:
            return False
        state = (self._outstanding, self._source.issued)
        if state == self._flushed:
            raise InfersimError(
                f"the scheduler is stuck: {self._outstanding} requests wait, nothing runs"
            )
        self._flushed = state
        self._scheduler.flush()
        return True

    def _iterate(self, plan: Plan, start: float) -> float:
        """Run ``plan``, record it, and return the time at which its tokens were there."""
        clock, scheduler, log = self._clock, self._scheduler, self.log
        waiting, scheduled = len(scheduler.waiting), clock.now()
        done = self._executor.run(plan)
        end = clock.now()
        preempted = self._executor.sequences.preempted
        row = log.begin(plan, scheduler, start, end, done)
        finished = scheduler.complete(plan, 1, end)
        self._executor.sequences.settle(finished)
        log.end(plan, row, waiting, len(finished))
        for request in finished:
            self._outstanding -= 1
            log.recorder.close(request, 0, request.generated, end)
            self._source.answered(end)
        if finished and self._limits.progress is not None:
            self._limits.progress(self._source.issued - self._outstanding, self._source.total)
        phases = Phases(scheduled - start, done.prepare, done.forward, clock.now() - end)
        log.iteration(done, row, phases, preempted)
        return end
