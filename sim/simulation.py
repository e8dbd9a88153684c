"""Provides ``simulate(scenario) -> RunResult``, where the parts are put together as the data flows.

Reads the catalogue and the traffic, builds the replicas, runs the event loop, and hands the
recorded rows to the metrics. Writes nothing, prints nothing; a run is a pure function of the
scenario.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import simpy

from sim.assembly import (
    CLIENT_KINDS,
    KINDS,
    make_admission,
    make_autoscaler,
    make_clients,
    make_endpoints,
    make_engine,
    make_handovers,
    make_recorder,
    make_steerer,
    make_threads,
    router_of,
)
from sim.errors import InfersimError
from sim.loop.attempt_rows import AttemptRows
from sim.loop.client_replicas import withdrawable
from sim.loop.clock import Stop, run
from sim.loop.engine import Engine
from sim.loop.fleet import Fleet, Progress
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.session_rows import SessionRows
from sim.loop.sessions import make_any_fleet
from sim.plugins import own_mistakes
from sim.pools import front_end_of, per_prompt_token_of
from sim.request import Request
from sim.rng import repetition_seed
from sim.scenario import AnyScenario, as_scenario
from sim.setup import Setup, own_parts, prepare
from sim.workload import AnyTraffic, OpenTraffic, SessionTraffic, build
from sim.workload.adapters import adapter_draw

if TYPE_CHECKING:
    from sim.metrics.record.run_record import RunRecord
    from sim.results.run_result import RunResult


def simulate(
    scenario: AnyScenario,
    *,
    leap: bool | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> RunResult:
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
    from sim.results.run_result import RunResult  # noqa: PLC0415 - no metric before there are rows

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
                further.append(RunResult(record).summaries[0])
            if heeded.requested:
                break
    return RunResult(first, further)


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
    traffic: AnyTraffic,
    *,
    leap: bool,
    stop: Stop,
    progress: Progress | None = None,
) -> RunRecord:
    """One run, from the first arrival to the last token: ``traffic``, whatever the scenario says of
    it, on the pools of ``setup``.

    Raises UsageError for a mistake in a part of one's own, with its file and line.
    """
    with own_mistakes(own_parts(setup.scenario), setup.scenario.folders):
        return _played(setup, traffic, leap, stop, progress)


def _played(
    setup: Setup, traffic: AnyTraffic, leap: bool, stop: Stop, progress: Progress | None
) -> RunRecord:
    scenario = setup.scenario
    env = simpy.Environment()
    recorder = make_recorder(setup)
    places = [(pool, number) for pool in setup.pools for number in pool.settings.engines]
    handovers = make_handovers(env, setup, recorder)
    clients = make_clients(env, setup, traffic, recorder)

    def make_replica(index: int, on_finish: Callable[[Request], None] | None) -> Engine:
        pool, first = places[index]
        if clients is not None:
            on_finish = clients.finished
        kinds = KINDS if clients is None else CLIENT_KINDS
        engine = make_engine(env, pool, first, recorder, kinds, leap=leap, on_finish=on_finish)
        if handovers is not None:
            assert not isinstance(engine, Pipeline)
            handovers.add(engine)
        return engine if clients is None else withdrawable(engine, clients)

    fleet = make_any_fleet(
        env,
        traffic,
        router_of(scenario),
        recorder,
        make_replica,
        replicas=len(places),
        front_end=front_end_of(setup.pools),
        progress=progress,
    )
    fleet.handovers, fleet.clients = handovers, clients
    _furnish(env, setup, fleet)
    horizon = math.inf if scenario.run.horizon is None else scenario.run.horizon
    # a run that ends at a time goes on until then, whatever is left to do
    total = traffic.total if horizon == math.inf else math.inf
    if clients is not None:
        clients.start(fleet, lambda place: make_replica(place, None), total)
    scaler = make_autoscaler(env, setup, fleet, recorder, total)
    steerer = None
    if scenario.steering is not None and clients is not None:
        steerer = make_steerer(env, setup, fleet, clients)
    interrupted = _run(env, fleet, horizon, stop)
    end = _end(env, fleet, horizon, interrupted)
    if scaler is not None:
        scaler.finish(end)
    if steerer is not None:
        steerer.finish(end, recorder)
    end_run(fleet, recorder, end)
    record = recorded(
        setup,
        traffic,
        recorder,
        Ended(end, next(env._eid), interrupted),
        sessions=fleet.session_rows,
        attempts=None if clients is None else clients.rows.rows(),
    )
    assert len(record.requests) == fleet.issued, "each is completed, rejected or unfinished"
    recorder.forget()
    return record


def _end(env: simpy.Environment, fleet: Fleet, horizon: float, interrupted: bool) -> float:
    """The time at which a run is over (s): with its last answer, unless it has a horizon."""
    if interrupted:
        return env.now
    if horizon != math.inf:
        return horizon
    return env.now if fleet.clients is None else fleet.clients.ended


def _furnish(env: simpy.Environment, setup: Setup, fleet: Fleet) -> None:
    """Give ``fleet`` the front end of its engine, its admission, endpoints and adapters."""
    fleet.threads = make_threads(setup)
    fleet.per_prompt_token = per_prompt_token_of(setup.pools)
    fleet.admission = make_admission(env, setup)
    fleet.endpoints = make_endpoints(setup, fleet)
    fleet.adapters = adapter_draw(setup.scenario)


def end_run(fleet: Fleet, recorder: Recorder, end: float) -> None:
    """Note which requests of ``fleet`` are unfinished at the ``end``, and check its memory."""
    clients, handovers = fleet.clients, fleet.handovers
    leave = recorder.leave_unfinished if clients is None else clients.unfinished
    for number, request, generated in handovers.unfinished() if handovers else ():
        leave(request, number, generated)
    for request in fleet.held:
        leave(request, -1, 0)
    for replica in fleet.replicas:
        for number, request, generated in replica.stop(end):
            leave(request, number, generated)
        replica.check_integrity()
    if clients is not None:
        clients.close()


class Ended(NamedTuple):
    """The end of a run: its time (s), the number of events so far, and whether it was stopped."""

    at: float
    events: int
    interrupted: bool


def recorded(
    setup: Setup,
    traffic: AnyTraffic,
    recorder: Recorder,
    ended: Ended,
    *,
    observed: bool = False,
    sessions: SessionRows | None = None,
    attempts: AttemptRows | None = None,
) -> RunRecord:
    """The record by ``recorder`` of ``traffic``, simulated or ``observed``, until it ``ended``: in
    the form for metrics, the rest as in ``RunRecord``."""
    from sim.metrics.record.run_record import RunRecord  # noqa: PLC0415 - as above

    plans, trail = recorder.plan_rows(), recorder.trail_rows()
    if attempts is not None:
        attempts, trail = attempts.of_last(plans, trail)
    return RunRecord(
        scenario=setup.scenario,
        pools=setup.pools,
        plans=plans,
        requests=recorder.request_rows(),
        gaps=recorder.gap_rows(),
        reasons=recorder.reasons,
        end=ended.at,
        offered=traffic.total,
        events=ended.events,
        interrupted=ended.interrupted,
        traffic_notes=tuple(traffic.notes)
        if isinstance(traffic, OpenTraffic | SessionTraffic)
        else (),
        classes=traffic.classes,
        trail=trail,
        observed=observed,
        moves=recorder.move_rows(),
        lookups=recorder.lookup_rows(),
        sessions=sessions,
        attempts=attempts,
        handed=recorder.handed_rows(),
        held=recorder.held_rows(),
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
