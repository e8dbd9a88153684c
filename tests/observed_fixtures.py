"""Runs whose truth is known: the engine's own loop and log on a clock that a cost model moves.

What is written is what ``infersim observe`` writes; only the time is made up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.device import DeviceFacts
from calibrate.engine.arrivals import source
from calibrate.engine.batch import Span
from calibrate.engine.cache import BlockTables
from calibrate.engine.executor import Pass
from calibrate.engine.loop import Loop
from calibrate.engine.observed import Observed
from calibrate.engine.record import ObservedResult
from calibrate.engine.sequences import follow
from calibrate.validation.prediction import Variant
from reports.frame.run_directory import Frames
from sim.cost import CostModel
from sim.iteration import Batch
from sim.metrics.record.run_record import RunRecord
from sim.pools import make_replica_scheduler
from sim.scenario import load_scenario
from sim.schedulers import Plan, Scheduler
from sim.setup import Setup, prepare
from sim.simulation import Ended, recorded
from sim.workload import build

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SCENARIO: dict[str, Any] = {
    "name": "known",
    "model": "./model.json",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "reference",
    "max_model_len": 4096,
    "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 512},
    "kv_cache": {"num_gpu_blocks": 2000},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "uniform", "low": 20, "high": 1500},
        "output_tokens": {"kind": "uniform", "low": 2, "high": 160},
    },
    "run": {"requests": 60},
}


FACTS: dict[str, Any] = {
    "kind": "cpu",
    "name": "Made-up device",
    "memory": 2**36,
    "units": 1,
    "cache": 2**20,
    "details": {"torch": "2.99"},
}


class VirtualClock:
    """Time that passes when somebody waits, or says how long something took."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wait(self, until: float) -> None:
        self.time = max(self.time, until)


class PricedExecutor:
    """Computes nothing; a plan takes what the cost model asks, times a draw of noise."""

    def __init__(
        self, scheduler: Scheduler, cost: CostModel, clock: VirtualClock, noise: Callable[[], float]
    ) -> None:
        tables = BlockTables(scheduler.kv.num_blocks, scheduler.kv.block_size)
        self.sequences = follow(scheduler, tables, lambda request: [1] * request.prompt_tokens)
        self._cost, self._clock, self._noise = cost, clock, noise

    def run(self, plan: Plan) -> Pass:
        spans: list[Span] = self.sequences.follow(plan)
        batch = Batch(plan.sequences, plan.context, plan.chunks, plan.admitted)
        took = self._cost.seconds(batch) * self._noise()
        self._clock.time += took
        chosen = [span for span in spans if span.samples]
        served = self.sequences.deliver(chosen, [2] * len(chosen))
        return Pass(tuple(spans), served, 0.0, took)


def write_scenario(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """The scenario with changes, beside the model it names; JSON is YAML too."""
    (folder / "model.json").write_text(json.dumps(CONFIG))
    path = folder / "known.yaml"
    path.write_text(json.dumps(SCENARIO))
    path.write_text(load_scenario(path).override(changes or {}).to_yaml())
    return path


def observe(
    scenario_file: Path,
    directory: Path,
    truth: Variant | None = None,
    *,
    noise: float = 0.0,
    seed: int = 1,
) -> Path:
    """The directory of an "observed" run, in which ``truth`` was other than the scenario says.

    ``noise`` is the relative standard deviation of iterations.
    """
    scenario = load_scenario(scenario_file)
    truth = truth or Variant()
    setup = truth.of(prepare(scenario))
    scheduler = make_replica_scheduler(setup.only)
    clock, random = VirtualClock(), np.random.default_rng(seed)
    executor = PricedExecutor(
        scheduler,
        setup.only.cost,
        clock,
        lambda: float(np.exp(random.normal(0.0, noise))) if noise else 1.0,
    )
    traffic = build(scenario, scenario.seed)
    arriving = source(traffic)
    if truth.front_end:
        arriving = _Delayed(arriving, truth.front_end)
    loop = Loop(scheduler, executor, arriving, clock)  # type: ignore[arg-type]
    end = loop.run()
    record = _record(setup, loop, end, traffic)
    observed = Observed(
        record=record,
        iterations=loop.log.iterations,
        token_times=loop.log.token_times(),
        answers={},
        facts=DeviceFacts(**FACTS),
        precision="bf16",
        attention="none",
        sampling="greedy",
    )
    ObservedResult(observed).save(directory)
    if truth.front_end:  # so something stood in front
        path = directory / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"front_end": "server"}))
    return directory


class _Delayed:
    """A source whose requests reach the engine some time after they were sent."""

    def __init__(self, inner: Any, delay: float) -> None:
        self._inner, self._delay = inner, delay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def next_at(self) -> float:
        return float(self._inner.next_at()) + self._delay


def _record(setup: Setup, loop: Loop, end: float, traffic: Any) -> RunRecord:
    return recorded(
        setup,
        traffic,
        loop.log.recorder,
        Ended(end, len(loop.log.iterations), False),
    )


def made_up_validation(folder: Path) -> tuple[dict[str, Any], Frames, Frames, dict[str, Any]]:
    """What ``infersim validate-run`` gathers of a run whose iterations take 3 ms longer than
    predicted: the document, the tables of both sides and the series."""
    from calibrate.validation.document import Validation
    from calibrate.validation.observed import read_observed
    from calibrate.validation.prediction import question
    from calibrate.validation.series import series

    truth = Variant(per_iteration=3e-3)
    run = read_observed(observe(write_scenario(folder), folder / "observed", truth, noise=0.02))
    validation = Validation(run, [], question(run, None, [], None))
    result = validation.predicted.result
    predicted = Frames(result.requests, result.timeseries)
    sides = Frames(run.requests, run.timeseries), predicted
    return validation.document, *sides, series(validation)
