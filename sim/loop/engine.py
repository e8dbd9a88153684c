"""Defines what a router sends requests to: a replica, data ranks in lock-step, or a pipeline.

An ``Engine`` plans, waits and accounts by a SimPy process of its own; while nothing can change its
batches, the next k iterations are one *leap*, which a request that matters cuts at the next
boundary. A ``SingleEngine`` has one scheduler and one KV cache, and records what it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import simpy

from sim.growth.leaps import IDLE, SHARED
from sim.growth.steady import SteadyRun
from sim.loop.clock import SCHEDULING, Alarm
from sim.loop.recorder import Columns, Recorder
from sim.memory.caching import CachingAllocator
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.radix import RadixAllocator
from sim.request import Request
from sim.routers.loads import Counted
from sim.schedulers import Scheduler

CACHES = CachingAllocator, HybridCachingAllocator, RadixAllocator
"""The memories that say what was looked up in vain."""

CACHED = Columns([(SHARED, "i8"), (IDLE, "i8")], lambda flight, _: flight.cached)
"""Tokens of blocks that several requests hold, and of cached blocks that no request holds."""

Unfinished = list[tuple[int, Request, int]]
"""Requests with the number of the replica that has each, and that of the tokens it received."""


class Engine(Counted, ABC):
    """One engine of a fleet; ``outstanding`` counts its requests, waiting and running."""

    weight: float = 1.0
    """Its share of the traffic, relative to other replicas."""

    scheduler: Scheduler
    """Its scheduler; one of several, which have the same limits."""

    ranks: Sequence[SingleEngine]
    """Engines with a scheduler and a KV cache of their own: data ranks, or the engine itself."""

    def __init__(self, env: simpy.Environment, index: int) -> None:
        self.index = index
        self._env = env
        self._alarm = Alarm(env)
        self._idle = False
        self._iterations = 0  # of the plan in flight; 0 if there is none
        self._run: SteadyRun | None = None  # the run it belongs to, if it is decode only

    @property
    @abstractmethod
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""

    @property
    @abstractmethod
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of queued requests; counted when asked for."""

    @property
    @abstractmethod
    def kv_used(self) -> float:
        """Share of the KV cache that is taken now, with leaps as without."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Take in a request that arrives now; wake up, or cut the leap in flight if it matters."""

    @abstractmethod
    def account(self, end: float) -> None:
        """Record the iterations in flight, which ran until ``end``, and collect what finished."""

    def wake(self, rank: SingleEngine, matters: bool) -> None:
        """Plan, if idle, since the scheduler of ``rank`` has something new; cut the leap in flight
        if that ``matters`` to its next plan."""
        if self._idle:
            self._idle = False
            self._alarm.move(self._env._now, SCHEDULING + self.index)
        elif self._iterations > 1 and (matters or not rank._iterations):
            self.cut()

    def cut(self) -> None:
        """End the leap in flight, if there is one, at the first boundary from now on."""
        run = self._run
        if self._iterations < 2 or run is None:
            return
        planned = run.done + self._iterations
        reached = run.first_boundary_from(self._env._now, run.done + 1, planned)
        if reached < planned:
            self._shorten(reached - run.done)
            self._alarm.move(run.boundary(reached), self.index)

    def _shorten(self, iterations: int) -> None:
        """Let fewer iterations run than are in flight."""
        self._iterations = iterations

    def _end(self, end: float) -> None:
        """Account for the iterations in flight, and go on with the run they belong to."""
        run, iterations = self._run, self._iterations
        self.account(end)
        if run is not None:
            run.advance(iterations, end)

    def flush(self) -> None:
        """Launch incomplete batches, since nothing more arrives before something finishes."""
        for rank in self.ranks:
            rank.scheduler.flush()
            if self._idle or rank.queued:
                self.wake(rank, False)

    def stop(self, now: float) -> Unfinished:
        """End the run: account for the boundaries of the leap in flight up to ``now``, and return
        the unfinished requests."""
        run = self._run
        if self._iterations and run is not None:
            reached = run.first_boundary_from(now, run.done, run.done + self._iterations)
            if run.boundary(reached) > now:
                reached -= 1
            if reached > run.done:
                self._shorten(reached - run.done)
                self._end(run.boundary(reached))
        return [each for rank in self.ranks for each in rank.unfinished()]

    def fail(self, now: float) -> tuple[Unfinished, float]:
        """Drop all it holds: returns what ``stop`` does, and for how long (s) the iteration that it
        did not finish had run."""
        busy = self._iterations > 0
        unfinished, run = self.stop(now), self._run
        since = self._began() if run is None else run.boundary(run.done)
        self._alarm.cancel()
        if self.loads is not None:  # another engine takes its place
            self.loads.end()
        return unfinished, now - since if busy else 0.0

    def _began(self) -> float:
        """When the plan in flight, or the last one, began (s)."""
        return 0.0

    def check_integrity(self) -> None:
        """Raise AssertionError if a batch and its memory disagree.

        Only between iterations: a plan in flight has its memory already and its tokens not yet.
        """
        for rank in self.ranks:
            if not rank._iterations:
                rank.scheduler.check_integrity()


class SingleEngine(Engine):
    """An engine with one scheduler and one KV cache, whose plans ``recorder`` takes down."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        scheduler: Scheduler,
        recorder: Recorder,
        on_finish: Callable[[Request], None] | None,
    ) -> None:
        super().__init__(env, index)
        self.ranks = (self,)
        self.scheduler = scheduler
        self._recorder = recorder
        self._on_finish = on_finish
        self._windows = scheduler.decoding.windows
        kv: Any = scheduler.kv
        self._caches = isinstance(kv, CACHES)
        if self._caches:
            kv.note = recorder.looked_up

    @property
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""
        return len(self.scheduler.waiting) + len(self.scheduler.coming)

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of queued requests; counted when asked for."""
        waiting = (*self.scheduler.waiting, *self.scheduler.coming)
        return sum(request.prompt_tokens for request in waiting)

    @property
    def kv_used(self) -> float:
        """Share of the KV cache that is taken now, with leaps as without."""
        kv, run = self.scheduler.kv, self._run
        reserved = kv.reserved
        if self._iterations > 1 and run is not None:
            # an iteration has its memory when it begins: those of the leap that have, but the first
            second = run.done + 1
            last = run.done + self._iterations
            reserved += kv.growth(run.first_boundary_from(self._env._now, second, last) - second)
        return reserved / kv.capacity

    @property
    def kv_least(self) -> float:
        """The share that was taken when the leap in flight began, since a leap only takes more."""
        kv = self.scheduler.kv
        return self.kv_used if kv.shrinks else kv.reserved / kv.capacity

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now; wake up, or cut the leap in flight if it matters."""
        self.count(1)
        self.wake(self, self.scheduler.submit(request))

    def unfinished(self) -> Unfinished:
        """Requests that were sent there and have tokens to come."""
        scheduler = self.scheduler
        unfinished = [*scheduler.waiting, *scheduler.coming, *scheduler.members()]
        return [(self.index, r, r.generated + scheduler.steps(r)) for r in unfinished]

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        """Close the ``finished`` requests, which have their last tokens: a batch of the replica,
        data rank or place in flight with that ``number``."""
        self.count(-len(finished))
        for request in finished:
            self._recorder.close(request, number, request.generated, end)
            if self._on_finish is not None:
                self._on_finish(request)

    def _note_preempted(self, now: float) -> None:
        """Note the requests that the plan just made has preempted."""
        preempted = self.scheduler.preempted
        for request in preempted:
            self._recorder.preempted(request, now)
        preempted.clear()
