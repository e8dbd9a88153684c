"""Small event-loop runs with every token's time written down, whatever the leaps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import simpy

from sim.growth.sampled import Sampled
from sim.iteration import Ints, Part, Timer
from sim.loop.adapters import ADAPTED
from sim.loop.clock import Stop, run
from sim.loop.drafts import DRAFTS
from sim.loop.engine import Engine
from sim.loop.lockstep import DRAFTING_RANKS, RANKS, LockStep, Rank
from sim.loop.passes import STAGES
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.loop.sessions import make_any_fleet
from sim.loop.windowed import windowed_columns
from sim.request import Request, TrafficClass
from sim.routers import make_router
from sim.schedulers import PipelinedPrefill, Scheduler
from sim.workload import AnyTraffic
from sim.workload.adapters import AdapterDraw
from sim.workload.sessions import SessionTraffic
from sim.workload.traffic import ClosedTraffic, LengthChunk, OpenTraffic, TrafficChunk


@dataclass
class Played:
    """What a run did: token times by request, finishing order, the recorded rows."""

    tokens: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    log: list[tuple[float, str, int]] = field(default_factory=list)
    recorder: Recorder = field(default_factory=Recorder)
    replicas: list[Replica | Pipeline] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)
    events: int = 0


Arriving = tuple[float, int, int] | tuple[float, int, int, TrafficClass]
Asked = tuple[int, int] | tuple[int, int, TrafficClass]


class LineTimer(Timer):
    """Decode and prefill at constant cost per pass, sequence, context token and prompt token (s).

    With powers of two every sum is exact, so that ties between replicas and arrivals do happen.
    """

    def __init__(
        self, fixed: float, sequence: float, context: float, token: float, bend: int | None = None
    ) -> None:
        self.fixed, self.sequence, self.context, self.token = fixed, sequence, context, token
        self.bend = bend  # context from which one more token costs twice as much

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        base = self.fixed + self.sequence * sequences
        if self.bend is None:
            return float("inf"), base, self.context
        if context < self.bend:
            return self.bend, base, self.context
        return float("inf"), base - self.context * self.bend, 2 * self.context

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        tokens = sum(part.tokens for part in parts)
        _, base, slope = self.line(sequences, context)
        return base + slope * context + self.token * tokens, 0.0, 0.0


class LoggedPipeline(Pipeline):
    """A pipeline that checks its books, and writes down when each token came."""

    played: Played

    def _fill(self, now: float, returned: int | None) -> None:
        super()._fill(now, returned)
        self.scheduler.check_integrity()

    def account(self, end: float) -> None:
        scheduler, played, batch = self.scheduler, self.played, self._flying[0]
        plan = batch.plan
        flight = scheduler.flights[batch.place]
        assert flight is not None
        assert flight.plan is plan
        decoded = [r for r in scheduler.members() if scheduler.place(r) == batch.place]
        for request in (*decoded, *flight.preempted) if plan.decode else ():
            played.tokens[request.id].append(end)
        before = {chunk.request: chunk.request.generated for chunk in plan.chunks}
        super().account(end)
        for request, generated in before.items():
            if request.generated > generated:
                played.tokens[request.id].append(end)
        played.events += 1


def delivered(scheduler: Scheduler, request: Request, times: list[float]) -> list[float]:
    """When the tokens of a member come, of which each of ``times`` may bring several."""
    batch = scheduler.decoding
    if not isinstance(batch, Sampled):
        return times
    course = batch.courses[request]
    done = batch.iteration - request.joined - course.since
    gains = np.diff(course.gained[done : done + len(times) + 1])
    return [time for time, gain in zip(times, gains.tolist(), strict=True) for _ in range(gain)]


def play(
    traffic: Sequence[Arriving] | tuple[int, float, Sequence[Asked]] | SessionTraffic,
    scheduler: Callable[[], Scheduler],
    price: Timer,
    *,
    leap: bool,
    replicas: int = 1,
    router: str = "least-outstanding",
    horizon: float | None = None,
    ranks: int = 1,
    staged: type[LoggedPipeline] = LoggedPipeline,
    adapters: AdapterDraw | None = None,
) -> Played:
    """Run open traffic (arrival, prompt, output, perhaps a class), closed traffic (clients, think
    time, lengths) or sessions, on replicas of so many data ranks, or pipelines of what schedules
    several batches at once."""
    windows, piped = len(scheduler().decoding.windows), isinstance(scheduler(), PipelinedPrefill)
    drafts = isinstance(scheduler().decoding, Sampled)
    features = [
        (windows > 0, windowed_columns(windows)),
        (ranks > 1, RANKS),
        (piped, STAGES),
        (drafts, DRAFTS),
        (ranks > 1 and drafts, DRAFTING_RANKS),
        (adapters is not None, ADAPTED),
    ]
    columns = [each for there, each in features if there]
    played = Played(recorder=Recorder(columns))
    env = simpy.Environment()

    class Logged(Replica):
        def account(self, end: float) -> None:
            plan, run = self.flight.plan, self._run
            assert plan is not None
            if run is not None:
                times = [run.boundary(run.done + i + 1) for i in range(self._iterations)]
            else:
                times = [end]
            assert times[-1] == end
            for request in self.scheduler.members():
                if request.joined >= 0 and plan.decode:
                    played.tokens[request.id].extend(delivered(self.scheduler, request, times))
            before = {c.request: c.request.generated for c in plan.chunks}
            super().account(end)
            for request, generated in before.items():
                if request.generated > generated:
                    played.tokens[request.id].append(end)
            self.scheduler.check_integrity()
            played.events += 1

    class LoggedRank(Logged, Rank):
        pass

    def make(index: int, on_finish: Callable[[Request], None] | None) -> Engine:
        def finished(request: Request) -> None:
            played.log.append((env.now, "finish", request.id))
            if on_finish is not None:
                on_finish(request)

        if piped:
            own = scheduler()
            assert isinstance(own, PipelinedPrefill)
            first = index * len(own.batches)
            pipeline = staged(
                env, first, own, price, played.recorder, leap=False, on_finish=finished
            )
            pipeline.played = played
            played.replicas.append(pipeline)
            return pipeline
        kind = Logged if ranks == 1 else LoggedRank
        made = [
            kind(env, number, scheduler(), price, played.recorder, leap=leap, on_finish=finished)
            for number in range(index * ranks, (index + 1) * ranks)
        ]
        played.replicas += made
        return made[0] if ranks == 1 else LockStep(env, made, leap=leap)

    source: AnyTraffic
    if isinstance(traffic, SessionTraffic):
        source = traffic
    elif isinstance(traffic, list):
        columns = [list(column) for column in zip(*traffic, strict=True)]
        source = OpenTraffic(len(traffic), iter([TrafficChunk(*columns)]))
    else:
        clients, think, lengths = traffic
        columns = [list(column) for column in zip(*lengths, strict=True)]
        source = ClosedTraffic(len(lengths), clients, think, iter([LengthChunk(*columns)]))
    fleet = make_any_fleet(
        env,
        source,
        make_router(router, 7),
        played.recorder,
        make,
        replicas=replicas,
        front_end=0.0,
    )
    fleet.adapters = adapters
    run(env, math.inf if horizon is None else horizon, Stop())
    while env.peek() == math.inf and fleet.outstanding:
        fleet.flush()
        run(env, math.inf if horizon is None else horizon, Stop())
    if horizon is not None:
        for replica in fleet.replicas:
            played.unfinished.update({r.id: n for _, r, n in replica.stop(horizon)})
    return played
