"""Serves a scenario with vLLM: its V1 engine, in this process, a step at a time.

Traffic, prompts and the record are those of the reference engine; batches, memory and kernels are
vLLM's own. Weights are random, of the model's shape.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, Literal

from calibrate.device import Device
from calibrate.engine.arrivals import source
from calibrate.engine.loop import Clock, Progress, RunLimits, WallClock
from calibrate.engine.observed import EngineFacts, Observed
from calibrate.engine.run import EnginePrompts
from calibrate.observers import lazy_vllm
from calibrate.observers.engine_loop import EngineLoop
from calibrate.observers.vllm_engine import Arriving, WholeEngine
from calibrate.observers.vllm_loop import VllmSteps
from calibrate.observers.vllm_settings import NULL_BLOCKS, Wanted, wanted
from sim import catalog
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.pools import make_replica_scheduler
from sim.request import Refusal, Request
from sim.scenario import Scenario
from sim.setup import Setup, prepare
from sim.simulation import Ended, recorded
from sim.specs.precision import precision_bytes
from sim.units import show_bytes
from sim.workload import build

ENGINE = "vllm"
"""The catalogue's name of it. In process it has no front end."""


def observe(
    scenario: Scenario,
    device: Device,
    *,
    precision: str | None = None,
    sampling: Literal["greedy", "random"] = "greedy",
    clock: Clock | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Serve the scenario's traffic with vLLM on ``device``, request by request as it arrives.

    Prompts are random tokens under the scenario's seed, outputs exactly as long as the traffic
    says. ``precision`` overrides the scenario's. An interrupt ends the run after the iteration in
    flight. UsageError where vLLM is not installed, does not support what the scenario says, or does
    not start with it.
    """
    setup = prepare(scenario)
    asked = wanted(setup, device.facts, precision)
    lazy_vllm.module("vllm")
    _check_first(device)
    traffic = build(scenario, scenario.seed)
    _check_memory(setup, asked, device)
    engine = _start(setup, asked, sampling)
    try:
        setup = _as_it_is(setup, engine)
        _warm_up(engine, asked)
        device.synchronise()
        gc.collect()
        with Stop() if stop is None else nullcontext(stop) as heeded:
            clock = clock or WallClock()
            loop = EngineLoop(
                VllmSteps(engine, clock.now, setup.only.capacity),
                source(traffic),
                clock,
                prompt=EnginePrompts(setup.only.deployment.model.vocab_size, scenario.seed),
                refusal=_refusal(setup, engine),
                limits=RunLimits.of(scenario, heeded, progress),
            )
            end = loop.run()
        log = loop.ledger.log
        return Observed(
            record=recorded(
                setup,
                traffic,
                log.recorder,
                Ended(end, len(log.iterations), loop.interrupted),
                observed=True,
            ),
            iterations=log.iterations,
            token_times=log.token_times(),
            answers=loop.ledger.answers,
            facts=device.facts,
            precision=asked.precision,
            attention=engine.attention(),
            sampling=sampling,
            engine=EngineFacts("vLLM", lazy_vllm.version(), _settings(asked, setup)),
        )
    finally:
        engine.close()


def _check_first(device: Device) -> None:
    """Raise UsageError for any GPU but the first."""
    if device.index:
        raise UsageError(
            "--engine vllm: runs on the first GPU only; choose it with CUDA_VISIBLE_DEVICES"
        )


def _check_memory(setup: Setup, asked: Wanted, device: Device) -> None:
    """Raise UsageError if weights and the blocks asked for are more than the device has free: on a
    CPU nothing else would say so before the system ends the process."""
    spec, settings = setup.only.deployment.model, asked.settings
    weights = spec.parameters * precision_bytes(asked.precision)
    tokens = (settings.num_gpu_blocks or 0) * settings.block_size
    cache = tokens * spec.kv_bytes_per_token(asked.precision)
    free = device.free_memory()
    if weights + cache > free:
        raise UsageError(
            f"{spec.name} takes {show_bytes(weights)} and the KV cache {show_bytes(cache)}, but "
            f"{device.facts.name} has {show_bytes(free)} free; lower kv_cache.num_gpu_blocks, or "
            "choose a smaller model"
        )


def _start(setup: Setup, asked: Wanted, sampling: str) -> WholeEngine:
    """The engine; UsageError with its own words if it does not start."""
    model = setup.only.deployment.model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what its modules say to their authors
            return WholeEngine(model, asked.settings, sampling=sampling, **asked.arguments)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"--engine vllm: vLLM does not start: {reason}") from None


def _as_it_is(setup: Setup, engine: WholeEngine) -> Setup:
    """``setup`` with the blocks that the engine really has, and with its overheads except the
    front end."""
    spec = replace(catalog.engine(ENGINE).without_front_end(), null_blocks=NULL_BLOCKS)
    memory = replace(
        setup.only.capacity,
        num_gpu_blocks=engine.num_gpu_blocks,
        null_blocks=NULL_BLOCKS,
        given=True,
    )
    return setup.each(lambda pool: replace(pool.with_engine(spec), capacity=memory))


def _refusal(setup: Setup, engine: WholeEngine) -> Callable[[Request], str | None]:
    """Why a request can never be served, as the simulator says it; vLLM would ask itself the same
    with an error, or never."""
    scheduler, longest = make_replica_scheduler(setup.only), engine.max_model_len

    def refusal(request: Request) -> str | None:
        reason = scheduler.refusal(request)
        if reason is None and request.prompt_tokens + request.output_tokens > longest:
            reason = Refusal.TOO_LARGE
        return reason

    return refusal


def _warm_up(engine: WholeEngine, asked: Wanted) -> None:
    """A few requests that are not counted, so that the first real one does not pay for the
    one-time work of libraries."""
    settings = asked.settings
    for number, tokens in enumerate((1, 8, settings.max_num_batched_tokens)):
        prompt = [1] * min(tokens, settings.max_model_len // 2)
        engine.add(Arriving(-1 - number, prompt, 2))
        while engine.busy():
            engine.step()


def _settings(asked: Wanted, setup: Setup) -> dict[str, Any]:
    """The settings of the engine for the manifest."""
    return {
        **asdict(asked.settings),
        **asked.arguments,
        "num_gpu_blocks": setup.only.capacity.num_gpu_blocks,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
