"""Defines passes of batches through the stages of a pipeline, one by one or in rounds.

A stage serves one batch at a time, in the order in which they were sent; unequal ones wait for each
other. While all batches in flight only decode, the oldest goes round again as soon as it is back:
its next pass is arithmetic on its context and on when host and stages are free. ``Rounds`` computes
such passes without events or plans, by the same operations in the same order as single passes, so
that no bit of a result changes. No line describes when unequal batches wait for each other, so each
pass has a row of its own. Times in seconds.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator
from itertools import cycle

import numpy as np

from sim.growth.leaps import COMPUTING, IDLE, SHARED, WAITED
from sim.growth.steady import NEVER
from sim.iteration import Legs, Passage, Timer
from sim.loop.engine import CACHED
from sim.loop.recorder import Columns, InFlight, PlanRow, Recorder, packer
from sim.schedulers import Plan
from sim.schedulers.pipelined import PipelinedPrefill

STAGES = Columns(
    [(WAITED, "f8"), (COMPUTING, "f8")], lambda flight, _: (flight.waited, flight.computing)
)
"""Seconds that a batch waited for others, and that the stages computed it."""


MARGIN = 1e-6
"""Share by which ``Rounds.soonest`` is sooner than its sums, which are rounded by less."""

_pack_counts = struct.Struct("=12i").pack
_pack_pass = struct.Struct("=6d4q48s2d").pack
_pack_cached = packer(np.dtype(list(CACHED.fields)))


class Passing(InFlight):
    """A batch on its way through the stages, from the ``place`` in flight that it has.

    ``late`` are those of its sequences whose last token is older than its start: when they got it,
    and how many did. The batch has gone ``rounds`` of which its scheduler is not informed.
    """

    __slots__ = (
        "again",
        "context",
        "counts",
        "host",
        "late",
        "legs",
        "limit",
        "opens",
        "pace",
        "place",
        "rounds",
    )

    def __init__(self, number: int, place: int, plan: Plan, start: float, passage: Passage) -> None:
        super().__init__(number)
        self.place, self.plan, self.start, self.context = place, plan, start, plan.context
        self.host, stages, messages, self.pace, self.attention, self.pairs = passage
        sent = 0.0, *messages
        self.legs: Legs = [(message, s, 0.0) for message, s in zip(sent, stages, strict=True)]
        self.iterations, self.rounds = 1, 0
        self.late: list[tuple[float, int]] = []
        self.limit = 0.0  # of contexts below which it goes by these legs
        self.counts = self.again = b""  # the whole numbers of its row, and of the next one
        self.opens: Iterator[int] = iter(())  # blocks that each of its next rounds takes

    @property
    def changes(self) -> bool:
        """Whether the next pass differs from this one in more than its context."""
        return bool(self.plan.chunks or self.plan.preempted or self.late)

    def counted(self, waiting: int) -> bytes:
        """The whole numbers in the row of a pass that only decodes, with requests ``waiting``."""
        plan = self.plan
        size, running = plan.decode, plan.running
        return _pack_counts(1, size, size, 0, 0, 0, 0, 0, running, waiting, 0, self.number)


class Stages:
    """When batches pass through the host and the stages of one replica."""

    def __init__(self, number: int) -> None:
        self._host = 0.0  # free from then on
        self._paced = 0.0  # no batch begins before
        self.free = [0.0] * number  # of each stage, from when on

    def send(self, batch: Passing) -> None:
        """Let ``batch`` through, behind those that were sent before."""
        start = time = batch.start
        if time < self._host:
            time = self._host
        if time < self._paced:
            time = self._paced
        waited = time - start
        self._host = time = time + batch.host
        self._paced = end = time + batch.pace
        context, computing, free = batch.context, 0.0, self.free
        for stage, (message, base, slope) in enumerate(batch.legs):
            time += message
            if time < free[stage]:
                waited += free[stage] - time
                time = free[stage]
            seconds = base + slope * context
            computing += seconds
            free[stage] = time = time + seconds
        batch.end = time if time > end else end
        batch.waited, batch.computing = waited, computing


PASSES = WAITED, COMPUTING
CACHED_PASSES = *PASSES, SHARED, IDLE


def writes_rounds(recorder: Recorder) -> bool:
    """Whether ``recorder`` has no columns of plans but those that ``Rounds`` fill."""
    return (recorder.plan_row.names or ())[len(PlanRow._fields) :] in (PASSES, CACHED_PASSES)


class Rounds:
    """Passes of the batches ``flying``, oldest first, until one of them has to be planned.

    ``left``      passes that end before that
    ``reserved``  tokens' worth of memory that is taken now
    """

    def __init__(
        self,
        flying: deque[Passing],
        stages: Stages,
        scheduler: PipelinedPrefill,
        timer: Timer,
        recorder: Recorder,
    ) -> None:
        kv = scheduler.kv
        self._flying, self._stages, self._scheduler = flying, stages, scheduler
        self._recorder = recorder
        self._held, self.reserved, self._capacity = scheduler.held(), kv.reserved, kv.capacity
        self._block, self._caches = kv.block_size, IDLE in (recorder.plan_row.names or ())
        self._several, self._idle = kv.several_tokens, kv.idle_tokens
        number = len(flying)
        self._waiting = len(scheduler.waiting)
        self.left = 0 if scheduler.has_prompt() else number * scheduler.fed()
        for at, batch in enumerate(flying):
            if at >= self.left:
                break
            times = 0 if batch.changes else scheduler.rounds(batch.place)
            if times:
                times = min(times, self._on_line(batch, timer))
            self.left = min(self.left, number * times + at)

    def _on_line(self, batch: Passing, timer: Timer) -> int:
        """How often ``batch`` can go round before a stage's line ends; notes how it goes."""
        size, context = batch.plan.decode, batch.context + batch.plan.decode
        if context >= batch.limit:
            batch.limit, batch.legs = timer.legs(size, context)
        if not batch.counts:
            batch.opens = cycle(self._scheduler.opens(batch.place))
            batch.counts = batch.counted(batch.waiting)
        waiting = self._waiting
        batch.again = batch.counts if waiting == batch.waiting else batch.counted(waiting)
        return NEVER if batch.limit == math.inf else math.ceil((batch.limit - context) / size)

    def soonest(self) -> float:
        """A time before which no batch has to be planned. When the last of ``left`` passes is to
        end, its batch has gone its own way each time; and all batches have passed each stage as
        often, one after the other."""
        flying = self._flying
        rounds, at = divmod(self.left, len(flying))
        batch = flying[at]
        if not rounds:
            return batch.end
        alone = batch.host + batch.computing + sum([message for message, _, _ in batch.legs])
        soonest = batch.end + (1 - MARGIN) * rounds * alone
        taken = [[base + slope * b.context for _, base, slope in b.legs] for b in flying]
        for free, times in zip(self._stages.free, zip(*taken, strict=True), strict=True):
            passed = (rounds - 1) * sum(times) + sum(times[: at + 1])
            soonest = max(soonest, free + (1 - MARGIN) * passed)
        return soonest

    def go(self, until: float) -> None:
        """Record the passes that end before ``until``, and send each batch through anew."""
        flying, send, pack, pack_cached = self._flying, self._stages.send, _pack_pass, _pack_cached
        held, reserved, capacity, block = self._held, self.reserved, self._capacity, self._block
        several, idle, caches = self._several, self._idle, self._caches
        rows, passes = bytearray(), 0
        while (batch := flying[0]).end < until:
            start, end, context = batch.start, batch.end, batch.context
            taken, size = batch.reserved, batch.plan.decode
            rows += pack(
                start, end, end - start, 0.0, 0.0, 0.0, context, batch.held, taken, taken,
                batch.counts, batch.waited, batch.computing,
            )  # fmt: skip
            if caches:
                free = capacity - reserved
                rows += pack_cached(several, idle if idle < free else free)
            batch.start, batch.context, batch.counts = end, context + size, batch.again
            batch.held = held = held + size
            batch.reserved = reserved = reserved + next(batch.opens) * block
            batch.rounds += 1
            send(batch)
            flying.rotate(-1)
            passes += 1
        self._recorder.take(rows)
        self._held, self.reserved = held, reserved
        self.left -= passes
        assert self.left >= 0, "a batch was to be planned"

    def inform(self) -> None:
        """Inform the scheduler of the passes that are over."""
        self._scheduler.kv.reserved = self.reserved
        for batch in self._flying:
            if batch.rounds:
                self._scheduler.go_on(batch.place, batch.rounds, batch.start)
                batch.plan.context, batch.reserved_end = batch.context, batch.reserved
                batch.waiting, batch.rounds = self._waiting, 0
