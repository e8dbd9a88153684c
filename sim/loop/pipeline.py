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

from sim.iteration import Batch, Passage, Timer
from sim.loop.clock import SCHEDULING, Alarm, Process, due_now
from sim.loop.recorder import (
    Recorder,
    pack_cached,
    pack_chunk,
    pack_plan,
    pack_stages,
)
from sim.memory.caching import CachingAllocator
from sim.request import Request
from sim.schedulers import Plan
from sim.schedulers.pipelined import PipelinedPrefill


class InFlight:
    """A batch on its way from ``start`` to ``end``: its ``plan``, what it spends its time on, and
    what was so when it was scheduled."""

    __slots__ = (
        "computing",
        "end",
        "number",
        "passage",
        "plan",
        "reserved",
        "seen",
        "stalled",
        "start",
        "waited",
        "waiting",
    )

    def __init__(self, number: int, plan: Plan, start: float, passage: Passage) -> None:
        self.number, self.plan, self.start, self.passage = number, plan, start, passage
        self.computing = sum(passage.stages)  # s, in all stages
        self.end = start
        self.waited = 0.0  # s, for other batches
        self.stalled: list[tuple[float, int]] = []
        self.seen = b""
        self.reserved = self.waiting = 0


class Stages:
    """When batches pass through the host and the stages of one replica."""

    def __init__(self) -> None:
        self._host = 0.0  # free from then on
        self._paced = 0.0  # no batch begins before
        self._free: list[float] = []  # of each stage, from when on

    def send(self, batch: InFlight) -> None:
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


class Pipeline:
    """One engine of several stages; routers see it as they see a replica. ``numbers`` are those of
    its places in flight, ``outstanding`` counts its requests."""

    weight: float = 1.0
    """Its share of the traffic, relative to other replicas."""

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
        self.index = index
        self.scheduler = scheduler
        self.outstanding = 0
        self._env = env
        self._timer = timer
        self._recorder = recorder
        if isinstance(scheduler.kv, CachingAllocator):
            scheduler.kv.note = recorder.looked_up
        self._row_bytes = recorder.plan_row.itemsize
        self._on_finish = on_finish
        self._idle = False
        self._flying: deque[InFlight] = deque()
        self._free = list(range(len(scheduler.batches)))  # places without a batch, ascending
        self._stages = Stages()
        self._windows = scheduler.decoding.windows
        self._alarm = Alarm(env)
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
        """Share of the KV cache that is taken now."""
        kv = self.scheduler.kv
        return kv.reserved / kv.capacity

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now. While batches are in flight, it is seen when the
        oldest of them is back."""
        self.outstanding += 1
        self.scheduler.submit(request)
        if self._idle:
            self._wake()

    def flush(self) -> None:
        """Nothing more arrives before something finishes."""
        self.scheduler.flush()
        if self._idle:
            self._wake()

    def stop(self, now: float) -> list[tuple[int, Request, int]]:
        """The run ends here: each unfinished request with the number of the replica and that of the
        tokens it has received."""
        scheduler = self.scheduler
        unfinished = [*scheduler.waiting, *scheduler.members()]
        return [(self.index, r, r.generated + scheduler.steps(r)) for r in unfinished]

    def check_integrity(self) -> None:
        """Raise AssertionError if batches and memory disagree."""
        self.scheduler.check_integrity()

    def _wake(self) -> None:
        self._idle = False
        self._alarm.move(self._env._now, SCHEDULING + self.index)

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
            returned = self._account(self._flying.popleft())
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
        sent = InFlight(place, plan, now, self._timer.passage(batch))
        if seen is not None:
            sent.seen = self._recorder.pack_seen(*seen.tokens, *seen.growing, plan.decode)
        if plan.decode and decoding.last_end != now:
            sent.stalled = decoding.stalled(now)
        sent.reserved, sent.waiting = scheduler.kv.reserved, len(scheduler.waiting)
        self._stages.send(sent)
        self._flying.append(sent)
        return True

    def _account(self, batch: InFlight) -> int:
        """``batch`` is back: record it, collect what finished. Returns its place."""
        plan, scheduler, recorder, end = batch.plan, self.scheduler, self._recorder, batch.end
        rows, tokens, stalled = recorder.plans, 0, 0
        for since, members in batch.stalled:
            recorder.long_gap(end - since, members)
            stalled += members
        if plan.chunks:
            number = len(rows) // self._row_bytes
            for chunk in plan.chunks:
                request, size = chunk.request, chunk.tokens
                tokens += size
                recorder.chunks += pack_chunk(number, request.id, size, chunk.context)
                whole = chunk.context + size >= request.tokens_to_prefill()
                if request.generated and whole:
                    recorder.long_gap(end - request.last_token, 1)
                    recorder.caught_up(request, end)
        kv = scheduler.kv
        kept = pack_cached(kv.several_tokens, kv.idle_tokens) if recorder.cached else b""
        finished = scheduler.complete_batch(batch.number, end)
        if scheduler.preempted:
            self._note_preempted(end)
        rows += pack_plan(
            batch.start,
            end,
            end - batch.start,
            0.0,
            batch.passage.attention,
            batch.passage.pairs,
            plan.context,
            plan.held,
            batch.reserved,
            batch.reserved,
            1,
            plan.decode,
            plan.sequences,
            stalled,
            len(plan.chunks),
            tokens,
            plan.admitted,
            plan.preempted,
            plan.running,
            batch.waiting,
            len(finished),
            self.index + batch.number,
        )
        rows += batch.seen
        rows += pack_stages(batch.waited, batch.computing)
        rows += kept
        self._free.append(batch.number)
        self._free.sort()
        if finished:
            self._deliver(finished, self.index + batch.number, end)
        return batch.number

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        """Those of ``finished``, a batch in the place of that ``number``, have their last token."""
        self.outstanding -= len(finished)
        for request in finished:
            self._recorder.close(request, number, request.generated, end)
            if self._on_finish is not None:
                self._on_finish(request)

    def _note_preempted(self, now: float) -> None:
        preempted = self.scheduler.preempted
        for request in preempted:
            self._recorder.preempted(request, now)
        preempted.clear()
