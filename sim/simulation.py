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

import numpy as np
import simpy
from numpy.typing import NDArray

from sim import catalog
from sim.capacity import Capacity, capacity
from sim.clock import Stop, run
from sim.cost import CostModel, Deployment
from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.fleet import Fleet, Progress, make_fleet
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.metrics.own import load_metrics
from sim.metrics.run_record import RunRecord
from sim.recorder import Recorder
from sim.replica import Replica
from sim.request import Request
from sim.results import Result
from sim.rng import repetition_seed
from sim.routers import make_router, router_class
from sim.scenario import AnyScenario, Scenario, as_scenario
from sim.schedulers import Limits, Scheduler, make_scheduler, scheduler_class
from sim.schedulers.orders import make_order
from sim.units import show_bytes
from sim.workload import ClosedTraffic, OpenTraffic, build

Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a scenario comes to before any request arrives."""

    scenario: Scenario
    deployment: Deployment
    limits: Limits
    capacity: Capacity


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
    pool, base = scenario.fleet[0], scenario.base
    engine, assume = catalog.engine(scenario.engine, base), scenario.assume
    try:
        deployment = Deployment(
            model=catalog.model(scenario.model, base),
            gpu=catalog.gpu(pool.gpu, base, engine.kernels).scaled(
                assume.memory, assume.bandwidth, assume.compute, assume.link
            ),
            engine=engine.scaled(assume.host_time),
            weights=scenario.precision.weights,
            activations=scenario.precision.activations,
            kv_cache=scenario.precision.kv_cache,
            tensor_parallel=pool.tensor_parallel,
            kernel_time=assume.kernel_time,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    longest = deployment.model.max_position_embeddings
    wanted = scenario.max_model_len or longest
    if wanted > longest and not scenario.allow_long_max_model_len:
        raise UsageError(
            f"max_model_len: {wanted:,} tokens are more than the {longest:,} that "
            f"{deployment.model.name} was made for"
        )
    knobs, kv = scenario.scheduler, scenario.kv_cache
    limits = Limits(
        max_num_seqs=knobs.max_num_seqs,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        max_model_len=wanted,
        scheduler_reserve_full_isl=knobs.scheduler_reserve_full_isl,
        batch_timeout=knobs.batch_timeout,
        long_prefill_token_threshold=knobs.long_prefill_token_threshold or 0,
    )
    memory = capacity(
        deployment,
        block_size=kv.block_size,
        gpu_memory_utilization=kv.gpu_memory_utilization,
        num_gpu_blocks=kv.num_gpu_blocks,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        scale=assume.kv_blocks,
    )
    if memory.usable_blocks == 0:
        raise InfeasibleError(_does_not_fit(deployment, memory))
    return Setup(scenario, deployment, limits, memory)


def _check_own_parts(scenario: Scenario) -> None:
    """Raise UsageError for a part of one's own that cannot be loaded, before any work is done."""
    folders = scenario.folders
    scheduler_class(scenario.scheduler.batching, folders=folders)
    make_order(scenario.scheduler.order, folders)
    router_class(scenario.router, folders)
    load_metrics(scenario.metrics or (), folders)


def _does_not_fit(d: Deployment, memory: Capacity) -> str:
    if memory.given:
        return (
            f"num_gpu_blocks: {memory.num_gpu_blocks} leaves no block for requests, since "
            f"{d.engine.name} keeps {memory.null_blocks} for itself"
        )
    gpus = "GPU" if d.tensor_parallel == 1 else "GPUs"
    return (
        f"{d.model.name} does not fit on {d.tensor_parallel} {d.gpu.name} {gpus}: of "
        f"{show_bytes(memory.budget)} that the engine may use on each, "
        f"{show_bytes(memory.weights)} are weights, {show_bytes(memory.activations)} activations "
        f"and {show_bytes(memory.reserve)} reserve, and no KV block is left; use more GPUs "
        "(tensor_parallel), a larger one, or a lower precision of the weights"
    )


def is_random(scenario: Scenario) -> bool:
    """Whether anything in a run depends on the seed."""
    workload = scenario.workload
    if scenario.fleet[0].replicas > 1 and router_class(scenario.router, scenario.folders).draws:
        return True
    if sum(item.share is not None for item in workload.classes or ()) > 1:
        return True
    if workload.trace is not None:
        return workload.trace.spread is not None or not workload.trace.overlay.is_integer()
    laws = (workload.arrivals, workload.prompt_tokens, workload.output_tokens, workload.lengths)
    kinds = {law.kind for law in laws if law is not None}
    return not kinds <= {"constant", "burst", "closed", "fixed"}


def make_allocator(setup: Setup) -> Allocator:
    """An empty KV cache of one replica."""
    memory = setup.capacity
    if setup.scenario.kv_cache.allocator == "contiguous":
        tokens, slab = memory.usable_blocks * memory.block_size, setup.limits.max_model_len
        if tokens < slab:
            raise InfeasibleError(
                f"contiguous allocation reserves max_model_len ({slab:,} tokens) for each request, "
                f"but the KV cache holds {tokens:,}; lower max_model_len"
            )
        return ContiguousAllocator(tokens, slab)
    return PagedAllocator(memory.usable_blocks, memory.block_size)


def make_replica_scheduler(setup: Setup) -> Scheduler:
    """The scheduler of one replica, with its memory."""
    knobs = setup.scenario.scheduler
    return make_scheduler(
        knobs.batching,
        setup.limits,
        make_allocator(setup),
        chunked_prefill=knobs.chunked_prefill,
        order=knobs.order,
        folders=setup.scenario.folders,
    )


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
                setup = replace(setup, scenario=scenario.model_copy(update={"seed": seed}))
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
    return play(
        setup, traffic, CostModel(setup.deployment), leap=leaps, progress=progress, stop=stop
    )


def play(
    setup: Setup,
    traffic: OpenTraffic | ClosedTraffic,
    cost: CostModel,
    *,
    leap: bool,
    stop: Stop,
    progress: Progress | None = None,
) -> RunRecord:
    """One run, from the first arrival to the last token: ``traffic``, whatever the scenario says of
    it, with the iteration times of ``cost``."""
    scenario = setup.scenario
    env, recorder = simpy.Environment(), Recorder()

    def make_replica(index: int, on_finish: Callable[[Request], None] | None) -> Replica:
        scheduler = make_replica_scheduler(setup)
        return Replica(env, index, scheduler, cost, recorder, leap=leap, on_finish=on_finish)

    fleet = make_fleet(
        env,
        traffic,
        make_router(scenario.router, scenario.seed, scenario.folders),
        recorder,
        make_replica,
        replicas=scenario.fleet[0].replicas,
        front_end=setup.deployment.engine.front_end,
        progress=progress,
    )
    horizon = math.inf if scenario.run.horizon is None else scenario.run.horizon
    interrupted = _run(env, fleet, horizon, stop)
    end = env.now if interrupted or horizon == math.inf else horizon
    for replica in fleet.replicas:
        for request, generated in replica.stop(end):
            recorder.leave_unfinished(request, replica.index, generated)
        replica.check_integrity()
    record = recorded(
        setup,
        traffic,
        recorder,
        cost,
        end=end,
        events=next(env._eid),
        interrupted=interrupted,
        trail=recorder.trail_rows(),
    )
    assert len(record.requests) == fleet.issued, (
        "every request is completed, rejected or unfinished"
    )
    return record


def recorded(
    setup: Setup,
    traffic: OpenTraffic | ClosedTraffic,
    recorder: Recorder,
    cost: CostModel,
    *,
    end: float,
    events: int,
    interrupted: bool,
    trail: tuple[Rows, Rows] | None = None,
) -> RunRecord:
    """What ``recorder`` has of ``traffic``, simulated or real, until ``end`` (s): as the metrics
    want it, the rest as ``RunRecord`` has it."""
    return RunRecord(
        scenario=setup.scenario,
        deployment=setup.deployment,
        cost=cost,
        capacity=setup.capacity,
        limits=setup.limits,
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
        trail=trail,
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
