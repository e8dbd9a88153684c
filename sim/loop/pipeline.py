"""Runs the stages of one pipeline: a SimPy process that keeps a batch in flight for each.

As vLLM's engine loop: while fewer batches are in flight than there are stages, the next one is
scheduled; then the oldest is waited for. Its requests are scheduled again as soon as their tokens
are back. Requests that arrived meanwhile join them only where no place in flight is free; else they
are a batch of their own, behind it. A stage serves one batch at a time, in the order in which they
were scheduled; unequal ones wait for each other, and those waits are the bubbles.

Each of the places in flight has a number, as a data rank has: its rows follow each other in time.
Memory and queue in them are those of the replica.

A *leap* are passes of batches that only decode, while no prompt can enter (``passes.Rounds``). It
is not computed ahead: the process sleeps until the soonest time at which a batch may have to be
planned. There, or when an arrival or a router looks at the engine, the passes that end before that
time are computed and recorded. So the engine always looks as it does with single passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from sim.iteration import Batch, Timer
from sim.loop.clock import SCHEDULING, Process, due_now
from sim.loop.engine import SingleEngine, Unfinished
from sim.loop.passes import Passing, Rounds, Stages, writes_rounds
from sim.loop.recorder import Recorder
from sim.request import Request
from sim.schedulers.pipelined import PipelinedPrefill


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
        leap: bool = True,
        on_finish: Callable[[Request], None] | None = None,
    ) -> None:
        super().__init__(env, index, scheduler, recorder, on_finish)
        self._timer = timer
        self._leap = leap and scheduler.goes_round and writes_rounds(recorder)
        self._rounds: Rounds | None = None  # of the leap in flight
        self._flying: deque[Passing] = deque()
        self._free = list(range(len(scheduler.batches)))  # places without a batch, ascending
        self._stages = Stages(len(scheduler.batches))
        self._alarm.start(self._process())

    def _process(self) -> Process:
        env, alarm, scheduler, flying = self._env, self._alarm, self.scheduler, self._flying
        completion, scheduling = self.index, SCHEDULING + self.index
        returned: int | None = None
        while True:
            self._fill(env._now, returned)
            if not flying:
                self._idle, returned = True, None
                yield alarm.at(scheduler.wakeup(env._now), scheduling)
                self._idle = False
                continue
            if self._leap and not flying[0].changes:
                self._rounds = Rounds(flying, self._stages, scheduler, self._timer, self._recorder)
            while (leap := self._rounds) and (until := leap.soonest()) > flying[0].end:
                yield alarm.at(until, completion)
                if self._rounds is not None:  # it was not cut
                    leap.go(env._now)
            self._end_rounds()
            oldest = flying[0]
            yield alarm.at(oldest.end, completion)
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

    def cut(self) -> None:
        """End the leap in flight, if there is one, with the passes that are over."""
        if self._rounds is not None:
            self._rounds.go(self._env._now)
            self._end_rounds()
            self._alarm.move(self._flying[0].end, self.index)

    def _end_rounds(self) -> None:
        if self._rounds is not None:
            self._rounds.inform()
            self._rounds = None

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now; wake up, or end the leap in flight."""
        self.cut()
        super().submit(request)

    @property
    def kv_used(self) -> float:
        """Share of the KV cache that is taken now, with leaps as without."""
        if self._rounds is None:
            return super().kv_used
        self._rounds.go(self._env._now)
        return self._rounds.reserved / self.scheduler.kv.capacity

    def stop(self, now: float) -> Unfinished:
        """End the run: account for the passes of the leap in flight up to ``now``, and return the
        unfinished requests."""
        if self._rounds is not None:
            self._rounds.go(now)
            self._end_rounds()
            while self._flying and self._flying[0].end <= now:
                self.account(self._flying[0].end)
        return super().stop(now)

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
