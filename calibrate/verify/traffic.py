"""Defines the traffic of a verification: three traces, each under three disciplines.

A burst (all at once) shows throughput, a closed loop a steady batch, Poisson arrivals below the
knee what a user sees. Seconds and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim import catalog
from sim.scenario import Scenario, load_scenario
from sim.simulation import simulate

TRACES = ("burst", "closed", "poisson")
BATCHINGS = ("static", "request", "continuous")

BLOCK_SIZE = 16

LOAD = 0.6
"""Share of the slowest discipline's throughput at which Poisson requests come: below the knee, so
that the noise of the machine does not determine the length of the queue."""

LEAST_BATCHES = 3
"""Full batches that a run has at least."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is run: a model in one precision, batches of up to ``batch`` requests, iterations of up
    to ``chunk`` tokens, lengths drawn evenly from ``prompt`` and ``output``, for about ``seconds``
    a run."""

    model: str
    precision: str
    batch: int
    chunk: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    seconds: float
    repeats: int
    seed: int = 42

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence there may be."""
        return self.prompt[1] + self.output[1]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "prompt": list(self.prompt), "output": list(self.output)}


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: its arrivals as a scenario has them, and how many requests there are."""

    name: str
    arrivals: Mapping[str, Any]
    requests: int


def scenario(
    setting: Setting, trace: Trace, batching: str, gpu: Path | str, engine: Path | str
) -> Scenario:
    """``trace`` under ``batching``, with enough memory that no request is ever preempted."""
    blocks = setting.batch * -(-setting.longest // BLOCK_SIZE)
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


def trace_of(name: str, setting: Setting, gpu: Path, engine: Path) -> Trace:
    """The trace of that name, so long that a run takes about as long as it should by the
    predictions themselves."""
    few = LEAST_BATCHES * setting.batch
    probe = Trace("probe", {"kind": "burst"}, few)
    rates = {
        batching: float(
            simulate(scenario(setting, probe, batching, gpu, engine)).summary["request_throughput"]
        )
        for batching in BATCHINGS
    }
    if name == "poisson":
        rate = LOAD * min(rates.values())
        return Trace(
            name, {"kind": "poisson", "rate": rate}, max(few, round(rate * setting.seconds))
        )
    requests = max(few, round(rates["continuous"] * setting.seconds))
    arrivals: dict[str, Any] = {"kind": name}
    if name == "closed":
        arrivals["concurrency"] = setting.batch
    return Trace(name, arrivals, requests)


def anchor(setting: Setting, gpu: Path | str, engine: Path | str) -> Scenario:
    """One short request alone, whose decodes are timed before and after everything else."""
    alone = Trace("anchor", {"kind": "burst"}, 1)
    short = {"workload.prompt_tokens": {"kind": "fixed", "value": min(16, setting.prompt[1])}}
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
    return model if model in catalog.names("models") else str(Path(model).absolute())


def _uniform(bounds: tuple[int, int]) -> dict[str, Any]:
    return {"kind": "uniform", "low": bounds[0], "high": bounds[1]}
