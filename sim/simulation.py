"""Provides ``simulate(scenario) -> Result``, where the parts are put together as the data flows.

Reads the catalogue and the traffic, builds the replicas, runs the event loop, and hands the
recorded rows to the metrics. Writes nothing, prints nothing; a run is a pure function of the
scenario.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import simpy

from sim.errors import InfersimError, UsageError
from sim.loop.clock import Stop, run
from sim.loop.fleet import Engine, Fleet, Progress, make_fleet
from sim.loop.lockstep import LockStep, Rank
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.metrics.own import load_metrics
from sim.metrics.run_record import RunRecord
from sim.pools import PreparedPool, front_end_of, make_replica_scheduler, prepare_pool
from sim.request import Request
from sim.results.result import Result
from sim.rng import repetition_seed
from sim.routers import make_router, router_class
from sim.scenario import AnyScenario, Scenario, as_scenario
from sim.scenario.pools import only
from sim.schedulers import PipelinedPrefill, scheduler_class
from sim.schedulers.orders import make_order
from sim.workload import ClosedTraffic, OpenTraffic, build


@dataclass(frozen=True, slots=True)
class Setup:
    """What a scenario comes to before any request arrives."""

    scenario: Scenario
    pools: tuple[PreparedPool, ...]

    @property
    def only(self) -> PreparedPool:
        """The pool of a fleet that has one; UsageError where there are several."""
        return only(self.pools)

    def under(self, scenario: Scenario) -> Setup:
        """The same replicas for another scenario of them: in seed, traffic, or their number."""
        changed = self.each(lambda pool: replace(pool, settings=pool.settings.of(scenario)))
        return replace(changed, scenario=scenario)

    def each(self, change: Callable[[PreparedPool], PreparedPool]) -> Setup:
        """The same setup with every pool changed."""
        return replace(self, pools=tuple(change(pool) for pool in self.pools))


def prepare(scenario: Scenario) -> Setup:
    """Look everything up and do the memory arithmetic.

    Raises UsageError for names that do not exist, parts of one's own that cannot be loaded, or
    repetitions without anything random to repeat, and InfeasibleError if the model does not fit.
    """
    if scenario.run.repetitions > 1 and not is_random(scenario):
        raise UsageError(
            f"run.repetitions: nothing in this scenario is drawn at random, so all "
            f"{scenario.run.repetitions} repetitions would be the same run; leave them at 1, or "
            "vary the traffic (for a trace: workload.trace.spread)"
        )
    _check_own_parts(scenario)
    return Setup(scenario, tuple(prepare_pool(scenario, pool) for pool in scenario.pools))


def _check_own_parts(scenario: Scenario) -> None:
    """Raise UsageError for a part of one's own that cannot be loaded, before any work is done."""
    folders = scenario.folders
    for pool in scenario.pools:
        scheduler_class(pool.scheduler.batching, folders=folders)
        make_order(pool.scheduler.order, folders)
    router_class(scenario.router, folders)
    load_metrics(scenario.metrics or (), folders)


def is_random(scenario: Scenario) -> bool:
    """Whether anything in a run depends on the seed."""
    workload = scenario.workload
    if scenario.replicas > 1 and router_class(scenario.router, scenario.folders).draws:
        return True
    if sum(item.share is not None for item in workload.classes or ()) > 1:
        return True
    if workload.trace is not None:
        return workload.trace.spread is not None or not workload.trace.overlay.is_integer()
    laws = (workload.arrivals, workload.prompt_tokens, workload.output_tokens, workload.lengths)
    kinds = {law.kind for law in laws if law is not None}
    return not kinds <= {"constant", "burst", "closed", "fixed"}


def simulate(
    scenario: AnyScenario,
    *,
    leap: bool | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Result:
    """Run the scenario's traffic through its fleet and measure, as often as it wants repetitions.

    ``scenario`` is a scenario, the path of one, or a mapping like the file.
    ``leap=False`` takes every iteration as an event of its own: the same token times, more slowly;
    None leaves it to ``run.leap``.
    ``progress`` is called now and then with (requests that have arrived, requests in all), of all
    repetitions together.
    An interrupt (Ctrl-C), or else what ``stop`` heeds, ends the run early; its result says so.
    Repetitions that had finished are kept, the interrupted one only if it is the first.
    Raises UsageError, TraceError or InfeasibleError if the run cannot start.
    """
    scenario = as_scenario(scenario)
    setup = prepare(scenario)
    leaps = scenario.run.leap if leap is None else leap
    repetitions, further = scenario.run.repetitions, []
    with Stop() if stop is None else nullcontext(stop) as heeded:
        for number in range(repetitions):
            seed = repetition_seed(scenario.seed, number)
            if number:
                setup = setup.under(scenario.model_copy(update={"seed": seed}))
            record = _play(setup, leaps, _share_of(progress, number, repetitions), heeded)
            if number == 0:
                first = record
            elif not record.interrupted:
                further.append(Result(record).summaries[0])
            if heeded.requested:
                break
    return Result(first, further)


def _share_of(progress: Progress | None, number: int, repetitions: int) -> Progress | None:
    """``progress`` of all repetitions, as the one of this ``number`` is to tell it."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, repetitions * total)


def _play(setup: Setup, leaps: bool, progress: Progress | None, stop: Stop) -> RunRecord:
    """One run of the scenario's own traffic."""
    traffic = build(setup.scenario, setup.scenario.seed)
    return play(setup, traffic, leap=leaps, progress=progress, stop=stop)


def play(
    setup: Setup,
    traffic: OpenTraffic | ClosedTraffic,
    *,
    leap: bool,
    stop: Stop,
    progress: Progress | None = None,
) -> RunRecord:
    """One run, from the first arrival to the last token: ``traffic``, whatever the scenario says of
    it, on the pools of ``setup``."""
    scenario = setup.scenario
    env = simpy.Environment()
    windows = {len(pool.deployment.model.windows) for pool in setup.pools}
    ranks = any(pool.deployment.layout.data > 1 for pool in setup.pools)
    stages = any(pool.deployment.layout.pipeline > 1 for pool in setup.pools)
    recorder = Recorder(max(windows), ranks=ranks, stages=stages)
    places = [(pool, number) for pool in setup.pools for number in pool.settings.engines]

    def make_replica(index: int, on_finish: Callable[[Request], None] | None) -> Engine:
        pool, first = places[index]
        return make_engine(env, pool, first, recorder, leap=leap, on_finish=on_finish)

    fleet = make_fleet(
        env,
        traffic,
        make_router(scenario.router, scenario.seed, scenario.folders),
        recorder,
        make_replica,
        replicas=len(places),
        front_end=front_end_of(setup.pools),
        progress=progress,
    )
    horizon = math.inf if scenario.run.horizon is None else scenario.run.horizon
    interrupted = _run(env, fleet, horizon, stop)
    end = env.now if interrupted or horizon == math.inf else horizon
    for replica in fleet.replicas:
        for number, request, generated in replica.stop(end):
            recorder.leave_unfinished(request, number, generated)
        replica.check_integrity()
    record = recorded(
        setup,
        traffic,
        recorder,
        end=end,
        events=next(env._eid),
        interrupted=interrupted,
    )
    assert len(record.requests) == fleet.issued, (
        "every request is completed, rejected or unfinished"
    )
    return record


def make_engine(
    env: simpy.Environment,
    pool: PreparedPool,
    number: int,
    recorder: Recorder,
    *,
    leap: bool,
    on_finish: Callable[[Request], None] | None,
    replica: type[Replica] = Replica,
    rank: type[Rank] = Rank,
) -> Engine:
    """One replica of ``pool``, with that ``number``; its data ranks or batches in flight, if there
    are several, have that number and those that follow."""
    ranks = pool.deployment.layout.data
    if pool.deployment.layout.pipeline > 1:
        pipelined = make_replica_scheduler(pool)
        assert isinstance(pipelined, PipelinedPrefill)
        return Pipeline(env, number, pipelined, pool.cost, recorder, on_finish=on_finish)
    if ranks == 1:
        scheduler = make_replica_scheduler(pool)
        return replica(env, number, scheduler, pool.cost, recorder, leap=leap, on_finish=on_finish)
    parts = [
        rank(
            env,
            number + at,
            make_replica_scheduler(pool),
            pool.cost,
            recorder,
            leap=leap,
            on_finish=on_finish,
        )
        for at in range(ranks)
    ]
    return LockStep(env, parts, leap=leap)


def recorded(
    setup: Setup,
    traffic: OpenTraffic | ClosedTraffic,
    recorder: Recorder,
    *,
    end: float,
    events: int,
    interrupted: bool,
    observed: bool = False,
) -> RunRecord:
    """What ``recorder`` has of ``traffic``, simulated or ``observed``, until ``end`` (s): as the
    metrics want it, the rest as ``RunRecord`` has it."""
    return RunRecord(
        scenario=setup.scenario,
        pools=setup.pools,
        plans=recorder.plan_rows(),
        requests=recorder.request_rows(),
        gaps=recorder.gap_rows(),
        reasons=recorder.reasons,
        end=end,
        offered=traffic.total,
        events=events,
        interrupted=interrupted,
        traffic_notes=traffic.notes if isinstance(traffic, OpenTraffic) else (),
        classes=traffic.classes,
        trail=recorder.trail_rows(),
        observed=observed,
    )


def _run(env: simpy.Environment, fleet: Fleet, horizon: float, stop: Stop) -> bool:
    """Run until nothing is left to do, or until ``horizon``; True if the user interrupted."""
    run(env, horizon, stop)
    # clients that wait for answers, and batches that wait for more clients: let those go
    while env.peek() == math.inf and (left := fleet.outstanding) and not stop.requested:
        before = (left, fleet.issued)
        fleet.flush()
        run(env, horizon, stop)
        nothing_runs = env.peek() == math.inf and not stop.requested
        if nothing_runs and (fleet.outstanding, fleet.issued) == before:
            raise InfersimError(f"the scheduler is stuck: {left} requests wait, nothing runs")
    return stop.requested
