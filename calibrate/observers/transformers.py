"""Serves a scenario with Hugging Face transformers: continuous batching, or static batches.

Traffic, prompts and the record are those of the reference engine; batches, memory and kernels are
transformers' own. Weights are random, of the model's shape; no tokeniser, no network.

**Continuous batches** are those of its manager with the first-come-first-served scheduler: decodes,
then prompts begun, then new ones, in chunks of what is left of ``max_num_batched_tokens``, at most
``max_num_seqs`` requests. Unlike in vLLM, a prompt is admitted when its first chunk fits
(``scheduler_reserve_full_isl`` is not known), only one prompt is taken into a batch while less than
15 % of the blocks are free, and a request that finds no block is passed over until the newest of
those is computed again from the start.

Its attention on any device without flash-attention packages, ``paged|sdpa``, is **not paged in
cost**: it lays the keys and values of all requests of the batch side by side, repeats them for
every query head, and runs one dense masked attention over (sum of queries) x (sum of KV tokens). A
model that times each request's own context is far too fast for it. ``observe_by_request`` runs the
same manager with PyTorch's attention for each request instead.

**Static batches** (``scheduler.batching: static``) run ``generate`` over prompts padded in front,
with the simulator's own static scheduler forming the batches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

from calibrate.device import Device
from calibrate.engine.arrivals import source
from calibrate.engine.log import Log
from calibrate.engine.loop import Clock, Progress, RunLimits, WallClock
from calibrate.engine.observed import EngineFacts, Observed
from calibrate.engine.run import EnginePrompts
from calibrate.observers import lazy_transformers
from calibrate.observers.engine_loop import EngineLoop
from calibrate.observers.transformers_attention import BY_REQUEST, DENSE, NAMES, register
from calibrate.observers.transformers_engine import ContinuousBatches, make_model
from calibrate.observers.transformers_settings import TransformersSettings, check_memory, wanted
from calibrate.observers.transformers_static import STATIC, StaticBatches
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.pools import make_replica_scheduler
from sim.request import Refusal, Request
from sim.scenario import Scenario
from sim.schedulers import Static
from sim.setup import Setup, prepare
from sim.simulation import Ended, recorded
from sim.workload import AnyTraffic, build

ENGINE = "transformers"
"""The catalogue's name of it. It has no front end."""

Served = tuple[Log, dict[int, list[int]], float, bool]
"""The rows of a run, the answers, when it ended, and whether it was interrupted."""


def observe(
    scenario: Scenario,
    device: Device,
    *,
    precision: str | None = None,
    sampling: Literal["greedy", "random"] = "greedy",
    clock: Clock | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    attention: str = DENSE,
) -> Observed:
    """Serve the scenario's traffic with transformers on ``device``, request by request.

    Prompts are random tokens under the scenario's seed, outputs exactly as long as the traffic
    says. ``precision`` overrides the scenario's; ``attention`` is that of continuous batches. An
    interrupt ends the run after the iteration in flight. UsageError where transformers is not
    installed, or does not support what the scenario says.
    """
    setup = prepare(scenario.override({"engine": ENGINE}))
    settings = wanted(setup, precision)
    static = settings.batching == Static.name
    check_memory(setup, settings, device, masked=attention == DENSE)
    lazy_transformers.module("transformers")
    if not static:
        register()
    model = make_model(
        setup.only.deployment.model,
        settings.precision,
        device.torch_name,
        scenario.seed,
        STATIC if static else attention,
    )
    traffic = build(scenario, scenario.seed)
    with Stop() if stop is None else nullcontext(stop) as heeded:
        limits = RunLimits.of(scenario, heeded, progress)
        run = _Run(setup, settings, device, model, traffic, sampling, clock, limits)
        served = run.static() if static else run.continuous()
    log, answers, end, interrupted = served
    return Observed(
        record=recorded(
            setup.each(lambda pool: replace(pool, capacity=replace(pool.capacity, given=True))),
            traffic,
            log.recorder,
            Ended(end, len(log.iterations), interrupted),
            observed=True,
        ),
        iterations=log.iterations,
        token_times=log.token_times(),
        answers=answers,
        facts=device.facts,
        precision=settings.precision,
        attention=STATIC if static else NAMES[attention],
        sampling=sampling,
        engine=EngineFacts(ENGINE, lazy_transformers.version(), _told(settings, static)),
    )


def observe_by_request(
    scenario: Scenario,
    device: Device,
    *,
    precision: str | None = None,
    sampling: Literal["greedy", "random"] = "greedy",
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Observe a run with PyTorch's attention for each request of a continuous batch."""
    if scenario.only_pool.scheduler.batching == Static.name:
        raise UsageError(
            "scheduler.batching: static batches are padded, and attention runs over all of them at "
            "once; for them use --engine transformers"
        )
    return observe(
        scenario,
        device,
        precision=precision,
        sampling=sampling,
        stop=stop,
        progress=progress,
        attention=BY_REQUEST,
    )


class _Run:
    """One run of either kind."""

    def __init__(
        self,
        setup: Setup,
        settings: TransformersSettings,
        device: Device,
        model: Any,
        traffic: AnyTraffic,
        sampling: str,
        clock: Clock | None,
        limits: RunLimits,
    ) -> None:
        self._setup, self._settings, self._device = setup, settings, device
        self._model, self._traffic, self._sampling = model, traffic, sampling
        self._clock, self._limits = clock, limits
        self._prompts = EnginePrompts(setup.only.deployment.model.vocab_size, setup.scenario.seed)

    def continuous(self) -> Served:
        """With the manager of continuous batches."""
        clock = _Later(self._clock)
        engine = ContinuousBatches(self._model, self._settings, self._sampling, clock.now)
        _warm_up(engine, self._settings)
        loop = EngineLoop(
            engine,
            source(self._traffic),
            self._ready(clock),
            prompt=self._prompts,
            refusal=_refusal(self._setup, self._settings),
            limits=self._limits,
        )
        end = loop.run()
        engine.close()
        return loop.ledger.log, loop.ledger.answers, end, loop.interrupted

    def static(self) -> Served:
        """With padded batches of ``generate``."""
        clock = _Later(self._clock)
        batches = StaticBatches(
            make_replica_scheduler(self._setup.only),
            self._model,
            source(self._traffic),
            clock,
            prompt=self._prompts,
            sampling=self._sampling,
            limits=self._limits,
        )
        batches.warm_up()
        self._ready(clock)
        end = batches.run()
        return batches.log, batches.answers, end, batches.interrupted

    def _ready(self, clock: _Later) -> Clock:
        """Everything is warm: the run begins."""
        self._device.synchronise()
        gc.collect()
        clock.start()
        return clock


class _Later:
    """A clock that starts when everything is warm; until then it is 0."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock: Clock | None = None
        self._given = clock

    def start(self) -> None:
        """From now on time passes."""
        self._clock = self._given or WallClock()

    def now(self) -> float:
        """Seconds since the start."""
        return self._clock.now() if self._clock is not None else 0.0

    def wait(self, until: float) -> None:
        """Let time pass until ``until``, or less."""
        assert self._clock is not None
        self._clock.wait(until)


def _warm_up(engine: ContinuousBatches, settings: TransformersSettings) -> None:
    """A few requests that are not counted, so that the first real one does not pay for the
    one-time work of libraries."""
    assert settings.num_blocks is not None
    assert settings.block_size is not None
    room = (settings.num_blocks - 2) * settings.block_size
    for tokens in (1, 8, 64):
        if tokens < room:
            engine.add(Request(-tokens, 0.0, tokens, 2), [0] * tokens)
            while engine.busy():
                engine.step()


def _refusal(setup: Setup, settings: TransformersSettings) -> Callable[[Request], str | None]:
    """Why a request can never be served, in the simulator's words. A block more than the tokens
    need must be there: transformers takes it when a prompt ends with a block."""
    scheduler = make_replica_scheduler(setup.only)
    assert settings.num_blocks is not None
    assert settings.block_size is not None
    blocks, size = settings.num_blocks, settings.block_size

    def refusal(request: Request) -> str | None:
        reason = scheduler.refusal(request)
        if reason is None and (request.longest_sequence() + 1) // size + 1 > blocks:
            reason = Refusal.TOO_LARGE
        return reason

    return refusal


def _told(settings: TransformersSettings, static: bool) -> dict[str, Any]:
    """The settings of the engine for the manifest."""
    if static:
        return {
            "batching": "static",
            "driven_by": "generate, prompts padded in front",
            "batch_size": settings.max_requests_per_batch,
        }
    return {"batching": "continuous", **settings.continuous()}
