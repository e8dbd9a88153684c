"""Runs one replica: a SimPy process that plans, times, waits and accounts, iteration by iteration.

While nothing can change the batch, the next k decode iterations are one *leap*: one plan, one
event. Within a run of decodes of the same sequences the iteration boundaries are those that
``sim.growth`` gives, anchored where the composition last changed; they are used with leaps and
without, so both give the same times to the last bit. An arrival that may change the next plan cuts
the leap at the next boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import simpy

from sim.iteration import Timer
from sim.loop.batch_timer import BatchTimer
from sim.loop.clock import SCHEDULING, Process, due_now
from sim.loop.engine import SingleEngine
from sim.loop.recorder import InFlight, Recorder
from sim.loop.windowed import behind_windows
from sim.request import Request
from sim.schedulers import Adapted, Chunk, DraftsByBatch, OffloadedPrefill, Scheduler
from sim.schedulers.ahead import Ahead


class Replica(SingleEngine):
    """One engine instance that runs one batch at a time."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        scheduler: Scheduler,
        timer: Timer,
        recorder: Recorder,
        *,
        leap: bool = True,
        on_finish: Callable[[Request], None] | None = None,
    ) -> None:
        super().__init__(env, index, scheduler, recorder, on_finish)
        self.flight = InFlight(index)
        """The plan in flight, or the last one."""
        self._launched = timer.launched
        self._ahead = isinstance(scheduler, Ahead)
        # whether a request that comes during launches is queued otherwise than one that comes later
        self._early = type(scheduler).submit_early is not Scheduler.submit_early
        self._timer = timer
        if self._windows or isinstance(scheduler, DraftsByBatch):
            self._timer = BatchTimer(timer, scheduler.decoding)
        if isinstance(scheduler, Adapted):
            self._timer = BatchTimer(timer, scheduler.decoding, adapters=lambda: scheduler.adapters)
        self._leap = leap
        self._repeats = scheduler.repeats
        if isinstance(scheduler, OffloadedPrefill):
            self._repeats = self._repeats_until_due
            scheduler.host.link.note = partial(recorder.moved, index)
        self._start()

    def _start(self) -> None:
        """Begin to plan."""
        self._alarm.start(self._process())

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now; wake up, or cut the leap in flight if it matters."""
        self.count(1)
        scheduler = self.scheduler
        submit = scheduler.submit_early if self._early and self._launches else scheduler.submit
        self.wake(self, submit(request))

    @property
    def _launches(self) -> bool:
        """Whether the host is still launching the prompts of the plan in flight."""
        if not self._iterations or self._run is not None:
            return False
        return self._env._now < self.flight.start + self._launched(self.flight.gap)

    def _process(self) -> Process:
        env, alarm, scheduler, flight = self._env, self._alarm, self.scheduler, self.flight
        schedule, repeats, account = scheduler.schedule, self._repeats, self.account
        line, iteration = self._timer.line, self._timer.iteration
        start_run = scheduler.decoding.run
        leap, preempted = self._leap, scheduler.preempted
        completion, scheduling = self.index, SCHEDULING + self.index
        before: Sequence[Chunk] = ()  # of the plan before
        while True:
            now = env._now
            plan = schedule(now)
            if preempted:
                self._note_preempted(now)
            if plan is None:
                self._idle = True
                yield alarm.at(scheduler.wakeup(now), scheduling)
                self._idle = False
                continue
            flight.plan = plan
            if scheduler.starts > now:  # the link to the host moves first what it needs
                self._run, self._iterations = None, 1
                now = scheduler.starts
                yield alarm.at(now, completion)
            flight.start = now
            flight.waiting = len(scheduler.waiting)
            sequences, context, chunks = plan.sequences, plan.context, plan.chunks
            if chunks:
                self._run = None
                self._iterations = 1
                timed = iteration(sequences, context, chunks, plan.admitted)
                gap, flight.attention, flight.pairs = timed
                flight.gap, flight.slope = gap, 0.0
                end = now + gap
                if self._ahead and not plan.decode and (late := self._launched(gap)):
                    self._hand_out_late(before, now, now + late)
            else:
                run = self._run
                if run is None or not run.continues(now, sequences, context):
                    found = line(sequences, context)
                    self._run = run = start_run(now, sequences, context, found)
                self._iterations = times = repeats(run.left()) if leap and plan.stationary else 1
                end = run.boundary(run.done + times)
            before = chunks
            yield alarm.at(end, completion)
            run, times, end = self._run, self._iterations, env._now  # a cut may have changed them
            account(end)
            if run is not None:
                run.advance(times, end)
            if due_now(env):  # others go first
                yield alarm.at(env._now, scheduling)

    def _hand_out_late(self, chunks: Sequence[Chunk], came: float, time: float) -> None:
        """First tokens of prompts that ended with ``chunks``, when they ``came``, are handed out at
        ``time``: when the prompts behind them have been launched."""
        for chunk in chunks:
            request = chunk.request
            if request.first_token == came and request.joined >= 0:
                request.first_token = time
                self.scheduler.decoding.put_off(request, time)

    def _began(self) -> float:
        return self.flight.start

    def _repeats_until_due(self, limit: int) -> int:
        """How often the plan just made can run before the scheduler wants to plan anew."""
        scheduler, run = self.scheduler, self._run
        times = scheduler.repeats(limit)
        if times == 1 or scheduler.due == math.inf:
            return times
        assert run is not None
        return run.first_boundary_from(scheduler.due, run.done + 1, run.done + times) - run.done

    def account(self, end: float) -> None:
        """Record the plan in flight, which ran until ``end``, and collect what finished."""
        flight, run, scheduler = self.flight, self._run, self.scheduler
        plan, iterations, started = flight.plan, self._iterations, flight.start
        kv, decoding, recorder = scheduler.kv, scheduler.decoding, self._recorder
        flight.end, flight.iterations = end, iterations
        if run is not None:
            flight.gap, flight.slope = run.first + run.step * run.done, run.step
            flight.attention = flight.pairs = 0.0
        stalled = 0
        if plan.decode and decoding.last_end != started:
            for since, members in decoding.stalled(started):
                recorder.long_gap(flight.gap + (started - since), members)
                stalled += members
        flight.stalled = stalled
        flight.tokens = recorder.chunks(plan.chunks, end) if plan.chunks else 0
        flight.reserved = flight.reserved_end = kv.reserved
        if self._windows:
            flight.held, flight.seen = behind_windows(kv, plan, decoding)
        else:
            flight.held = plan.held + kv.state_tokens - kv.shared_tokens
        if self._caches:
            flight.cached = (kv.several_tokens, kv.idle_tokens)
        finished = scheduler.complete(plan, iterations, end)
        if iterations > 1:
            flight.reserved_end = scheduler.reserved_end
        flight.finished = len(finished)
        recorder.plan(flight, scheduler)
        self._iterations = 0
        if finished:
            self._deliver(finished, self.index, end)
