"""Runs one replica: a SimPy process that plans, times, waits and accounts, iteration by iteration.

While nothing can change the batch, the next k decode iterations are one *leap*: one plan, one
event. Within a run of decodes of the same sequences the iteration boundaries are those that
``sim.growth`` gives, anchored where the composition last changed; they are used with leaps and
without, so both give the same times to the last bit. An arrival that may change the next plan cuts
the leap at the next boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import simpy

from sim.growth.sampled import Sampled
from sim.growth.steady import SteadyRun
from sim.iteration import Timer
from sim.loop.clock import SCHEDULING, Alarm, Process, due_now
from sim.loop.drafts import DraftsTimer
from sim.loop.recorder import (
    PLAN,
    Recorder,
    pack_cached,
    pack_chunk,
    pack_drafts,
    pack_others,
    pack_plan,
)
from sim.loop.windowed import WindowedTimer, behind_windows
from sim.memory.caching import CachingAllocator
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.radix import RadixAllocator
from sim.request import Request
from sim.schedulers import Chunk, DraftsByBatch, OffloadedPrefill, Plan, Scheduler

CACHES = CachingAllocator, HybridCachingAllocator, RadixAllocator
"""The memories that say what was looked up in vain."""


class Replica:
    """One engine instance. ``outstanding`` counts its requests, waiting and running."""

    weight: float = 1.0
    """Its share of the traffic, relative to other replicas."""

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
        self.index = index
        self.scheduler = scheduler
        self.outstanding = 0
        self._env = env
        self._launched = timer.launched
        self._windows = scheduler.decoding.windows
        if isinstance(scheduler, DraftsByBatch):
            timer = DraftsTimer(timer, scheduler.decoding)
        self._timer = WindowedTimer(timer, scheduler.decoding) if self._windows else timer
        self._recorder = recorder
        self._row_bytes = recorder.plan_row.itemsize
        self._row_is_longer = recorder.plan_row is not PLAN
        self._leap = leap
        self._on_finish = on_finish
        self._idle = False
        self._plan: Plan  # the one in flight, or the last one
        self._iterations = 0  # of the plan in flight; 0 if there is none
        self._run: SteadyRun | None = None  # the run it belongs to, if it is decode only
        self._started = 0.0
        self._waiting = 0  # requests that the plan in flight left in the queue
        self._timed = (0.0, 0.0, 0.0)  # the plan in flight, if it has prefills: ``Timer.iteration``
        self._ranks = recorder.ranks
        self._drafts = batch if isinstance(batch := scheduler.decoding, Sampled) else None
        self._cached = recorder.cached
        # tokens of other data ranks in the plan in flight, and the requests for which they draft
        self._others, self._others_requests = 0, 0
        self._repeats = scheduler.repeats
        if isinstance(scheduler, OffloadedPrefill):
            self._repeats = self._repeats_until_due
            scheduler.host.link.note = partial(recorder.moved, index)
        if isinstance(scheduler.kv, CACHES):
            scheduler.kv.note = recorder.looked_up
        self._alarm = Alarm(env)
        self._start()

    def _start(self) -> None:
        """Begin to plan."""
        self._alarm.start(self._process())

    @property
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""
        return len(self.scheduler.waiting) + len(self.scheduler.coming)

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of those; counted when asked for."""
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

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now; wake up, or cut the leap in flight if it matters."""
        self.outstanding += 1
        scheduler = self.scheduler
        submit = scheduler.submit_early if self._launches else scheduler.submit
        matters = submit(request)
        if self._idle:
            self._wake()
        elif matters and self._iterations > 1:
            self._cut()

    @property
    def _launches(self) -> bool:
        """Whether the host is still launching the prompts of the plan in flight."""
        if not self._iterations or self._run is not None:
            return False
        return self._env._now < self._started + self._launched(self._timed[0])

    def stir(self, member: Replica, matters: bool) -> None:
        """Something has changed for its scheduler (``member`` is itself): wake up, or cut the leap
        in flight if the next plan may differ."""
        if self._idle:
            self._wake()
        elif matters and self._iterations > 1:
            self._cut()

    def flush(self) -> None:
        """Nothing more arrives before something finishes: launch an incomplete batch."""
        self.scheduler.flush()
        if self._idle:
            self._wake()

    def stop(self, now: float) -> list[tuple[int, Request, int]]:
        """The run ends here: account for the boundaries of the leap in flight up to ``now``, and
        return each unfinished request with the number of the replica and that of the tokens it has
        received."""
        run = self._run
        if self._iterations and run is not None:
            reached = run.first_boundary_from(now, run.done, run.done + self._iterations)
            if run.boundary(reached) > now:
                reached -= 1
            if reached > run.done:
                self._iterations = reached - run.done
                self._account(run.boundary(reached))
        return self.unfinished()

    def fail(self, now: float) -> tuple[list[tuple[int, Request, int]], float]:
        """It is gone, with all it held: what ``stop`` returns, and for how long (s) the iteration
        that it did not finish had run."""
        busy = self._iterations > 0
        unfinished, run = self.stop(now), self._run
        since = self._started if run is None else run.boundary(run.done)
        self._alarm.cancel()
        return unfinished, now - since if busy else 0.0

    def unfinished(self) -> list[tuple[int, Request, int]]:
        """What ``stop`` returns."""
        scheduler = self.scheduler
        unfinished = [*scheduler.waiting, *scheduler.coming, *scheduler.members()]
        return [(self.index, r, r.generated + scheduler.steps(r)) for r in unfinished]

    def check_integrity(self) -> None:
        """Raise AssertionError if batch and memory disagree.

        Only between iterations: a plan in flight has its memory already and its tokens not yet.
        """
        if not self._iterations:
            self.scheduler.check_integrity()

    def _wake(self) -> None:
        self._idle = False
        self._alarm.move(self._env._now, SCHEDULING + self.index)

    def _process(self) -> Process:
        env, alarm, scheduler = self._env, self._alarm, self.scheduler
        schedule, repeats, account = scheduler.schedule, self._repeats, self._account
        line, iteration = self._timer.line, self._timer.iteration
        start_run = scheduler.decoding.run
        leap, preempted = self._leap, scheduler.preempted
        completion, scheduling = self.index, SCHEDULING + self.index
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
            self._plan = plan
            if scheduler.starts > now:  # the link to the host moves first what it needs
                self._run, self._iterations = None, 1
                now = scheduler.starts
                yield alarm.at(now, completion)
            self._started = now
            self._waiting = len(scheduler.waiting)
            sequences, context, chunks = plan.sequences, plan.context, plan.chunks
            if chunks:
                self._run = None
                self._iterations = 1
                self._timed = timed = iteration(sequences, context, chunks, plan.admitted)
                end = now + timed[0]
            else:
                run = self._run
                if run is None or not run.continues(now, sequences, context):
                    found = line(sequences, context)
                    self._run = run = start_run(now, sequences, context, found)
                self._iterations = times = repeats(run.left()) if leap and plan.stationary else 1
                end = run.boundary(run.done + times)
            yield alarm.at(end, completion)
            account(env._now)
            if due_now(env):  # others go first
                yield alarm.at(env._now, scheduling)

    def _repeats_until_due(self, limit: int) -> int:
        """How often the plan just made can run before the scheduler wants to plan anew."""
        scheduler, run = self.scheduler, self._run
        times = scheduler.repeats(limit)
        if times == 1 or scheduler.due == math.inf:
            return times
        assert run is not None
        return run.first_boundary_from(scheduler.due, run.done + 1, run.done + times) - run.done

    def _cut(self) -> None:
        """End the leap in flight at the first iteration boundary from now on."""
        run = self._run
        assert run is not None
        planned = run.done + self._iterations
        reached = run.first_boundary_from(self._env._now, run.done + 1, planned)
        if reached < planned:
            self._iterations = reached - run.done
            self._alarm.move(run.boundary(reached), self.index)

    def _account(self, end: float) -> None:
        """The plan in flight has run until ``end``: record it, collect what finished."""
        plan, run, scheduler, rows = self._plan, self._run, self.scheduler, self._recorder.plans
        iterations, started, chunks = self._iterations, self._started, plan.chunks
        tokens = stalled = 0
        if run is None:
            gap, attention, pairs = self._timed
            slope = 0.0
        else:
            gap, slope = run.advance(iterations, end)
            attention = pairs = 0.0
        if plan.decode and scheduler.decoding.last_end != started:
            for since, members in scheduler.decoding.stalled(started):
                self._recorder.long_gap(gap + (started - since), members)
                stalled += members
        if chunks:
            number, pieces = len(rows) // self._row_bytes, self._recorder.chunks
            for chunk in chunks:
                request, size = chunk.request, chunk.tokens
                tokens += size
                pieces += pack_chunk(number, request.id, size, chunk.context)
                if request.generated:
                    self._note_resumed(chunk, end)
        kv = scheduler.kv
        reserved = reserved_end = kv.reserved
        held, seen = plan.held + kv.state_tokens - kv.shared_tokens, b""
        if self._windows:
            held, columns = behind_windows(kv, plan, scheduler.decoding)
            seen = self._recorder.pack_seen(*columns)
        kept = pack_cached(kv.several_tokens, kv.idle_tokens) if self._cached else b""
        finished = scheduler.complete(plan, iterations, end)
        if iterations > 1:
            reserved_end = scheduler.reserved_end
        rows += pack_plan(
            started,
            end,
            gap,
            slope,
            attention,
            pairs,
            plan.context,
            held,
            reserved,
            reserved_end,
            iterations,
            plan.decode,
            plan.sequences,
            stalled,
            len(chunks),
            tokens,
            plan.admitted,
            plan.preempted,
            plan.running,
            self._waiting,
            len(finished),
            self.index,
        )
        if self._row_is_longer:
            rows += seen
            if self._ranks:
                rows += pack_others(self._others)
            if self._drafts is not None:
                rows += self._drafted(plan, self._drafts)
                if self._ranks:
                    rows += pack_others(self._others_requests)
            rows += kept
        self._iterations = 0
        if finished:
            self._deliver(finished, end)

    def _deliver(self, finished: list[Request], end: float) -> None:
        """Those of ``finished`` have their last token."""
        self.outstanding -= len(finished)
        for request in finished:
            self._recorder.close(request, self.index, request.generated, end)
            if self._on_finish is not None:
                self._on_finish(request)

    def _drafted(self, plan: Plan, batch: Sampled) -> bytes:
        """What decoding sequences got from the plan that is done, as the recorder has it."""
        if not plan.decode:
            return pack_drafts(0, 0, 0, batch.drafted)
        return pack_drafts(batch.delivered, batch.accepted, batch.courses.drafts, batch.drafted)

    def _note_resumed(self, chunk: Chunk, end: float) -> None:
        """A preempted request whose prefill is complete again has waited long for its next
        token."""
        request = chunk.request
        if chunk.context + chunk.tokens >= request.tokens_to_prefill():
            self._recorder.long_gap(end - request.last_token, 1)
            self._recorder.caught_up(request, end)

    def _note_preempted(self, now: float) -> None:
        """The plan that was just made preempted requests."""
        preempted = self.scheduler.preempted
        for request in preempted:
            self._recorder.preempted(request, now)
        preempted.clear()
