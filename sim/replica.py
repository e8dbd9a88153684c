"""Runs one replica: a SimPy process that plans, times, waits and accounts, iteration by iteration.

While nothing can change the batch, the next k decode iterations are one *leap*: one plan, one
event. Within a run of decodes of the same sequences the iteration boundaries are a closed form,
anchored where the composition last changed; it is used with leaps and without, so both give the
same times to the last bit. An arrival that may change the next plan cuts the leap at the next
boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from typing import Protocol

import simpy

from sim.clock import INFINITY, SCHEDULING, Alarm, Process, due_now
from sim.plans import Chunk, Plan
from sim.recorder import PLAN, Recorder, pack_chunk, pack_plan
from sim.request import Request
from sim.schedulers import Scheduler

PLAN_BYTES = PLAN.itemsize


class Price(Protocol):
    """What a replica asks of a cost model. Times in seconds, contexts in KV tokens."""

    def decode_line(self, sequences: int, context: int) -> tuple[float, float, float]:
        """(limit, intercept, slope): a decode-only iteration over ``sequences`` that hold
        ``context`` tokens in sum takes ``intercept + slope * context``, for context < limit."""

    def iteration(
        self, sequences: int, context: int, chunks: list[Chunk], admitted: int
    ) -> tuple[float, float, float]:
        """(duration, share of it spent in prefill attention, query-key pairs of that)."""


class Run:
    """A run of decode iterations over the same sequences: boundary j is a closed form of j.

    Iteration i (from 0) lasts ``first + step * i``, so boundary j lies ``j * first + step *
    j(j-1)/2`` after ``start``.
    """

    __slots__ = ("context", "done", "end", "first", "limit", "sequences", "start", "step")

    def __init__(
        self, start: float, sequences: int, context: int, line: tuple[float, float, float]
    ) -> None:
        self.limit, intercept, slope = line
        self.start = self.end = start
        self.sequences = sequences
        self.context = context
        self.first = intercept + slope * context
        self.step = slope * sequences
        self.done = 0

    def continues(self, start: float, sequences: int, context: int) -> bool:
        """Whether an iteration that starts now over those sequences is this run's next one."""
        return (
            sequences == self.sequences
            and context == self.context + self.done * sequences
            and context < self.limit
            and start == self.end
        )

    def left(self) -> int:
        """Iterations until the line of their times ends (at least 1 where ``continues`` holds)."""
        if self.limit == INFINITY:
            return 1 << 40
        return ceil((self.limit - self.context) / self.sequences) - self.done

    def boundary(self, j: int) -> float:
        """End of iteration number ``j`` (counted from 1), in seconds of simulated time."""
        return self.start + (j * self.first + self.step * (j * (j - 1) // 2))

    def first_boundary_from(self, time: float, low: int, high: int) -> int:
        """The smallest j in ``low..high`` with ``boundary(j) >= time`` (``high`` if there is
        none)."""
        start, first, step = self.start, self.first, self.step
        span, b = time - start, first - step / 2
        root = b + sqrt(b * b + 2 * step * span)
        j = int(2 * span / root) + 1 if root > 0 else low
        if j < low:
            j = low
        elif j > high:
            j = high
        # rounding may have put the guess next to it: what counts is ``boundary``
        while j > low and start + ((j - 1) * first + step * ((j - 1) * (j - 2) // 2)) >= time:
            j -= 1
        while j < high and start + (j * first + step * (j * (j - 1) // 2)) < time:
            j += 1
        return j


class Replica:
    """One engine instance. ``outstanding`` counts its requests, waiting and running."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        scheduler: Scheduler,
        price: Price,
        recorder: Recorder,
        *,
        leap: bool = True,
        on_finish: Callable[[Request], None] | None = None,
    ) -> None:
        self.index = index
        self.scheduler = scheduler
        self.outstanding = 0
        self._env = env
        self._price = price
        self._recorder = recorder
        self._leap = leap
        self._on_finish = on_finish
        self._alarm = Alarm(env)
        self._idle = False
        self._plan: Plan  # the one in flight, or the last one
        self._iterations = 0  # of the plan in flight; 0 if there is none
        self._run: Run | None = None  # the run it belongs to, if it is decode only
        self._started = 0.0
        self._waiting = 0  # requests that the plan in flight left in the queue
        self._cost = (0.0, 0.0, 0.0)  # duration of the plan in flight, if it has prefills
        self._alarm.start(self._process())

    @property
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""
        return len(self.scheduler.waiting)

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of those; counted when asked for."""
        return sum(request.prompt_tokens for request in self.scheduler.waiting)

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
        matters = self.scheduler.submit(request)
        if self._idle:
            self._wake()
        elif matters and self._iterations > 1:
            self._cut()

    def flush(self) -> None:
        """Nothing more arrives before something finishes: launch an incomplete batch."""
        self.scheduler.flush()
        if self._idle:
            self._wake()

    def stop(self, now: float) -> list[tuple[Request, int]]:
        """The run ends here: account for the boundaries of the leap in flight up to ``now``, and
        return each unfinished request with the number of tokens it has received."""
        run = self._run
        if self._iterations and run is not None:
            reached = run.first_boundary_from(now, run.done, run.done + self._iterations)
            if run.boundary(reached) > now:
                reached -= 1
            if reached > run.done:
                self._iterations = reached - run.done
                self._account(run.boundary(reached))
        scheduler = self.scheduler
        unfinished = [*scheduler.waiting, *scheduler.members()]
        return [(r, r.generated + scheduler.steps(r)) for r in unfinished]

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
        schedule, repeats, account = scheduler.schedule, scheduler.repeats, self._account
        decode_line, price = self._price.decode_line, self._price.iteration
        leap, thrown_out = self._leap, scheduler.thrown_out
        completion, scheduling = self.index, SCHEDULING + self.index
        while True:
            now = env._now
            plan = schedule(now)
            if thrown_out:
                self._note_thrown_out(now)
            if plan is None:
                self._idle = True
                yield alarm.at(scheduler.wakeup(now), scheduling)
                self._idle = False
                continue
            self._plan = plan
            self._started = now
            self._waiting = len(scheduler.waiting)
            sequences, context, chunks = plan.computed, plan.context, plan.chunks
            if chunks:
                self._run = None
                self._iterations = 1
                self._cost = cost = price(sequences, context, chunks, plan.admitted)
                end = now + cost[0]
            else:
                run = self._run
                if run is None or not run.continues(now, sequences, context):
                    line = decode_line(sequences, context)
                    self._run = run = Run(now, sequences, context, line)
                self._iterations = times = repeats(run.left()) if leap and plan.stationary else 1
                end = run.boundary(run.done + times)
            yield alarm.at(end, completion)
            account(env._now)
            if due_now(env):  # others go first
                yield alarm.at(env._now, scheduling)

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
            gap, attention, pairs = self._cost
            slope = 0.0
        else:
            gap, slope = run.first + run.step * run.done, run.step
            attention = pairs = 0.0
            run.done += iterations
            run.end = end
        if plan.decode and scheduler.decoding.last_end != started:
            for since, members in scheduler.decoding.stalled(started):
                self._recorder.long_gap(gap + (started - since), members)
                stalled += members
        if chunks:
            number, pieces = len(rows) // PLAN_BYTES, self._recorder.chunks
            for chunk in chunks:
                request, size = chunk.request, chunk.tokens
                tokens += size
                pieces += pack_chunk(number, request.id, size, chunk.context)
                if request.generated:
                    self._note_resumed(chunk, end)
        reserved = reserved_end = scheduler.kv.reserved
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
            plan.held,
            reserved,
            reserved_end,
            iterations,
            plan.decode,
            plan.computed,
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
        self._iterations = 0
        if finished:
            self.outstanding -= len(finished)
            for request in finished:
                self._recorder.finish(request, self.index, end)
                if self._on_finish is not None:
                    self._on_finish(request)

    def _note_resumed(self, chunk: Chunk, end: float) -> None:
        """A preempted request whose prefill is complete again has waited long for its next
        token."""
        request = chunk.request
        if chunk.context + chunk.tokens >= request.tokens_to_prefill():
            self._recorder.long_gap(end - request.last_token, 1)
            self._recorder.caught_up(request, end)

    def _note_thrown_out(self, now: float) -> None:
        """The plan that was just made preempted requests."""
        thrown_out = self.scheduler.thrown_out
        for request in thrown_out:
            self._recorder.thrown_out(request, now)
        thrown_out.clear()
