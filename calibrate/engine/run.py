"""Puts the engine together, top-down as the data flows: ``run(scenario, device)``.

The scenario's traffic, scheduler and memory are those of the simulator; only time is real.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np

from calibrate.device import KEPT, LARGE, Device
from calibrate.engine.arrivals import source
from calibrate.engine.asked import no_prefixes, one_precision, refuse, single
from calibrate.engine.attention_cuda import choose
from calibrate.engine.cache import cache_bytes
from calibrate.engine.drafting import drafting_of, undraftable
from calibrate.engine.executor import Draw, EngineExecutor, greedy
from calibrate.engine.graphs import CudaCapture
from calibrate.engine.loop import Clock, Loop, Progress, RunLimits, WallClock
from calibrate.engine.model import Transformer
from calibrate.engine.observed import Observed
from calibrate.engine.places import groups_of, kv_places
from calibrate.engine.verified import verify
from calibrate.lazy_torch import torch
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.memory.capacity import activation_bytes
from sim.pools import make_replica_scheduler
from sim.request import Request
from sim.scenario import Scenario
from sim.schedulers import Scheduler
from sim.setup import Setup, prepare
from sim.simulation import Ended, recorded
from sim.specs.model import ModelSpec
from sim.units import show_bytes
from sim.workload import build

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
"""The engine's number formats, and PyTorch's names for them; fp64 is for comparing arithmetic."""

ENGINE = "reference"
"""The catalogue's name of this engine, whatever engine the scenario names: it has no front end,
and holds no block back."""

WORKSPACE = 256 * 2**20
"""Bytes allowed for activations, in addition to weights and cache."""


def run(
    scenario: Scenario,
    device: Device,
    *,
    precision: str | None = None,
    sampling: Literal["greedy", "random"] = "greedy",
    clock: Clock | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Serve the scenario's traffic on ``device``, request by request as it arrives.

    Prompts are random tokens under the scenario's seed, outputs exactly as long as the traffic
    says. ``precision`` overrides the scenario's. An interrupt ends the run after the iteration in
    flight. UsageError for what the engine cannot do, or does not fit on the device.
    """
    setup = prepare(scenario.override({"engine": ENGINE}))
    refuse([*single(setup, "the engine runs"), no_prefixes(setup), *undraftable(setup, sampling)])
    name = precision or one_precision(setup, "the engine computes")
    if name not in DTYPES:
        raise UsageError(f"the engine computes in {', '.join(DTYPES)}, not in {name}")
    scheduler = make_replica_scheduler(setup.only)
    if (speculation := setup.only.deployment.speculation) is not None:
        verify(scheduler, speculation)
    traffic = build(scenario, scenario.seed)
    executor = _executor(setup, scheduler, device, getattr(torch, DTYPES[name]), sampling)
    executor.warm_up()
    if device.facts.kind == "cpu":
        _touch_memory(setup)
    device.synchronise()
    gc.collect()
    with Stop() if stop is None else nullcontext(stop) as heeded:
        loop = Loop(
            scheduler,
            executor,
            source(traffic),
            clock or WallClock(),
            RunLimits.of(scenario, heeded, progress),
        )
        end = loop.run()
    return Observed(
        record=recorded(
            setup,
            traffic,
            loop.log.recorder,
            Ended(end, len(loop.log.iterations), loop.interrupted),
            observed=True,
        ),
        iterations=loop.log.iterations,
        token_times=loop.log.token_times(),
        answers=executor.sequences.answers,
        facts=device.facts,
        precision=name,
        attention=executor.attention.name,
        sampling=sampling,
    )


def _executor(
    setup: Setup, scheduler: Scheduler, device: Device, dtype: Any, sampling: str
) -> EngineExecutor:
    """Weights and an empty cache on the device; UsageError if they do not fit."""
    spec, seed = setup.only.deployment.model, setup.scenario.seed
    drafter = setup.only.deployment.drafter
    specs = [spec] if drafter is None else [spec, drafter.deployment.model]
    _check_memory(specs, scheduler, device, dtype.itemsize)
    model = Transformer(
        spec,
        dtype=dtype,
        device=device.torch_name,
        seed=seed,
        max_positions=setup.only.limits.max_model_len,
    )
    attention = choose(spec, dtype, device.torch_name)
    return EngineExecutor(
        scheduler,
        model,
        attention,
        EnginePrompts(spec.vocab_size, seed),
        sampler=greedy if sampling == "greedy" else Draw(device.torch_name, seed),
        capture=CudaCapture() if attention.replayable and device.facts.kind == "cuda" else None,
        drafting=drafting_of(setup.only.deployment, scheduler, model, seed),
    )


def _touch_memory(setup: Setup) -> None:
    """Allocate the pages of the largest pass, or most of them, before the first request: the
    device keeps them, and the system takes a while to provide them."""
    pool = setup.only
    limits, tokens = pool.limits, pool.limits.max_num_batched_tokens
    if "max_num_batched_tokens" not in pool.policy.knobs:
        tokens = max(tokens, limits.max_num_seqs * limits.max_model_len)
    size = min(activation_bytes(setup.only.deployment, tokens, limits.max_num_seqs), KEPT / 2)
    pieces = max(1, math.ceil(size / (LARGE / 2)))  # small enough to be kept
    held = [torch.zeros(int(size / pieces), dtype=torch.uint8) for _ in range(pieces)]
    held.clear()


class EnginePrompts:
    """Random prompts: the same for a request whatever the scheduler, and different for each."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._vocabulary, self._seed = vocabulary, seed

    def __call__(self, request: Request) -> list[int]:
        """The tokens of a request; the first word of the vocabulary, which padding is made of, is
        in none."""
        draw = np.random.default_rng((self._seed, request.id)).integers
        tokens: list[int] = draw(1, self._vocabulary, request.prompt_tokens).tolist()
        return tokens


def _check_memory(
    specs: Sequence[ModelSpec], scheduler: Scheduler, device: Device, element: int
) -> None:
    """Raise UsageError if weights and cache of ``specs``, the target first, take more than the
    device has free."""
    spec, kv = specs[0], scheduler.kv
    weights = sum(each.parameters for each in specs) * element
    places = [kv_places(each, groups_of(kv)) for each in specs]
    cache = sum(cache_bytes(each, kv.num_blocks, kv.block_size, element) for each in places)
    free = device.free_memory()
    if weights + cache + WORKSPACE > free:
        raise UsageError(
            f"{spec.name} takes {show_bytes(weights)} and the KV cache {show_bytes(cache)}, but "
            f"{device.facts.name} has {show_bytes(free)} free; give kv_cache.num_gpu_blocks, or a "
            "smaller model"
        )
