"""Runs the stages of one pipeline: a SimPy process that keeps a batch in flight for each.

As vLLM's engine loop: while fewer batches are in flight than there are stages, the next one is
scheduled; then the oldest is waited for. Its requests are scheduled again as soon as their tokens
are back. Requests that arrived meanwhile join them only where no place in flight is free; else they
are a batch of their own, behind it. A stage serves one batch at a time, in the order in which they
were scheduled; unequal ones wait for each other, and those waits are the bubbles.

Each of the places in flight has a number, as a data rank has: its rows follow each other in time.
Memory and queue in them are those of the replica. There are no leaps: batches pass each other at
times that no line describes, so that each iteration of each batch is an event, with leaps as
without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from sim.growth.leaps import COMPUTING, WAITED
from sim.iteration import Batch, Passage, Timer
from sim.loop.clock import SCHEDULING, Process, due_now
from sim.loop.engine import SingleEngine
from sim.loop.recorder import Columns, InFlight, Recorder
from sim.request import Request
from sim.schedulers import Plan
from sim.schedulers.pipelined import PipelinedPrefill

STAGES = Columns(
    [(WAITED, "f8"), (COMPUTING, "f8")], lambda flight, _: (flight.waited, flight.computing)
)
"""Seconds that a batch waited for others, and that the stages computed it."""


class Passing(InFlight):
    """A batch on its way through the stages, from the ``place`` in flight that it has.

    ``late`` are those of its sequences whose last token is older than its start: when they got it,
    and how many did.
    """

    __slots__ = ("late", "passage", "place")

    def __init__(self, number: int, place: int, plan: Plan, start: float, passage: Passage) -> None:
        super().__init__(number)
        self.place, self.plan, self.start, self.passage = place, plan, start, passage
        self.computing = sum(passage.stages)  # s, in all stages
        self.attention, self.pairs = passage.attention, passage.pairs
        self.iterations = 1
        self.late: list[tuple[float, int]] = []


class Stages:
    """When batches pass through the host and the stages of one replica."""

    def __init__(self) -> None:
        self._host = 0.0  # free from then on
        self._paced = 0.0  # no batch begins before
        self._free: list[float] = []  # of each stage, from when on

    def send(self, batch: Passing) -> None:
        """Let ``batch`` through, behind those that were sent before."""
        passage, start = batch.passage, batch.start
        if not self._free:
            self._free = [0.0] * len(passage.stages)
        ready = max(start, self._host, self._paced)
        waited = ready - start
        time = self._host = ready + passage.host
        self._paced = time + passage.pace
        begun, free, messages = time, self._free, iter(passage.messages)
        for stage, seconds in enumerate(passage.stages):
            if stage:
                time += next(messages)
            if time < free[stage]:
                waited += free[stage] - time
                time = free[stage]
            free[stage] = time = time + seconds
        batch.end, batch.waited = max(time, begun + passage.pace), waited


class Pipeline(SingleEngine):
    """One engine of several stages; routers see it as they see a replica. Its places in flight are
    numbered from ``index`` on."""

    scheduler: PipelinedPrefill

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        scheduler: PipelinedPrefill,
        timer: Timer,
        recorder: Recorder,
        *,
        on_finish: Callable[[Request], None] | None = None,
    ) -> None:
        super().__init__(env, index, scheduler, recorder, on_finish)
        self._timer = timer
        self._flying: deque[Passing] = deque()
        self._free = list(range(len(scheduler.batches)))  # places without a batch, ascending
        self._stages = Stages()
        self._alarm.start(self._process())

    def _process(self) -> Process:
        env, alarm, scheduler = self._env, self._alarm, self.scheduler
        completion, scheduling = self.index, SCHEDULING + self.index
        returned: int | None = None
        while True:
            self._fill(env._now, returned)
            if not self._flying:
                self._idle, returned = True, None
                yield alarm.at(scheduler.wakeup(env._now), scheduling)
                self._idle = False
                continue
            yield alarm.at(self._flying[0].end, completion)
            oldest = self._flying[0]
            self.account(oldest.end)
            returned = oldest.place
            if due_now(env):  # others go first
                yield alarm.at(env._now, scheduling)

    def _fill(self, now: float, returned: int | None) -> None:
        """Schedule until as many batches are in flight as there are stages, or nothing is left to
        run: first the batch that has just returned, if one has."""
        free = self._free
        if returned is not None and self._launch(returned, now, admits=len(free) == 1):
            free.remove(returned)
        while free and self._launch(free[0], now, admits=True):
            del free[0]

    def _launch(self, place: int, now: float, *, admits: bool) -> bool:
        """Schedule a batch at a ``place`` in flight and send it through; False if there is nothing
        to run."""
        scheduler = self.scheduler
        plan = scheduler.plan(place, now, admits=admits)
        if scheduler.preempted:
            self._note_preempted(now)
        if plan is None:
            return False
        decoding = scheduler.decoding
        seen = decoding.seen(plan.sequences, plan.context) if self._windows else None
        tokens = seen.tokens if seen is not None else ()
        batch = Batch(plan.sequences, plan.context, plan.chunks, plan.admitted, tokens)
        sent = Passing(self.index + place, place, plan, now, self._timer.passage(batch))
        if seen is not None:
            sent.seen = (*seen.tokens, *seen.growing, plan.decode)
        if plan.decode and decoding.last_end != now:
            sent.late = decoding.stalled(now)
        sent.held, sent.waiting = plan.held, len(scheduler.waiting)
        sent.reserved = sent.reserved_end = scheduler.kv.reserved
        self._stages.send(sent)
        self._flying.append(sent)
        return True

    def account(self, end: float) -> None:
        """Record the oldest batch in flight, which is back, and collect what finished."""
        batch, scheduler, kv = self._flying.popleft(), self.scheduler, self.scheduler.kv
        batch.end, batch.gap = end, end - batch.start
        for since, members in batch.late:
            self._recorder.long_gap(end - since, members)
            batch.stalled += members
        batch.tokens = self._recorder.chunks(batch.plan.chunks, end)
        if self._caches:
            batch.cached = (kv.several_tokens, kv.idle_tokens)
        finished = scheduler.complete_batch(batch.place, end)
        if scheduler.preempted:
            self._note_preempted(end)
        self._free.append(batch.place)
        self._free.sort()
        batch.finished = len(finished)
        self._recorder.plan(batch, scheduler)
        if finished:
            self._deliver(finished, batch.number, end)
