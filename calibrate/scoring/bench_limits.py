"""States the requests and tokens of an iteration that TensorRT-LLM's own benchmark allows.

``trtllm-bench`` builds its engines with limits of its own, which the tables of its results leave
out. Up to release 0.14 it read them from a list of models and GPUs
(tensorrt_llm/bench/build/benchmark_config.yml); later releases work them out from the memory and
the lengths (tensorrt_llm/bench/build/tuning.py), data ranks counted as tensor ranks; with the
PyTorch backend an iteration has room for a prompt and all requests besides
(tensorrt_llm/bench/benchmark/utils/general.py). The C++ executor of 0.16 and 0.17 then rounds the
requests that its memory holds down to sizes that it likes (cpp/tensorrt_llm/executor/
dynamicBatchTuner.cpp). All are in NVIDIA/TensorRT-LLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from calibrate.scoring.conditions import Conditions, room
from calibrate.scoring.presets import OF_PYTORCH, engine_name
from sim import catalog
from sim.catalog.releases import number
from sim.errors import InfersimError
from sim.memory.capacity import activation_bytes
from sim.pools import prepare_pool
from sim.scenario import load_scenario
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.model import ModelSpec
from sim.specs.precision import FORMATS


class BenchLimits(NamedTuple):
    """Most requests at once, and most tokens of an iteration."""

    requests: int
    tokens: int


LISTED = {
    ("llama-3.1-8b", 1): BenchLimits(2048, 8192),
    ("llama-3.1-70b", 1): BenchLimits(2048, 2048),
    ("llama-3.1-70b", 2): BenchLimits(256, 1024),
    ("llama-3.1-70b", 4): BenchLimits(2048, 1024),
    ("llama-3.1-70b", 8): BenchLimits(8192, 16384),
    ("mistral-7b", 1): BenchLimits(4098, 8192),
    ("mixtral-8x7b", 2): BenchLimits(2048, 3072),
    ("mixtral-8x7b", 4): BenchLimits(8192, 8192),
}
"""The list of the releases up to 0.14, by the catalogue's names and tensor ranks. Llama 3.1 is not
in it: the models of Llama 3 stand for those of the same size."""

LISTED_FOR = {("llama-3.1-70b", 2, 4096): BenchLimits(2048, 1024)}
"""Entries of the list that hold for one length of prompt and answer together."""

BY_RULE = (0, 16)
"""The first release that works the limits out."""

BENCHMARKS = ("tensorrt-llm-0.14", "tensorrt-llm-bench", "tensorrt-llm-pytorch")
"""Presets of engines that are run by this benchmark."""

SIZES = ((144, 128), (336, 256), (672, 512), (832, 768), (1280, 1024), (1664, 1536))
"""Requests below which the C++ executor takes at most so many."""

FRACTION = 0.95
"""Of the memory that weights leave, what the rule takes for KV where engines are built; the PyTorch
backend has none, and takes the share that the run allows."""

BYTES = {"fp8": 1.0, "fp8-block": 1.0, "nvfp4": 0.5}
"""Of a number in weights and KV, as the rule counts them; two in all other formats."""


def listed(known: Conditions) -> BenchLimits | None:
    """Limits in the list; None for what is not in it."""
    engine = known.model, _pool(known)["tensor_parallel"]
    length = round(known.prompt.mean + known.output.mean)
    return LISTED_FOR.get((*engine, length), LISTED.get(engine))


def with_places(known: Conditions, limits: BenchLimits) -> Conditions:
    """``known`` with an engine that keeps logits for all requests of the list, also where fewer
    tokens than that bound what runs."""
    found = limited(known, limits.tokens, min(limits))
    if limits.requests <= limits.tokens:
        return found
    try:
        scenario = load_scenario(found.document)
        pool = prepare_pool(scenario, scenario.only_pool)
    except InfersimError:  # it does not fit, which the run will say
        return found
    memory = pool.capacity
    all_places, running = (
        activation_bytes(pool.deployment, limits.tokens, places)
        for places in (limits.requests, limits.tokens)
    )
    left = 1 - (all_places - running) / (memory.memory - memory.taken)
    share = memory.utilization * max(0.0, left)
    return found.under({"kv_cache.gpu_memory_utilization": share})


def limited(known: Conditions, tokens: int, requests: int) -> Conditions:
    """``known`` with so many ``tokens`` in an iteration and ``requests`` at once."""
    return known.under(
        {"scheduler.max_num_batched_tokens": tokens, "scheduler.max_num_seqs": requests}
    )


def _pool(known: Conditions) -> dict[str, Any]:
    pool, *_ = known.document["fleet"]
    return dict(pool)


def ruled(known: Conditions) -> BenchLimits | None:
    """Limits by the rule; None for models that it has no numbers of: with layers that keep a state,
    or of several kinds."""
    model, precision = catalog.model(known.model), known.document["precision"]
    pool = _pool(known)
    ranks, stages = pool["tensor_parallel"] * pool["data_parallel"], pool["pipeline_parallel"]
    numbers = _numbers_of_token(model, ranks)
    if numbers is None:
        return None
    weights = _numbers_in_checkpoint(model, precision) * BYTES.get(known.weights, 2.0)
    token = numbers * BYTES.get(precision["kv_cache"], 2.0)
    lengths = known.prompt.mean + known.output.mean
    version = number(known.version)
    share = FRACTION
    if version is not None and version >= OF_PYTORCH:
        share = known.document["kv_cache"].get("gpu_memory_utilization", FRACTION)
    free = share * (catalog.gpu(known.gpu).memory * ranks * stages - weights)
    fit = free / (token * lengths)
    return tuned(fit, known.prompt.mean / known.output.mean, stages)


def _numbers_of_token(model: ModelSpec, ranks: int) -> float | None:
    """Numbers that the rule takes a token to keep in all layers, at least a KV head on each rank;
    latent attention as if it kept the keys and values of all heads."""
    first = model.layers[0].attention
    if isinstance(first, Latent):
        heads, size = first.num_heads, model.hidden_size // first.num_heads
    elif isinstance(first, GroupedQuery):
        heads, size = first.num_kv_heads, first.head_dim
    else:
        return None
    if any(type(group.attention) is not type(first) for group in model.layers):
        return None
    return 2.0 * model.num_layers * max(ranks, heads) * size


def _numbers_in_checkpoint(model: ModelSpec, precision: Mapping[str, str]) -> float:
    """Numbers in the files, which the rule takes for parameters: formats of 4 bits have two in one
    number, and the scales of groups besides."""
    stored = FORMATS.get(precision.get("experts", precision["weights"]))
    if stored is None or stored.bits != 4:
        return model.parameters
    experts = sum(each.parameters for each in model.weights() if each.role == "experts")
    packed = experts if "experts" in precision else model.parameters
    return model.parameters - packed + packed * stored.bytes


def tuned(fit: float, prompts: float, stages: int = 1) -> BenchLimits:
    """The limits where so many requests ``fit`` and have so many tokens of ``prompts`` for each
    that they answer with.

    >>> tuned(100, 1)
    BenchLimits(requests=128, tokens=2048)
    >>> tuned(3000, 16)
    BenchLimits(requests=3072, tokens=32768)
    """
    raw = min(fit, 4096) / stages
    if raw < 256:
        requests = max(64, _up(raw, 32))
    else:
        requests = _up(raw, 128 if raw < 1024 else 256)
    tokens = min(raw * (1 + prompts), 32768)
    if tokens < 4096:
        return BenchLimits(requests, max(2048, _up(tokens, 256)))
    return BenchLimits(requests, _up(tokens, 512 if tokens < 8192 else 1024))


def rounded(capacity: int) -> int:
    """How many requests run at once where memory holds ``capacity``.

    >>> rounded(100), rounded(671), rounded(2060), rounded(2300)
    (128, 512, 2048, 2300)
    """
    for below, size in SIZES:
        if capacity < below:
            return size
    whole = capacity // 512 * 512
    return whole if capacity < whole + 128 else capacity


def capacity(known: Conditions) -> int:
    """Requests of mean lengths that the memory of a replica holds."""
    scenario = load_scenario(known.document)
    memory = prepare_pool(scenario, scenario.only_pool).capacity
    tokens = memory.usable_blocks * memory.block_size
    return int(tokens / (known.prompt.mean + known.output.mean))


def _up(value: float, step: int) -> int:
    return step * ceil(value / step)


FROM_LIST = (
    "an iteration has up to {requests:,} requests and {tokens:,} tokens: the benchmark's own list "
    "for Llama 3, Mistral and Mixtral (NVIDIA/TensorRT-LLM, bench/build/benchmark_config.yml)"
)
BY_THE_RULE = (
    "requests and tokens of an iteration are limited by the benchmark's own rules "
    "(NVIDIA/TensorRT-LLM, bench/build/tuning.py, executor/dynamicBatchTuner.cpp)"
)


def benchmarked(known: Conditions) -> Conditions:
    """``known`` with the limits of that benchmark, where it was run by it and states none."""
    if known.limited or engine_name(known.engine) not in BENCHMARKS:
        return known
    version = number(known.version)
    by_rule = version is not None and version >= BY_RULE
    limits = ruled(known) if by_rule else listed(known)
    if limits is None:
        return known
    why = BY_THE_RULE if by_rule else FROM_LIST.format(**limits._asdict())
    known = replace(known, assumed=(*known.assumed, why))
    if not by_rule:
        return with_places(known, limits)
    if version is None or version >= OF_PYTORCH:
        tokens = max(limits.tokens, known.prompt.high + limits.requests)
        return limited(known, tokens, limits.requests)
    found = limited(known, limits.tokens, room(known, known.document, min(limits)))
    try:
        most = min(*limits, rounded(capacity(found)))
    except InfersimError:  # it does not fit, which the run will say
        return found
    return limited(known, limits.tokens, room(known, known.document, most))
