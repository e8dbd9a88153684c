"""What does the reference engine's own Python cost, beside the operators it calls? Seconds.

A model so narrow that its operators are little more than their calls is served, and what its
iterations take is set against the same operators timed one by one. What is left over is scheduling,
block tables, views of tensors and loops: so much an iteration, a layer, a sequence and a new
request. Those four are the engine's host terms on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.bench import families, layer
from calibrate.bench.arena import Arena
from calibrate.bench.base import Point, Scope
from calibrate.device import Device
from calibrate.engine.log import Iteration
from calibrate.engine.run import run
from calibrate.profile import write_text
from calibrate.timing import Timer, timer_for
from sim import catalog
from sim.catalog.profile_file import to_yaml
from sim.model import ModelSpec
from sim.scenario import Scenario, load_scenario

NARROW = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
"""The narrow model, but for its layers."""

LAYERS = (2, 8)
SEQUENCES = (1, 8)
PROMPT = 16
DECODED = 40
"""Layers, sequences and tokens of the runs that are compared."""

STAND_IN = "h100-sxm"
"""A GPU of the catalogue for the scenario to name; nothing is priced by it."""

TIMED = 0.02
"""Seconds that each operator is sampled for."""


class Terms(NamedTuple):
    """Seconds of an iteration that no operator takes, each for every one of these."""

    per_iteration: float
    per_layer: float
    per_sequence: float
    per_new_request: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Iterations of one kind: how many ``layers``, ``sequences`` and ``new`` requests, what one
    took and what its operators take alone."""

    layers: int
    sequences: int
    new: int
    took: float
    operators: float


def measure(device: Device, precision: str, folder: Path) -> Terms:
    """The terms on ``device``; scenarios and models are written to ``folder``."""
    return solve(list(_samples(device, precision, folder)))


def solve(samples: list[Sample]) -> Terms:
    """Terms, none of them negative, that explain best what ``samples`` took beyond operators.

    >>> made = [Sample(l, s, n, 1.0 + 0.1 * l + 0.01 * s + 0.5 * n, 0.0)
    ...         for l, s, n in ((2, 1, 0), (8, 1, 0), (2, 8, 0), (8, 8, 0), (2, 1, 1), (8, 8, 8))]
    >>> [round(term, 6) for term in solve(made)]
    [1.0, 0.1, 0.01, 0.5]
    """
    table = np.array([[1.0, s.layers, s.sequences, s.new] for s in samples])
    took = np.array([s.took for s in samples])
    beyond = took - np.array([s.operators for s in samples])
    found, _ = nnls(table / took[:, None], beyond / took)
    return Terms(*(float(term) for term in found))


def write_engine(path: Path, terms: Terms, device: Device) -> None:
    """An engine preset like ``reference`` with these terms, for ``engine:`` in a scenario."""
    source = f"Measured on {device.facts.name} with a narrow model, operators subtracted."
    entry = catalog.raw("engines", "reference")
    times = {name: f"{value * 1e6:.4g}us" for name, value in terms._asdict().items()}
    changed: dict[str, dict[str, object]] = {
        name: {"value": value, "source": source} for name, value in times.items()
    }
    inside = "Calls of operators are in their own timings."
    changed["cuda_graphs"] = {"value": True, "source": inside}
    changed["launch"] = {"value": "0s", "source": inside}
    changed["memory_reserve"] = {"value": "0B", "source": "None on a CPU."}
    title = {"title": f"The reference engine on {device.facts.name}"}
    write_text(path, to_yaml({**entry, **title, **changed}))


def _samples(device: Device, precision: str, folder: Path) -> Iterator[Sample]:
    arena, timer = Arena(device, turnover=0.0), timer_for(device)
    for layers in LAYERS:
        path = folder / f"narrow-{layers}.json"
        path.write_text(json.dumps(NARROW | {"num_hidden_layers": layers}), encoding="utf-8")
        model = catalog.model(path)
        for sequences in SEQUENCES:
            for outputs in (DECODED, 1):
                scenario = _scenario(path, precision, sequences, outputs)
                iterations = run(scenario, device, sampling="random").iterations
                new = sequences if outputs == 1 else 0
                chosen = [i for i in iterations if bool(i.prefills) == bool(new)]
                shape = (PROMPT, PROMPT) if new else (1, PROMPT + DECODED // 2)
                parts = layer.parts(model, precision, sequences, *shape, True)
                yield Sample(
                    layers, sequences, new, _typical(chosen), _alone(parts, arena, timer, model)
                )


def _typical(iterations: list[Iteration]) -> float:
    return median(iteration.end - iteration.start for iteration in iterations)


def _alone(parts: list[tuple[Point, int]], arena: Arena, timer: Timer, model: ModelSpec) -> float:
    """What the operators take one by one, with all they need in the cache."""
    kind, precision = arena.device.facts.kind, parts[0][0].precision
    scope = Scope(kind, 0.0, 1, [model], [precision])
    owners = {name: family for family in families(scope) for name in family.shares}
    total = 0.0
    for point, times in parts:
        work = owners[point.operator].prepare(point, arena)
        total += times * timer.measure(work, TIMED).seconds
    return total


def _scenario(model: Path, precision: str, sequences: int, outputs: int) -> Scenario:
    """So many requests at a time: prompts alone if ``outputs`` is 1, else one batch that
    decodes."""
    return load_scenario(
        {
            "model": str(model),
            "precision": dict.fromkeys(("weights", "activations", "kv_cache"), precision),
            "fleet": {"gpu": STAND_IN},
            "engine": "reference",
            "max_model_len": PROMPT + DECODED,
            "scheduler": {
                "max_num_seqs": sequences,
                "max_num_batched_tokens": PROMPT * sequences,
            },
            "kv_cache": {"num_gpu_blocks": 16 * sequences},
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": PROMPT},
                "output_tokens": {"kind": "fixed", "value": outputs},
            },
            "run": {"requests": sequences * (1 if outputs > 1 else DECODED)},
        }
    )
