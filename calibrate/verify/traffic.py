"""Defines the traffic of a verification: three traces, each under three disciplines.

A burst (all at once) shows throughput, a closed loop a steady batch, Poisson arrivals below the
knee what a user sees. Seconds and tokens.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from calibrate.engine.loop import Clock, CpuClock, WallClock
from sim import catalog
from sim.memory.groups import group_size
from sim.scenario import Scenario, load_scenario
from sim.schedulers import POLICIES
from sim.simulation import simulate
from sim.specs.window import Window

TRACES = ("burst", "closed", "poisson")
BATCHINGS = tuple(POLICIES)

BLOCK_SIZE = 16

LOAD = 0.6
"""Share of the slowest discipline's throughput at which Poisson requests come: below the knee, so
that the noise of the machine does not determine the length of the queue."""

LEAST_BATCHES = 3
"""Full batches that a run has at least."""

PREPARING = 0.5
"""Seconds from the call of a run to its first request: the model, memory, a first pass."""

ANCHOR_TOKENS = 16
"""Tokens of the anchor's prompt, and of its answer."""


@dataclass(frozen=True, slots=True)
class TrafficSetting:
    """What is run: a model in one precision, batches of up to ``batch`` requests, iterations of up
    to ``chunk`` tokens, lengths drawn evenly from ``prompt`` and ``output``; runs of ``seconds`` at
    most, and ``total`` seconds for everything, infinite where nothing limits it. With ``cpu_time``
    the engine is timed by the processor time of its one thread, as calibration is."""

    model: str
    precision: str
    batch: int
    chunk: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    seconds: float
    repeats: int
    total: float = math.inf
    seed: int = 42
    cpu_time: bool = False

    def clock(self) -> Clock:
        """A clock for one run of the engine."""
        return CpuClock() if self.cpu_time else WallClock()

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence there may be."""
        return self.prompt[1] + self.output[1]

    def document(self) -> dict[str, Any]:
        """The setting as JSON."""
        bounds = {"prompt": list(self.prompt), "output": list(self.output)}
        return asdict(self) | bounds | {"total": self.total if self.total < math.inf else None}


@dataclass(frozen=True, slots=True)
class VerifyTrace:
    """One trace: its arrivals as a scenario has them, and how many requests there are."""

    name: str
    arrivals: Mapping[str, Any]
    requests: int


def scenario(
    setting: TrafficSetting, trace: VerifyTrace, batching: str, gpu: Path | str, engine: Path | str
) -> Scenario:
    """``trace`` under ``batching``, with enough memory that no request is ever preempted: whole
    sequences in each group of layers."""
    blocks = setting.batch * -(-setting.longest // BLOCK_SIZE) * _groups(setting.model)
    return load_scenario(
        {
            "name": f"{trace.name}-{batching}",
            "seed": setting.seed,
            "model": setting.model,
            "precision": dict.fromkeys(("weights", "activations", "kv_cache"), setting.precision),
            "fleet": {"gpu": str(gpu)},
            "engine": str(engine),
            "scheduler": {
                "batching": batching,
                "max_num_seqs": setting.batch,
                "max_num_batched_tokens": setting.chunk,
            },
            "kv_cache": {"num_gpu_blocks": blocks, "block_size": BLOCK_SIZE},
            "max_model_len": setting.longest,
            "workload": {
                "arrivals": dict(trace.arrivals),
                "prompt_tokens": _uniform(setting.prompt),
                "output_tokens": _uniform(setting.output),
            },
            "run": {"requests": trace.requests},
        }
    )


def _groups(name: str) -> int:
    """Groups of layers that take blocks of their own (``sim.memory.groups``)."""
    model = catalog.model(name)
    if not model.windows:
        return 1
    counts: Counter[Window | None] = Counter()
    for group in model.layers:
        counts[group.attention.window] += group.count
    size = group_size(counts.values())
    return sum(-(-count // size) for count in counts.values())


def trace_of(name: str, setting: TrafficSetting, gpu: Path, engine: Path) -> VerifyTrace:
    """The shortest useful trace of that name; where requests come by the clock, at a rate below the
    knee by the predictions themselves."""
    few = LEAST_BATCHES * setting.batch
    if name == "poisson":
        probe = VerifyTrace("probe", {"kind": "burst"}, few)
        rates = [
            float(_summary(setting, probe, batching, gpu, engine)["request_throughput"])
            for batching in BATCHINGS
        ]
        return VerifyTrace(name, {"kind": "poisson", "rate": LOAD * min(rates)}, few)
    arrivals: dict[str, Any] = {"kind": name}
    if name == "closed":
        arrivals["concurrency"] = setting.batch
    return VerifyTrace(name, arrivals, few)


def longer(trace: VerifyTrace, times: float) -> VerifyTrace:
    """``trace`` with that many times the requests, and no fewer than it has."""
    return replace(trace, requests=max(trace.requests, round(times * trace.requests)))


def predicted(
    setting: TrafficSetting, trace: VerifyTrace, batchings: Sequence[str], gpu: Path, engine: Path
) -> float:
    """Seconds of a run of ``trace`` by prediction, the mean of the disciplines, and of what comes
    before its first request."""
    ends = (_summary(setting, trace, name, gpu, engine)["duration"] for name in batchings)
    return PREPARING + fmean(float(end) for end in ends)


def _summary(
    setting: TrafficSetting, trace: VerifyTrace, batching: str, gpu: Path, engine: Path
) -> Mapping[str, Any]:
    return simulate(scenario(setting, trace, batching, gpu, engine)).summary


def anchor(setting: TrafficSetting, gpu: Path | str, engine: Path | str) -> Scenario:
    """One short request alone, whose decodes are timed before and after everything else."""
    alone = VerifyTrace("anchor", {"kind": "burst"}, 1)
    short = {
        f"workload.{name}": {"kind": "fixed", "value": min(ANCHOR_TOKENS, most)}
        for name, most in (
            ("prompt_tokens", setting.prompt[1]),
            ("output_tokens", setting.output[1]),
        )
    }
    return scenario(setting, alone, "continuous", gpu, engine).override(short)


SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1408,
    "vocab_size": 16000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
"""A made-up model of 31 million parameters: two cores compute a token of a batch in some 20 ms, so
that a run of three full batches takes seconds."""


def default_model(device: str, folder: Path) -> str:
    """The default model: one that finishes in time on such a device."""
    if device.strip().lower() != "cpu":
        return "llama-3.2-1b"
    path = folder / "model.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(SMALL, indent=2) + "\n", encoding="utf-8")
    return str(path)


def absolute(model: str) -> str:
    """``model`` as any working directory understands it; UsageError if there is no such model."""
    catalog.model(model)
    return model if catalog.checkpoint(model) else str(Path(model).absolute())


def _uniform(bounds: tuple[int, int]) -> dict[str, Any]:
    return {"kind": "uniform", "low": bounds[0], "high": bounds[1]}
