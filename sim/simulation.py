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
from typing import TYPE_CHECKING, Any

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
from sim.errors import InfersimError, UsageError
from sim.loop.attempt_rows import AttemptRows
from sim.loop.client_replicas import withdrawable
from sim.loop.clock import Stop, run
from sim.loop.engines import Engine
from sim.loop.fleet import Fleet, Progress
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.session_rows import SessionRows
from sim.loop.sessions import make_any_fleet
from sim.metrics.own import load_metrics
from sim.own import is_own, own_mistakes
from sim.pools import (
    PreparedPool,
    front_end_of,
    per_prompt_token_of,
    prepare_pool,
)
from sim.request import Request
from sim.rng import repetition_seed
from sim.routers import router_class
from sim.scenario import AnyScenario, Scenario, as_scenario
from sim.scenario.checks.table import check_models, check_policies, check_router
from sim.scenario.pools import only
from sim.schedulers import scheduler_class
from sim.schedulers.orders import make_order
from sim.undisturbed import check_undisturbed
from sim.workload import AnyTraffic, OpenTraffic, SessionTraffic, build

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord
    from sim.results.result import Result


@dataclass(frozen=True, slots=True)
class Setup:
    """What a scenario comes to before any request arrives."""

    scenario: Scenario
    pools: tuple[PreparedPool, ...]

    @property
    def only(self) -> PreparedPool:
        """The pool of a fleet that has one; UsageError where there are several, or where it is
        scaled while it serves."""
        only(self.pools)
        (pool,) = self.steady
        return pool

    @property
    def steady(self) -> tuple[PreparedPool, ...]:
        """The pools of a fleet that stays as it is, and whose clients wait; UsageError of any
        other: what it holds depends on how long it is watched."""
        check_undisturbed(self.scenario)
        return self.pools

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
    found: list[PreparedPool] = []
    for pool in scenario.pools:
        alike = next((each for each in found if pool.like(each.settings)), None)
        if alike is None:
            found.append(prepare_pool(scenario, pool))
        else:
            found.append(replace(alike, settings=pool))
    check_models(
        {
            pool.deployment.model.name: bool(
                pool.deployment.model.windows or pool.capacity.state_blocks
            )
            for pool in found
        }
    )
    return Setup(scenario, tuple(found))


def _check_own_parts(scenario: Scenario) -> None:
    """UsageError, before any work, for a part that cannot be loaded, and where it is asked for."""
    folders = scenario.folders
    for pool in scenario.pools:
        with scenario.blamed("scheduler.batching", pool.index):
            scheduler_class(pool.scheduler.batching, folders=folders)
        with scenario.blamed("scheduler.order", pool.index):
            make_order(pool.scheduler.order, folders)
    check_policies(scenario)
    with scenario.blamed("router"):
        kind = router_class(scenario.router, folders)
    check_router(scenario, kind)
    with scenario.blamed("metrics"):
        load_metrics(scenario.metrics or (), folders)


def is_random(scenario: Scenario) -> bool:  # noqa: PLR0911 - one question after the other
    """Whether anything in a run depends on the seed."""
    workload = scenario.workload
    if scenario.replicas > 1 and router_class(scenario.router, scenario.folders).draws:
        return True
    failures, patience = scenario.failures, scenario.patience
    if failures is not None and (failures.mtbf is not None or failures.in_flight.kind == "retry"):
        return True
    if patience.on_timeout.kind == "retry":
        return True
    if scenario.speculative is not None and any(0 < r < 1 for r in scenario.speculative.rates):
        return True
    if sum(item.share is not None for item in workload.classes or ()) > 1:
        return True
    if workload.trace is not None:
        return workload.trace.spread is not None or not workload.trace.overlay.is_integer()
    laws: list[Any] = [workload.arrivals, workload.prompt_tokens, workload.output_tokens]
    laws += [workload.lengths]
    if (sessions := workload.sessions) is not None:
        laws += [sessions.turns, sessions.think_time, sessions.tool_delay, sessions.branches]
        if sessions.tool_share not in (None, 1.0):
            return True
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
    from sim.results.result import Result  # noqa: PLC0415 - no metric before there are rows

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


def own_parts(scenario: Scenario) -> dict[str, str]:
    """The user's own parts that take part in a run of ``scenario``: what each is, by its text."""
    found = {scenario.router: "router"}
    for pool in scenario.pools:
        found |= {pool.scheduler.batching: "scheduler", pool.scheduler.order: "order"}
    return {text: noun for text, noun in found.items() if is_own(text)}


def own_code(scenario: Scenario) -> dict[str, str]:
    """All that ``scenario`` names of a user's own, metrics included, and what each is: preparing it
    imports their files, and so runs their code. Reading a scenario does not."""
    return own_parts(scenario) | dict.fromkeys(scenario.metrics or (), "metric")


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
    fleet.threads = make_threads(setup)
    fleet.per_prompt_token = per_prompt_token_of(setup.pools)
    fleet.admission = make_admission(env, setup)
    fleet.endpoints = make_endpoints(setup, fleet)
    horizon = math.inf if scenario.run.horizon is None else scenario.run.horizon
    # a run that ends at a time goes on until then, whatever is left to do
    total = traffic.total if horizon == math.inf else math.inf
    if clients is not None:
        clients.start(fleet, lambda place: make_replica(place, None), total)
    scaler = make_autoscaler(env, setup, fleet, recorder, total)
    steerer = None
    if scenario.steering is not None:
        assert clients is not None
        steerer = make_steerer(env, setup, fleet, clients)
    interrupted = _run(env, fleet, horizon, stop)
    end = env.now if interrupted or horizon == math.inf else horizon
    if clients is not None and horizon == math.inf and not interrupted:
        end = clients.ended
    if scaler is not None:
        scaler.finish(end)
    if steerer is not None:
        steerer.finish(end, recorder)
    end_run(fleet, recorder, end)
    record = recorded(
        setup,
        traffic,
        recorder,
        end=end,
        events=next(env._eid),
        interrupted=interrupted,
        sessions=fleet.session_rows,
        attempts=None if clients is None else clients.rows.rows(),
    )
    assert len(record.requests) == fleet.issued, (
        "every request is completed, rejected or unfinished"
    )
    recorder.forget()
    return record


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


def recorded(
    setup: Setup,
    traffic: AnyTraffic,
    recorder: Recorder,
    *,
    end: float,
    events: int,
    interrupted: bool,
    observed: bool = False,
    sessions: SessionRows | None = None,
    attempts: AttemptRows | None = None,
) -> RunRecord:
    """What ``recorder`` has of ``traffic``, simulated or ``observed``, until ``end`` (s): as the
    metrics want it, the rest as ``RunRecord`` has it."""
    from sim.metrics.run_record import RunRecord  # noqa: PLC0415 - as above

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
        end=end,
        offered=traffic.total,
        events=events,
        interrupted=interrupted,
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
