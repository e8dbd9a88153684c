"""Small scenarios whose results are pinned: every policy, law, engine and number format once or so.

Each is quick (100 to 400 requests) and reaches one corner of the simulator. Most of them use a GPU
without kernel measurements, whose iteration times need no exponential and no logarithm, and traffic
that needs none either: constant gaps, traces, uniform lengths, exponential gaps (drawn from tables
by NumPy), and lognormal lengths (rounded to whole tokens). Their results are the same to the byte
on every machine. ``ROUNDED`` names the other ones: kernel measurements are interpolated on a
logarithmic scale, and some arrival laws need a power, a sine or a cosine.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tests.places import DATA, ROOT

FROZEN = ROOT / "tests" / "frozen"
"""A GPU and an engine that no refit of the catalogue changes: so it moves no golden run of
scheduling, only those that name an engine or a GPU of the catalogue, one or more an engine."""

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": str(FROZEN / "mi300x.yaml"), "price_per_gpu_hour": 2.0},
    "engine": str(FROZEN / "vllm.yaml"),
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "constant", "rate": 12.0},
        "prompt_tokens": {"kind": "uniform", "low": 20, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 120},
    },
    "slo": {"ttft": "300ms", "tpot": "25ms", "attainment": 0.9},
    "run": {"requests": 200},
}

CHAT_AND_BATCH = [
    {"name": "chat", "share": 0.5, "deadline": "400ms"},
    {"name": "batch", "share": 0.5, "priority": 2, "deadline": "10s"},
]
LOGNORMAL = {
    "workload.prompt_tokens": {"kind": "lognormal", "mean": 300, "p95": 900, "max": 2000},
    "workload.output_tokens": {"kind": "lognormal", "mean": 60, "p95": 180, "max": 500},
}
MEASURED = {"fleet.gpu": "h100-sxm", "engine": "vllm"}
SMALL_MEMORY = {"kv_cache.num_gpu_blocks": 190, "max_model_len": 1100}

CHANGES: dict[str, dict[str, Any]] = {
    "continuous-poisson": {
        **LOGNORMAL,
        "workload.arrivals": {"kind": "poisson", "rate": 20},
        "run.requests": 400,
    },
    "static-constant": {
        "scheduler": {"batching": "static", "max_num_seqs": 8},
        "engine": "transformers",
        "workload.arrivals.rate": 4,
    },
    "static-burst-replicas": {
        "scheduler": {"batching": "static", "max_num_seqs": 16},
        "workload.arrivals": {"kind": "burst"},
        "fleet.replicas": 3,
        "router": "round-robin",
    },
    "request-poisson": {
        "scheduler": {"batching": "request", "max_num_seqs": 12, "batch_timeout": "80ms"},
        "engine": "reference",
        "workload.arrivals": {"kind": "poisson", "rate": 9},
    },
    "request-contiguous": {
        "scheduler": {"batching": "request", "max_num_seqs": 8, "order": "sjf"},
        "kv_cache": {"allocator": "contiguous", "num_gpu_blocks": 700},
        "max_model_len": 2048,
    },
    "prefill-first": {
        "scheduler": {"policy": "vllm-v0", "max_num_seqs": 24},
        "workload.arrivals": {"kind": "poisson", "rate": 25},
    },
    "contiguous-sjf": {
        "kv_cache": {"allocator": "contiguous", "num_gpu_blocks": 900},
        "max_model_len": 1100,
        "scheduler.order": "sjf",
        "workload.arrivals.rate": 30,
    },
    "preempted-fcfs": {**SMALL_MEMORY, "workload.arrivals.rate": 20},
    "preempted-prefill-first": {
        **SMALL_MEMORY,
        "scheduler": {"policy": "vllm-v0"},
        "workload.arrivals": {"kind": "burst"},
    },
    "preempted-priority": {
        **SMALL_MEMORY,
        "scheduler": {"order": "priority", "max_num_batched_tokens": 512},
        "workload.classes": CHAT_AND_BATCH,
        "workload.arrivals": {"kind": "poisson", "rate": 18},
    },
    "edf-classes": {
        "scheduler": {"order": "edf", "max_num_seqs": 16},
        "workload.classes": CHAT_AND_BATCH,
        "workload.arrivals.rate": 30,
    },
    "fair-classes": {
        "scheduler": {"order": "fair", "max_num_seqs": 12},
        "workload.classes": CHAT_AND_BATCH,
        "workload.arrivals.rate": 30,
    },
    "ramp-round-robin": {
        "fleet.replicas": 3,
        "router": "round-robin",
        "workload.arrivals": {"kind": "ramp", "rate": 5, "final_rate": 80, "duration": "6s"},
        "run.requests": 300,
    },
    "random-router": {
        "fleet.replicas": 4,
        "router": "random",
        "workload.arrivals.rate": 60,
        "kv_cache.num_gpu_blocks": 500,
        "max_model_len": 1100,
    },
    "power-of-two": {
        "fleet.replicas": 5,
        "router": "power-of-two",
        "workload.arrivals": {"kind": "poisson", "rate": 90},
        "run.requests": 400,
    },
    "least-kv": {
        "fleet.replicas": 3,
        "router": "least-kv",
        "workload.arrivals": {"kind": "poisson", "rate": 70},
        "run.requests": 300,
    },
    "data-parallel-score": {
        "fleet.replicas": 3,
        "router": "data-parallel-score",
        "workload.arrivals": {"kind": "poisson", "rate": 70},
        "kv_cache.num_gpu_blocks": 400,
        "run.requests": 300,
    },
    "session-affinity": {"fleet.replicas": 2, "router": "session-affinity"},
    "host-tier": {
        "kv_cache.enable_prefix_caching": True,
        "kv_cache.num_gpu_blocks": 400,
        "kv_cache.host_memory": "1GiB",
        "kv_cache.host_bandwidth": "4GB/s",
        "kv_cache.preemption": "auto",
        "workload.shared_prefix": {"tokens": 200, "groups": 12},
    },
    "prefix-affinity": {
        "fleet.replicas": 3,
        "router": "prefix-affinity",
        "kv_cache.enable_prefix_caching": True,
        "workload.shared_prefix": {"tokens": 300, "groups": 9},
        "workload.arrivals": {"kind": "poisson", "rate": 50},
        "kv_cache.num_gpu_blocks": 500,
        "run.requests": 300,
    },
    "diurnal": {
        "fleet.replicas": 2,
        "workload.arrivals": {"kind": "diurnal", "rate": 2, "peak_rate": 50, "period": "8s"},
    },
    "gamma-sglang": {
        **MEASURED,
        **LOGNORMAL,
        "engine": "sglang",
        "workload.arrivals": {"kind": "gamma", "rate": 25, "cv": 2},
        "run.requests": 300,
    },
    "closed": {
        **MEASURED,
        "workload.arrivals": {"kind": "closed", "concurrency": 24},
        "workload.prompt_tokens": {"kind": "normal", "mean": 400, "std": 150},
    },
    "closed-thinking": {
        "engine": "ideal",
        "fleet.replicas": 2,
        "workload.arrivals": {"kind": "closed", "concurrency": 30, "think_time": "250ms"},
        "workload.classes": CHAT_AND_BATCH,
    },
    "trace": {
        "workload": {
            "trace": {"path": str(DATA / "mooncake-small.jsonl"), "overlay": 40, "spread": "3s"}
        },
        "run.requests": None,
    },
    "joint-lengths-tensorrt": {
        **MEASURED,
        "engine": "tensorrt-llm",
        "workload": {
            "arrivals": {"kind": "constant", "rate": 40},
            "lengths": {"kind": "joint", "path": str(DATA / "lengths-small.csv")},
        },
    },
    "tensor-parallel-fp8": {
        **MEASURED,
        "model": "llama-3.1-70b",
        "fleet.tensor_parallel": 4,
        "precision": {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"},
        "run.requests": 120,
    },
    "tensor-parallel": {"fleet.tensor_parallel": 2, "workload.arrivals.rate": 20},
    "pipeline": {
        **SMALL_MEMORY,
        "fleet.tensor_parallel": 2,
        "fleet.pipeline_parallel": 2,
        "kv_cache.num_gpu_blocks": 300,
        "workload.arrivals.rate": 60,
    },
    "int8": {
        "fleet.gpu": "a10g",
        "precision": {"weights": "int8", "activations": "int8"},
        "workload.arrivals.rate": 3,
        "run.requests": 120,
    },
    "int4": {
        "model": "qwen2.5-7b",
        "fleet.gpu": "rtx-4090",
        "precision.weights": "int4",
        "workload.arrivals": {"kind": "poisson", "rate": 8},
        "run.requests": 120,
    },
    "int4-group": {
        "precision.weights": "int4-group",
        "workload.arrivals": {"kind": "poisson", "rate": 12},
        "run.requests": 100,
    },
    "int4-group64": {
        "fleet.gpu": "l40s",
        "precision.weights": "int4-group64",
        "workload.arrivals": {"kind": "poisson", "rate": 6},
        "run.requests": 60,
    },
    "int4-group32": {
        "precision.weights": "int4-group32",
        "workload.arrivals": {"kind": "poisson", "rate": 12},
        "run.requests": 60,
    },
    "fp8-block-static": {
        **MEASURED,
        "precision": {"weights": "fp8-block", "activations": "fp8", "quantisation": "static"},
        "run.requests": 100,
    },
    "nvfp4": {
        "fleet.gpu": "b200-sxm",
        "precision": {"weights": "nvfp4", "activations": "nvfp4", "kv_cache": "fp8"},
        "run.requests": 100,
    },
    "experts-mxfp4": {
        "model": "mixtral-8x7b",
        "precision": {"weights": "mxfp4", "experts": "mxfp4"},
        "workload.arrivals.rate": 4,
        "run.requests": 60,
    },
    "experts-measured": {
        **MEASURED,
        "model": "qwen3-30b-a3b",
        "workload.arrivals.rate": 8,
        "run.requests": 80,
    },
    "warmup-requests": {
        "workload.arrivals": {"kind": "poisson", "rate": 15},
        "run.warmup": 40,
        "engine": "ideal",
    },
    "warmup-seconds": {
        "fleet.gpu": "h100-pcie",  # its kernel timings are those of a relative
        "workload.arrivals.rate": 35,
        "run.warmup": "2s",
    },
    "horizon": {
        "workload.arrivals.rate": 70,
        "run.horizon": "4s",
        "run.requests": 400,
        "fleet.replicas": 2,
    },
    "horizon-preempted": {**SMALL_MEMORY, "workload.arrivals.rate": 50, "run.horizon": "3s"},
    "rejected": {"max_model_len": 700, "kv_cache.num_gpu_blocks": 40},
    "long-prefill": {
        "scheduler": {"long_prefill_token_threshold": 256, "max_num_batched_tokens": 1024},
        "workload.prompt_tokens": {"kind": "uniform", "low": 100, "high": 3000},
    },
    "drafts": {
        "speculative": {"method": "ngram", "num_tokens": 3, "acceptance_rate": 0.5},
        "kv_cache.num_gpu_blocks": 120,
    },
    "drafts-by-batch": {
        "speculative": {
            "method": "eagle",
            "num_tokens": 4,
            "acceptance": {"rates": [0.75, 0.5, 0.25, 0.125]},
            "num_tokens_per_batch_size": [[1, 2, 4], [3, 6, 2], [7, 9, 0]],
        },
        "kv_cache.enable_prefix_caching": True,
        "workload.shared_prefix": {"tokens": 128, "groups": 4},
    },
    "repetitions": {
        "workload.arrivals": {"kind": "poisson", "rate": 15},
        "run": {"requests": 100, "repetitions": 3},
    },
}

ROUNDED = frozenset(
    {
        "closed",
        "diurnal",
        "experts-measured",
        "fp8-block-static",
        "gamma-sglang",
        "joint-lengths-tensorrt",
        "nvfp4",
        "tensor-parallel-fp8",
        "warmup-seconds",
    }
)
"""Scenarios whose times have logarithms, exponentials or the like in them."""


def scenario(name: str) -> dict[str, Any]:
    """The scenario called ``name``, as the mapping that ``sim.load_scenario`` takes."""
    return changed(BASE, CHANGES[name])


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``base`` with the values of dotted keys put in, one after the other."""
    data = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *steps, key = path.split(".")
        section = data
        for step in steps:
            section = section.setdefault(step, {})
        section[key] = copy.deepcopy(value)
    return data
