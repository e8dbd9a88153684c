"""Runs the real event loop with iteration times that theory can handle, in seconds.

``play`` puts the parts together as ``sim.simulation`` does, with a stub in place of the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.errors import InfersimError
from sim.growth.kept_rows import PlanRows
from sim.iteration import Ints, Part, Timer
from sim.loop.clock import Stop, run
from sim.loop.fleet import make_fleet
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.memory import PagedAllocator
from sim.request import Request
from sim.routers import RoundRobin
from sim.schedulers import ChunkedPrefill, Limits, Scheduler, make_scheduler
from sim.schedulers.orders import FirstCome
from sim.workload import OpenTraffic

NO_LIMIT = 1 << 24
"""Slots, tokens or KV blocks that never run out here."""


class LineTimer(Timer):
    """An iteration costs ``fixed``, plus something per sequence that gets a token in it, per KV
    token that decodes read, and per prompt token prefilled (s)."""

    def __init__(
        self,
        *,
        fixed: float = 0.0,
        sequence: float = 0.0,
        context: float = 0.0,
        prompt: float = 0.0,
    ) -> None:
        self._fixed, self._sequence, self._context = fixed, sequence, context
        self._prompt = prompt

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        """A line without a bend, whatever the context."""
        return math.inf, self._fixed + self._sequence * sequences, self._context

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """A prompt counts as a sequence: it ends with a token too, as none is ever cut here."""
        duration = self._fixed + self._sequence * (sequences + len(parts))
        duration += self._context * context + self._prompt * sum(part.tokens for part in parts)
        return duration, 0.0, 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """The record of a run: its rows, as ``sim.loop.recorder`` has them, and ``in_system``, the time
    integral of the number of requests that the replica said were outstanding."""

    requests: NDArray[np.void]
    plans: PlanRows
    in_system: float

    @property
    def busy(self) -> float:
        """Seconds during which an iteration ran."""
        return float(np.sum(self.plans["end"] - self.plans["start"]))


class WatchedReplica(Replica):
    """A replica that integrates its own ``outstanding`` over time."""

    def __init__(
        self, env: simpy.Environment, scheduler: Scheduler, timer: Timer, recorder: Recorder
    ) -> None:
        super().__init__(env, 0, scheduler, timer, recorder, on_finish=self._watch)
        self.area = 0.0
        self._level = 0
        self._since = 0.0

    def submit(self, request: Request) -> None:
        """Take in a request, and note that there is one more."""
        super().submit(request)
        self._watch(request)

    def _watch(self, _: Request) -> None:
        """The number outstanding has just changed."""
        now = self._env.now
        self.area += self._level * (now - self._since)
        self._level, self._since = self.outstanding, now


def scheduler(
    batching: str = ChunkedPrefill.name, *, slots: int = NO_LIMIT, order: str = FirstCome.name
) -> Scheduler:
    """A shipped policy with ``slots`` and unlimited memory."""
    limits = Limits(max_num_seqs=slots, max_num_batched_tokens=NO_LIMIT, max_model_len=NO_LIMIT)
    return make_scheduler(batching, limits, PagedAllocator(NO_LIMIT, 16), order=order)


def play(
    traffic: OpenTraffic,
    policy: Scheduler,
    timer: Timer,
    make_replica: Callable[..., WatchedReplica] = WatchedReplica,
) -> Played:
    """Run ``traffic`` on one replica from an empty system until it is empty again.

    Raises InfersimError if the scheduler leaves a request waiting for ever.
    """
    env, recorder = simpy.Environment(), Recorder()
    replica = make_replica(env, policy, timer, recorder)
    fleet = make_fleet(
        env,
        traffic,
        RoundRobin(),
        recorder,
        lambda index, on_finish: replica,
        replicas=1,
        front_end=0.0,
    )
    run(env, math.inf, Stop())
    if fleet.outstanding:
        raise InfersimError(f"the scheduler is stuck: {fleet.outstanding} requests wait")
    replica.check_integrity()
    return Played(recorder.request_rows(), recorder.plan_rows(), replica.area)
