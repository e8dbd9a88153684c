"""Fits the host time that the reference engine takes beyond its operators on this device. Seconds.

The engine runs a few short bursts, of its model and of the same with fewer layers; what their
iterations take beyond the time of their operators is scheduling, block tables, views of tensors,
loops, and finding code and data anew after a matrix has swept the caches: so much an iteration, a
layer, a sequence and a new request. A drafter's pass takes of the host what the engine's own take
until their tensors are there, which it writes down of every iteration. On CUDA, where decodes are
replayed from a graph, passes with prompts are launched operator by operator, and that takes longer
than the operators of a small model. Those six are the engine's host terms.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

from calibrate.dense import dense_layer
from calibrate.device import Device
from calibrate.engine.run import run
from calibrate.verify.iterations import predictions
from calibrate.verify.traffic import TrafficSetting, VerifyTrace, scenario
from sim import catalog
from sim.catalog.profile_file import to_yaml
from sim.results.whole_file import write_text
from sim.setup import prepare
from sim.specs.model import ModelSpec

FEWER = 4
"""The same model has this share of the layers."""

DECODED = 8
"""Tokens of each answer, and so decodes of a burst."""

NO_ENGINE = "ideal"

KERNELS = catalog.engine("reference").kernels_per_layer
"""Launches of a layer, as the engine's preset counts them."""


class Terms(NamedTuple):
    """Seconds of an iteration that no operator takes, each for every one of these; ``launch`` is
    the time between two launches of a pass that no graph covers, 0 where there is no graph and
    calls of operators are in their own timings."""

    per_iteration: float
    per_layer: float
    per_sequence: float
    per_new_request: float
    per_drafting_pass: float = 0.0
    launch: float = 0.0


MOST = (2e-3, 2e-4, 1e-4, 1e-3)
"""The most that Python could take; anything beyond is an error of kernel times and stays
visible."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """Iterations of one kind: how many ``layers``, ``sequences`` and ``new`` requests, what one
    took, the predicted time of its operators, and what preparing its tensors took."""

    layers: int
    sequences: int
    new: int
    took: float
    predicted: float
    prepared: float = 0.0


Heed = Callable[[], None]
"""Called before each burst and when one of its requests is done; what it raises passes."""


def measure(
    device: Device, setting: TrafficSetting, gpu: Path, folder: Path, heed: Heed = lambda: None
) -> Terms:
    """The terms on ``device``, of which ``gpu`` is a profile; models are written to ``folder``."""
    samples = list(_samples(device, setting, gpu, folder, heed))
    prepared = [sample.prepared for sample in samples if not sample.new]
    launch = launch_time(samples) if device.facts.kind == "cuda" else 0.0
    samples = [
        replace(sample, predicted=max(sample.predicted, launch * KERNELS * sample.layers))
        if sample.new
        else sample
        for sample in samples
    ]
    drafting = median(prepared) if prepared else 0.0
    return solve(samples)._replace(per_drafting_pass=drafting, launch=launch)


def launch_time(samples: Sequence[HostSample]) -> float:
    """Seconds between two of the ``KERNELS`` launches of a layer, from passes with prompts over
    more and fewer layers; 0 without two such. Where operators take longer than their launches it
    is their time, and changes nothing.

    >>> made = [HostSample(layers, 1, 1, 1e-3 + layers * 15e-5, 1e-4) for layers in (4, 16)]
    >>> round(1e6 * launch_time(made))
    10
    """
    kinds: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for sample in samples:
        if sample.new:
            kinds[sample.sequences, sample.new][sample.layers] = sample.took
    slopes = [
        (took[max(took)] - took[min(took)]) / (max(took) - min(took))
        for took in kinds.values()
        if len(took) > 1
    ]
    return max(0.0, median(slopes)) / KERNELS if slopes else 0.0


def solve(samples: list[HostSample]) -> Terms:
    """Terms, from 0 to ``MOST``, that explain best what ``samples`` took beyond their predicted
    time.

    >>> made = [HostSample(l, s, n, 1e-4 * (10 + 0.2 * l + 0.1 * s + 2 * n), 0.0)
    ...         for l, s, n in ((2, 1, 0), (8, 1, 0), (2, 8, 0), (8, 8, 0), (2, 1, 1), (8, 8, 8))]
    >>> [round(1e6 * term) for term in solve(made)]
    [1000, 20, 10, 200, 0, 0]
    """
    table = np.array([[1.0, s.layers, s.sequences, s.new] for s in samples])
    took = np.array([s.took for s in samples])
    beyond = took - np.array([s.predicted for s in samples])
    scale = np.array(MOST)
    found = lsq_linear(table * scale / took[:, None], beyond / took, bounds=(0, 1)).x
    return Terms(*(float(term) for term in found * scale))


def write_engine(path: Path, terms: Terms, device: Device) -> None:
    """An engine preset like ``reference`` with these terms, for ``engine:`` in a scenario."""
    source = f"Measured on {device.facts.name}: iterations of the engine less their operators."
    entry = catalog.raw("engines", "reference")
    times = {name: f"{value * 1e6:.4g}us" for name, value in terms._asdict().items()}
    changed: dict[str, dict[str, object]] = {
        name: {"value": value, "source": source} for name, value in times.items()
    }
    if device.facts.kind == "cuda":
        prompts = "Decodes are replayed from a graph, passes with prompts are not."
        changed["eager_prefill"] = {"value": True, "source": prompts}
    else:
        inside = "Calls of operators are in their own timings."
        changed["cuda_graphs"] = {"value": True, "source": inside}
        changed["launch"] = {"value": "0s", "source": inside}
        changed["memory_reserve"] = {"value": "0B", "source": "None on a CPU."}
    title = {"title": f"The reference engine on {device.facts.name}"}
    write_text(path, to_yaml({**entry, **title, **changed}))


def _samples(
    device: Device, setting: TrafficSetting, gpu: Path, folder: Path, heed: Heed
) -> Iterator[HostSample]:
    whole = catalog.model(setting.model)
    for layers in sorted({max(1, whole.num_layers // FEWER), whole.num_layers}):
        path = folder / f"layers-{layers}.json"
        fewer = shortened(setting.model, whole, layers)
        path.write_text(json.dumps(fewer, indent=2) + "\n", encoding="utf-8")
        sizes = {1, 2, setting.batch // 2, setting.batch} - {0}
        for sequences in sorted(sizes):
            heed()
            yield from _burst(device, setting, path, gpu, layers, sequences, heed)


def _burst(
    device: Device,
    setting: TrafficSetting,
    model: Path,
    gpu: Path,
    layers: int,
    sequences: int,
    heed: Heed,
) -> Iterator[HostSample]:
    """So many requests at once, and the typical iteration of each kind."""
    trace = VerifyTrace("burst", {"kind": "burst"}, sequences)
    prompt = max(1, min(setting.prompt[1], setting.chunk // sequences))
    short = {
        "model": str(model),
        "workload.prompt_tokens": {"kind": "fixed", "value": prompt},
        "workload.output_tokens": {"kind": "fixed", "value": min(DECODED, setting.output[1])},
    }
    one = scenario(setting, trace, "continuous", gpu, NO_ENGINE).override(short)
    cost = prepare(one).only.cost
    observed = run(
        one, device, sampling="random", clock=setting.clock(), progress=lambda done, total: heed()
    )
    kinds: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
    plans = observed.record.plans[["computed", "prefill_seqs", "admitted"]].tolist()
    found = zip(observed.iterations, plans, predictions(observed, cost), strict=True)
    for iteration, (decoding, prompts, new), predicted in found:
        took = iteration.end - iteration.start
        kinds[decoding + prompts, new].append((took, predicted, iteration.phases.prepare))
    for (outputs, new), times in kinds.items():
        middle = (median(column) for column in zip(*times, strict=True))
        yield HostSample(layers, outputs, new, *middle)


def shortened(name: str, model: ModelSpec, layers: int) -> dict[str, Any]:
    """The ``config.json`` of the model called ``name`` with its first ``layers`` layers. UsageError
    for one of the catalogue whose layers are not all alike and dense."""
    if catalog.checkpoint(name):
        return config(model, layers)
    found: dict[str, Any] = json.loads(Path(name).read_text(encoding="utf-8"))
    inner = found.get("text_config", found)
    whole = inner["num_hidden_layers"]
    for key, value in inner.items():
        if isinstance(value, list) and len(value) == whole:
            inner[key] = value[:layers]
    inner["num_hidden_layers"] = layers
    return found


def config(model: ModelSpec, layers: int) -> dict[str, object]:
    """The shape of ``model`` with that many layers, as Hugging Face writes it."""
    attention, mlp, _ = dense_layer(model)
    family = "qwen3" if attention.qk_norm else "qwen2" if attention.attention_bias else "llama"
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    return {
        "architectures": [f"{names[family]}ForCausalLM"],
        "model_type": family,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "intermediate_size": mlp.intermediate_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "tie_word_embeddings": model.tie_word_embeddings,
    }
