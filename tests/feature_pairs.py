"""Every feature of a scenario, alone and with every other: what holds of a run holds of each.

``FEATURES`` has a row for each feature: its name, and what it changes in a small base scenario, by
dotted keys. A new feature is a new row. Two features are *alternatives* where they want another
value at the same key, or one of them the whole of what the other changes a part of; every other
pair is run, except those that the scenario refuses: ``REFUSED`` says why, in words that the refusal
must contain.

``check_together`` runs a scenario with leaps and without, on its own terms and in the harness that
writes down when each token came. Requests and token times must be equal to the last bit, and no
request, token or KV block may be lost, whatever is combined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any, NamedTuple

from numpy.typing import NDArray

import sim
from sim.loop.recorder import Recorder
from sim.metrics.record.run_record import RunRecord
from sim.pools import front_end_of, make_allocator, make_replica_scheduler
from sim.routers import router_class
from sim.scenario import Scenario
from sim.setup import Setup, prepare
from sim.workload import OpenTraffic, SessionTraffic, build
from sim.workload.adapters import adapter_draw
from tests.golden_scenarios import changed
from tests.harness import Played, play
from tests.places import DATA, MODELS
from tests.test_fuzz import check

Names = tuple[str, ...]

BASE: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "a10g"},
    "engine": "ideal",
    "max_model_len": 256,
    "scheduler": {"max_num_seqs": 6, "max_num_batched_tokens": 96},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 80},
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 120},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    },
    "run": {"requests": 20, "warmup": 0},
}
"""More requests than slots at once, prompts longer than an iteration takes: things meet."""

CLASSES = [
    {"name": "chat", "share": 0.5, "deadline": "200ms"},
    {"name": "batch", "share": 0.5, "priority": 2, "deadline": "5s"},
]


def arrivals(kind: str, **keys: Any) -> dict[str, Any]:
    """The change of arrivals."""
    return {"workload.arrivals": {"kind": kind, **keys}}


def trace(name: str, **keys: Any) -> dict[str, Any]:
    """The change to recorded requests."""
    made_up = dict.fromkeys(["arrivals", "prompt_tokens", "output_tokens"])
    changes = {f"workload.{key}": value for key, value in made_up.items()}
    return {**changes, "workload.trace": {"path": str(DATA / name), **keys}}


FEATURES: Mapping[str, dict[str, Any]] = {
    # batching
    "static": {"scheduler.batching": "static"},
    "request": {"scheduler.batching": "request", "scheduler.batch_timeout": "30ms"},
    "whole-prompts": {
        "scheduler.chunked_prefill": False,
        "scheduler.max_num_batched_tokens": 256,
    },
    "prefill-first": {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 256},
    "long-prefill": {"scheduler.long_prefill_token_threshold": 20},
    "small-budget": {"scheduler.max_num_batched_tokens": 16},
    "one-slot": {"scheduler.max_num_seqs": 1},
    "no-reserve": {"scheduler.scheduler_reserve_full_isl": False},
    "sglang": {"scheduler.policy": "sglang"},
    "sglang-retracting": {
        "scheduler.policy": "sglang",
        "scheduler.enable_mixed_chunk": True,
        "scheduler.max_tokens": 1,
        "scheduler.schedule_conservativeness": 0.01,
        "scheduler.async_scheduling": False,
        "kv_cache.block_size": 2,
        "kv_cache.num_gpu_blocks": 95,
    },
    "lpm": {
        "scheduler.policy": "sglang",
        "scheduler.order": "lpm",
        "scheduler.max_tokens": 1,
        "scheduler.schedule_conservativeness": 0.01,
        "scheduler.async_scheduling": False,
        "kv_cache.enable_prefix_caching": True,
        "kv_cache.block_size": 2,
        "kv_cache.num_gpu_blocks": 95,
        "workload.shared_prefix": {"tokens": 40, "groups": 2},
    },
    "no-evict": {"scheduler.policy": "guaranteed-no-evict", "scheduler.max_tokens": 100},
    "max-utilization": {"scheduler.policy": "max-utilization", "kv_cache.num_gpu_blocks": 18},
    "prompts-wait": {
        "scheduler.policy": "max-utilization",
        "scheduler.batch_wait_timeout_iters": 5,
        "scheduler.batch_wait_max_tokens_ratio": 0.5,
    },
    "ranks-wait": {
        "model": str(MODELS / "tiny-experts"),
        "fleet.data_parallel": 2,
        "fleet.expert_parallel": True,
        "scheduler.policy": "guaranteed-no-evict",
        "scheduler.attention_dp_timeout_iters": 7,
        "scheduler.attention_dp_batching_wait_iters": 2,
    },
    "async": {"scheduler.async_scheduling": True},
    # order
    "sjf": {"scheduler.order": "sjf"},
    "priority": {"scheduler.order": "priority", "workload.classes": CLASSES},
    "edf": {"scheduler.order": "edf", "workload.classes": CLASSES},
    "fair": {"scheduler.order": "fair", "workload.classes": CLASSES},
    "classes": {"workload.classes": CLASSES},
    "shedding": {"admission": {"policy": "deadline"}, "slo.ttft": "40ms"},
    # memory
    "contiguous": {"kv_cache.allocator": "contiguous"},
    "small-memory": {"kv_cache.num_gpu_blocks": 18},
    "tiny-memory": {"kv_cache.num_gpu_blocks": 11, "scheduler.scheduler_reserve_full_isl": False},
    "small-blocks": {"kv_cache.block_size": 3},
    "rejecting": {"max_model_len": 100},
    "shared-prefix": {
        "kv_cache.enable_prefix_caching": True,
        "workload.shared_prefix": {"tokens": 40, "groups": 2},
    },
    "host-tier": {
        "kv_cache.enable_prefix_caching": True,
        "kv_cache.num_gpu_blocks": 18,
        "kv_cache.host_memory": "8MiB",  # 16 blocks of 512 KiB
        "kv_cache.host_bandwidth": "1GB/s",  # a block in half a millisecond
        "workload.shared_prefix": {"tokens": 70, "groups": 4},
    },
    "slow-host-tier": {
        "kv_cache.enable_prefix_caching": True,
        "kv_cache.num_gpu_blocks": 18,
        "kv_cache.host_memory": "100MiB",
        "kv_cache.host_bandwidth": "1GB/s",
        "kv_cache.host_overlap": False,
        "kv_cache.preemption": "swap",
        "workload.shared_prefix": {"tokens": 70, "groups": 4},
    },
    "swap": {
        "kv_cache.num_gpu_blocks": 18,
        "kv_cache.host_memory": "8MiB",
        "kv_cache.host_bandwidth": "1GB/s",
        "kv_cache.preemption": "swap",
    },
    "auto-swap": {
        "kv_cache.num_gpu_blocks": 18,
        "kv_cache.host_memory": "100MiB",
        "kv_cache.host_bandwidth": "1GB/s",
        "kv_cache.preemption": "auto",
    },
    # drafts
    "ngram": {"speculative": {"method": "ngram", "num_tokens": 2, "acceptance_rate": 0.5}},
    "eagle": {
        "speculative": {"method": "eagle", "num_tokens": 4, "acceptance": {"length": 3.1}},
    },
    "mtp": {
        "model": str(MODELS / "tiny-experts"),
        "speculative": {"method": "mtp", "num_tokens": 3, "acceptance_rate": 0.7},
    },
    "drafts-by-batch": {
        "speculative": {
            "method": "eagle",
            "num_tokens": 4,
            "acceptance": {"length": 3.1},
            "num_tokens_per_batch_size": [[1, 1, 4], [2, 2, 2], [3, 3, 0], [4, 6, 1]],
        },
    },
    "async-drafts": {
        "scheduler.async_scheduling": True,
        "speculative": {"method": "eagle", "num_tokens": 2, "acceptance": {"length": 2.2}},
    },
    # adapters
    "lora": {"lora": {"adapters": 5, "max_loras": 2, "distribution": {"kind": "zipf"}}},
    # fleet
    "link": {
        "fleet.tensor_parallel": 2,
        "fleet.link": {"kind": "pcie", "peer_to_peer": True},
    },
    "node": {"fleet.tensor_parallel": 2, "fleet.node": {"gpus": 1, "bandwidth": "10GB/s"}},
    "power-limit": {"fleet.power_limit": "75W"},
    "round-robin": {"fleet.replicas": 2, "router": "round-robin"},
    "random": {"fleet.replicas": 3, "router": "random"},
    "least-outstanding": {"fleet.replicas": 3, "router": "least-outstanding"},
    "power-of-two": {"fleet.replicas": 4, "router": "power-of-two"},
    "least-kv": {"fleet.replicas": 3, "router": "least-kv"},
    "data-parallel-score": {"fleet.replicas": 3, "router": "data-parallel-score"},
    "session-affinity": {"fleet.replicas": 2, "router": "session-affinity"},
    "prefix-affinity": {"fleet.replicas": 3, "router": "prefix-affinity"},
    "tensor-parallel": {"fleet.tensor_parallel": 2},
    "pipeline": {"fleet.pipeline_parallel": 2},
    "two-pools": {
        "fleet": [
            {"name": "one", "gpu": "a10g", "replicas": 2, "scheduler": {"max_num_seqs": 3}},
            {"name": "other", "gpu": "l40s", "kv_cache": {"block_size": 8}},
        ]
    },
    "two-models": {
        "fleet": [
            {"name": "one", "gpu": "a10g"},
            {"name": "other", "gpu": "l40s", "model": "qwen3-0.6b", "replicas": 2},
        ],
        "workload.classes": [
            {"name": "hard", "share": 0.4},
            {"name": "easy", "share": 0.6, "model": "qwen3-0.6b", "priority": 1},
        ],
    },
    "weighted-pools": {
        "router": "least-outstanding",
        "fleet": [
            {"name": "one", "gpu": "a10g", "replicas": 2},
            {"name": "other", "gpu": "l40s", "weight": 2.5},
        ],
    },
    "weighted-turns": {
        "router": "round-robin",
        "fleet": [
            {"name": "one", "gpu": "a10g"},
            {"name": "other", "gpu": "l40s", "replicas": 2, "weight": 2},
        ],
    },
    "roles": {
        "fleet": [
            {"name": "prompts", "role": "prefill", "gpu": "a10g", "replicas": 2},
            {"name": "answers", "role": "decode", "gpu": "a10g"},
        ]
    },
    "pushed": {
        "fleet": [
            {"name": "prompts", "role": "prefill", "gpu": "a10g"},
            {"name": "answers", "role": "decode", "gpu": "a10g", "replicas": 2},
        ],
        "transfer": {"mode": "push-layerwise", "min_prompt": 30, "per_block": "2ms"},
    },
    "autoscaled": {
        "fleet.replicas": {"min": 1, "max": 3},
        "autoscaling": {
            "metric": "running",
            "target": 2,
            "interval": "20ms",
            "cold_start": "10ms",
            "stabilisation": "60ms",
        },
    },
    "autoscaled-late": {
        "fleet.replicas": {"min": 1, "max": 4, "start": 2},
        "autoscaling": {
            "policy": "keda",
            "metric": "queue",
            "target": 1,
            "interval": "20ms",
            "scrape": "32ms",
            "delay": "10ms",
            "cold_start": "10ms",
            "stabilisation": "40ms",
            "scale_up": [{"pods": 1, "period": "40ms"}],
        },
    },
    "autoscaled-to-none": {
        "fleet.replicas": {"min": 0, "max": 3},
        "autoscaling": {
            "policy": "keda",
            "metric": "running",
            "target": 2,
            "interval": "20ms",
            "polling": "32ms",
            "cooldown": "40ms",
            "cold_start": "10ms",
            "stabilisation": "40ms",
        },
    },
    # failures
    "autoscaled-failing": {
        "fleet.replicas": {"min": 1, "max": 3, "start": 2},
        "autoscaling": {
            "metric": "running",
            "target": 2,
            "interval": "20ms",
            "cold_start": "10ms",
            "stabilisation": "30ms",
        },
        "failures": {"mtbf": "60ms", "repair": "15ms", "in_flight": {"backoff": "10ms"}},
    },
    "failing": {
        "fleet.replicas": 2,
        "failures": {"mtbf": "100ms", "repair": "20ms", "in_flight": {"backoff": "10ms"}},
    },
    "lost": {
        "fleet.replicas": 3,
        "failures": [
            {"at": "100ms", "replica": 1, "for": "60ms"},
            {"at": "100ms", "replica": 0},
            {"at": "150ms", "replica": 2, "for": "10ms"},
        ],
    },
    "steered": {
        "fleet.replicas": 3,
        "steering": {
            "steps": [
                {"at": "50ms", "do": "drain", "replica": 0},
                {"at": "80ms", "do": "fail", "replica": 1},
                {"at": "90ms", "do": "start", "replica": 0},
                {"at": "100ms", "do": "start", "replica": 1},
                {"at": "160ms", "do": "drain", "replica": 2},
                {"at": "165ms", "do": "start", "replica": 2},
            ],
            "cold_start": "20ms",
        },
    },
    "impatient": {"scheduler.client_timeout": "80ms"},
    "insistent": {
        "scheduler.client_timeout": "70ms",
        "scheduler.on_timeout": {"attempts": 4, "backoff": "5ms"},
    },
    # timing
    "measured": {"fleet.gpu": "h100-sxm", "engine": "vllm"},
    "reference-engine": {"engine": "reference"},
    "slow-host": {"engine": "transformers"},
    "fp8": {"precision": {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"}},
    "int8": {"precision": {"weights": "int8", "activations": "int8"}},
    "int4": {"precision": {"weights": "int4"}},
    "sorted": {"sampling": "sorted"},
    # model
    "experts": {"model": str(MODELS / "tiny-experts")},
    "expert-skew": {"model": {"path": str(MODELS / "tiny-experts"), "expert_skew": 1.2}},
    "windows": {"model": str(MODELS / "tiny-windows")},
    "chunks": {"model": str(MODELS / "tiny-chunks")},
    "expert-parallel": {
        "model": str(MODELS / "tiny-experts"),
        "fleet.tensor_parallel": 2,
        "fleet.expert_parallel": True,
    },
    "linear": {"model": str(MODELS / "tiny-linear")},
    "mamba": {"model": str(MODELS / "tiny-mamba")},
    "latent": {"model": str(MODELS / "tiny-latent")},
    "sparse": {"model": str(MODELS / "tiny-sparse")},
    "data-parallel": {
        "model": str(MODELS / "tiny-experts"),
        "fleet.data_parallel": 2,
        "fleet.expert_parallel": True,
    },
    "deepep": {
        "model": str(MODELS / "tiny-experts"),
        "fleet.data_parallel": 2,
        "fleet.expert_parallel": True,
        "fleet.all2all_backend": "deepep_low_latency",
    },
    "cadence": {
        "model": str(MODELS / "tiny-experts"),
        "fleet.data_parallel": 2,
        "fleet.expert_parallel": True,
        "scheduler.prefill_schedule_interval": 3,
    },
    # traffic
    "constant": arrivals("constant", rate=64),
    "gamma": arrivals("gamma", rate=60, cv=3),
    "burst": arrivals("burst"),
    "ramp": arrivals("ramp", rate=5, final_rate=200, duration="400ms"),
    "diurnal": arrivals("diurnal", rate=5, peak_rate=150, period="300ms"),
    "closed": arrivals("closed", concurrency=9),
    "closed-thinking": arrivals("closed", concurrency=9, think_time="20ms"),
    "sessions": {
        "kv_cache.enable_prefix_caching": True,
        "workload.sessions": {
            "turns": {"kind": "geometric", "mean": 3},
            "think_time": {"kind": "lognormal", "mean": "30ms", "cv": 1},
            "branches": {"kind": "uniform", "low": 1, "high": 2},
        },
    },
    "tool-sessions": {
        "workload.sessions": {
            "turns": {"kind": "uniform", "low": 1, "high": 4},
            "think_time": {"kind": "exponential", "mean": "50ms"},
            "tool_delay": {"kind": "fixed", "value": 0},
            "tool_share": 0.5,
            "keep_answer": False,
        },
    },
    "trace": trace("vllm-small.json", overlay=6, time_scale=0.02),
    "cached-trace": {
        "kv_cache.enable_prefix_caching": True,
        "max_model_len": 1024,
        **trace("mooncake-small.jsonl", overlay=3, time_scale=0.02),
    },
    "overlaid-trace": trace("azure-2024-small.csv", overlay=6.5, time_scale=0.1),
    "spread-trace": trace("burstgpt-small.csv", overlay=5, spread="1s", time_scale=0.05),
    "cancelled-trace": trace("cancelled-small.csv"),
    "equal-lengths": {
        "workload.prompt_tokens": {"kind": "fixed", "value": 48},
        "workload.output_tokens": {"kind": "fixed", "value": 12},
    },
    "joint-lengths": {
        "workload.lengths": {"kind": "joint", "path": str(DATA / "plain-small.csv")},
        "workload.prompt_tokens": None,
        "workload.output_tokens": None,
    },
    "mixture-lengths": {
        "workload.lengths": {
            "kind": "mixture",
            "parts": [
                {"share": 0.75, "prompt_tokens": 16, "output_tokens": 12},
                {
                    "share": 0.25,
                    "prompt_tokens": 160,
                    "output_tokens": {"kind": "uniform", "low": 1, "high": 4},
                },
            ],
        },
        "workload.prompt_tokens": None,
        "workload.output_tokens": None,
    },
    "one-token": {"workload.output_tokens": {"kind": "fixed", "value": 1}},
    "longer": {"assume": {"prompt_tokens": 1.5, "output_tokens": 2}},
    # run
    "horizon": {"run.horizon": "250ms"},
    "warmup": {"run.warmup": "50ms"},
}

LENGTHS_TWICE = "a trace replaces lengths"
NO_CADENCE = "keeps no cadence"
NO_RANKS = "data ranks of one engine cannot be pipelines"
IN_FLIGHT = "is not simulated with several batches in flight"
CONTINUOUS = "is a key of continuous batching"
OF_VLLM = "is a key of `policy: vllm`"
AHEAD = "goes without an order that preempts by rank"
TIERED = "modelled for `policy: vllm` without async_scheduling"
OWN_RULES = (
    *("sglang", "sglang-retracting", "lpm", "no-evict", "max-utilization"),
    *("prompts-wait", "ranks-wait"),
)
TRACES = ("trace", "cached-trace", "overlaid-trace", "spread-trace", "cancelled-trace")
TALKS = ("sessions", "tool-sessions")
UNCACHED = {
    "static": "starts every prompt at its beginning",
    "request": "starts every prompt at its beginning",
    "contiguous": "needs blocks",
    "no-evict": "none is modelled for guaranteed-no-evict",
    "max-utilization": "none is modelled for max-utilization",
    "prompts-wait": "none is modelled for max-utilization",
    "ranks-wait": "none is modelled for guaranteed-no-evict",
    "linear": "not modelled for models with a state",
    "mamba": "not modelled for models with a state",
}
"""What has no prefix cache, and why."""
DRAFTS = ("ngram", "eagle", "mtp", "drafts-by-batch", "async-drafts")
UNDRAFTED = {
    "static": "static batching has no rule for drafts",
    "request": "request batching has no rule for drafts",
    "prefill-first": "only vLLM's rule is modelled, not policy",
    "long-prefill": "a cap on the tokens of a prompt",
    "small-budget": "its drafts included: more than max_num_batched_tokens",
    **dict.fromkeys(OWN_RULES, "only vLLM's rule is modelled, not policy"),
    "priority": "is not modelled with drafts",
    "edf": "is not modelled with drafts",
    "contiguous": "has no blocks for drafts",
    **dict.fromkeys(
        ("host-tier", "slow-host-tier", "swap", "auto-swap"),
        "memory in the host is not modelled with drafts",
    ),
    "pipeline": "pipelines are not modelled with drafts",
    **dict.fromkeys(("linear", "mamba"), "not modelled for models with a state"),
}
"""What no tokens are drafted with, and why."""

UNDRAFTED_OTHERWISE = {
    ("drafts-by-batch", "small-budget"): "",  # 12 tokens at most
    **{
        ("async-drafts", name): why
        for names, why in (
            (("static", "request"), CONTINUOUS),
            (("prefill-first",), "has no async_scheduling"),
            (("priority", "edf"), AHEAD),
            (("pipeline",), IN_FLIGHT),
            (("sglang-retracting", "lpm"), ""),  # planned without async_scheduling
        )
        for name in names
    },
}
"""Of those what is refused for another reason, or is not refused."""

NOT_PUBLISHED = ("linear", "mamba")
"""Models other than the one that has a layer which drafts."""

UNTIERED = {
    "sglang": TIERED,
    "prefill-first": TIERED,
    "async": TIERED,
    "priority": TIERED,
    "edf": TIERED,
    "pipeline": "not modelled for a pipeline",
    **dict.fromkeys(("data-parallel", "deepep", "cadence"), "not modelled for data ranks"),
    **dict.fromkeys(("windows", "chunks"), "not modelled for models with windows"),
}
"""What has no memory in the host, and why; besides what has no prefix cache."""

UNSWAPPED = {
    **UNTIERED,
    **dict.fromkeys(
        ("static", "request", "sglang", "no-evict", "max-utilization", "prompts-wait"),
        TIERED,
    ),
    "contiguous": "has no blocks to move",
    "ranks-wait": "not modelled for data ranks",
    **{name: UNCACHED[name] for name in ("linear", "mamba")},
}
"""What cannot swap, and why."""

CACHED_TIERS = ("host-tier", "slow-host-tier")
SWAPPING = ("swap", "auto-swap")


PHASES = ("roles", "pushed")
ONE_PHASE = {
    **dict.fromkeys(
        (
            "static",
            "request",
            "prefill-first",
            *OWN_RULES[:-1],  # the last has a fleet of its own, as these have
            "async",
            "priority",
            "edf",
            "contiguous",
        ),
        "not modelled for pools of one phase",
    ),
    **dict.fromkeys(
        ("host-tier", "slow-host-tier", "swap", "auto-swap"), "not modelled for pools of one phase"
    ),
    **dict.fromkeys(
        ("shared-prefix", "cached-trace", "sessions"), "enable it in the prefill pools alone"
    ),
    **dict.fromkeys(("windows", "chunks"), "not modelled for models with windows"),
    **dict.fromkeys(("linear", "mamba"), "not modelled for models with a state"),
    "drafts-by-batch": "in pools of one phase the number of drafts does not follow the batch",
}
"""What is not modelled where pools prefill and decode apart, and why."""


UNADAPTED: Names = (
    *("static", "request", "prefill-first", "no-evict", "max-utilization", "prompts-wait"),
    *("ranks-wait", "lpm", "sjf", "priority", "edf", "fair"),
    *("host-tier", "slow-host-tier", "swap", "auto-swap", *DRAFTS, "pipeline", "two-models"),
    *("experts", "expert-skew", "windows", "chunks", "expert-parallel", "linear", "mamba"),
    *("latent", "sparse", "data-parallel", "deepep", "cadence", *PHASES),
)
"""What has no LoRA adapters."""

SCALED = ("autoscaled", "autoscaled-late", "autoscaled-to-none", "autoscaled-failing")
FAILING = ("failing", "lost", "autoscaled-failing")
IMPATIENT = ("impatient", "insistent")
UNFAILING: Mapping[str, str] = {
    **{name: f"not modelled for {name} batching" for name in ("static", "request")},
    **dict.fromkeys(
        ("host-tier", "slow-host-tier", "swap", "auto-swap"),
        "not modelled for memory in the host (kv_cache.host_memory)",
    ),
    "pipeline": "not modelled for several batches in flight",
}
"""What neither loses nor drops requests, and why."""

ONE_MODEL: Mapping[str, str] = {
    **dict.fromkeys(DRAFTS, "are not modelled with drafts"),
    **dict.fromkeys(("windows", "chunks", "linear", "mamba"), "with windows or a state"),
}
"""What is not modelled where a fleet serves several models, and why."""

UNSHED: Mapping[str, str] = {
    **dict.fromkeys(("static", "request"), "admission is not modelled for"),
    **dict.fromkeys(
        ("sjf", "priority", "edf", "fair", "lpm"), "admission is not modelled for the order"
    ),
    **dict.fromkeys(
        ("pipeline", "data-parallel", "deepep", "cadence", "ranks-wait"),
        "for data ranks or a pipeline",
    ),
    **dict.fromkeys(PHASES, "admission is not modelled for the role"),
    **dict.fromkeys((*FAILING, *IMPATIENT), "clients that send again what was refused"),
}
"""What has no requests refused that would be late, and why."""


def both(one: str, other: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The pair in either order."""
    return (one, other), (other, one)


REFUSED: Mapping[Names, str] = {
    ("power-limit", "measured"): "h100-sxm draws 120 W with nothing to do",
    **{
        (batching, scaled): f"autoscaling is not modelled for {batching} batching"
        for batching in ("static", "request")
        for scaled in SCALED
    },
    **{pair: why for name, why in ONE_MODEL.items() for pair in both("two-models", name)},
    ("contiguous", "tiny-memory"): "contiguous allocation reserves max_model_len",
    **dict.fromkeys(
        ((name, "cadence") for name in ("static", "request", "priority", "edf")),
        NO_CADENCE,
    ),
    ("trace", "joint-lengths"): LENGTHS_TWICE,
    ("trace", "mixture-lengths"): LENGTHS_TWICE,
    ("overlaid-trace", "joint-lengths"): LENGTHS_TWICE,
    ("overlaid-trace", "mixture-lengths"): LENGTHS_TWICE,
    ("spread-trace", "joint-lengths"): LENGTHS_TWICE,
    ("spread-trace", "mixture-lengths"): LENGTHS_TWICE,
    ("cancelled-trace", "joint-lengths"): LENGTHS_TWICE,
    ("cancelled-trace", "mixture-lengths"): LENGTHS_TWICE,
    ("static", "pipeline"): IN_FLIGHT,
    ("request", "pipeline"): IN_FLIGHT,
    ("prefill-first", "pipeline"): IN_FLIGHT,
    ("priority", "pipeline"): IN_FLIGHT,
    ("edf", "pipeline"): IN_FLIGHT,
    ("pipeline", "data-parallel"): NO_RANKS,
    ("pipeline", "cadence"): NO_RANKS,
    ("pipeline", "deepep"): NO_RANKS,
    **dict.fromkeys(product(("static", "request"), (*OWN_RULES, "async")), CONTINUOUS),
    **dict.fromkeys(product(("long-prefill", "no-reserve"), OWN_RULES), OF_VLLM),
    **dict.fromkeys(
        product(("sglang", "no-evict", "prompts-wait", "ranks-wait"), ("tiny-memory",)), OF_VLLM
    ),
    **dict.fromkeys(product(OWN_RULES, ("contiguous",)), "counts free pages"),
    **dict.fromkeys(product(OWN_RULES, ("cadence",)), OF_VLLM),
    **dict.fromkeys(product(("prompts-wait",), ("data-parallel", "deepep")), "lets no prompt wait"),
    **dict.fromkeys(product((*OWN_RULES, "async"), ("pipeline",)), IN_FLIGHT),
    ("ranks-wait", "pipeline"): NO_RANKS,
    ("prefill-first", "async"): "has no async_scheduling",
    **dict.fromkeys(product(("static", "request"), ("prefill-first",)), CONTINUOUS),
    **dict.fromkeys(
        product(("prefill-first",), ("long-prefill", "no-reserve", "tiny-memory", "cadence")),
        OF_VLLM,
    ),
    ("async", "priority"): AHEAD,
    ("async", "edf"): AHEAD,
    ("cached-trace", "joint-lengths"): LENGTHS_TWICE,
    ("cached-trace", "mixture-lengths"): LENGTHS_TWICE,
    **dict.fromkeys(product(("shared-prefix", "lpm"), TRACES), "a trace replaces shared_prefix"),
    **{("lpm", name): UNCACHED[name] for name in ("linear", "mamba")},
    **dict.fromkeys(product(("lpm",), ("windows", "chunks")), "SGLang's is not modelled for"),
    **dict.fromkeys(product(("ramp", "diurnal"), TALKS), "arrivals with sessions are not"),
    **dict.fromkeys(product(TALKS, TRACES), "a trace replaces sessions"),
    **{pair: why for name, why in UNCACHED.items() for pair in both("sessions", name)},
    **{pair: why for name, why in UNCACHED.items() for pair in both("shared-prefix", name)},
    **{pair: why for name, why in UNCACHED.items() for pair in both("cached-trace", name)},
    **{(tier, name): "a trace replaces shared_prefix" for tier in CACHED_TIERS for name in TRACES},
    **{
        pair: why
        for tier in CACHED_TIERS
        for name, why in (UNTIERED | UNCACHED).items()
        for pair in both(tier, name)
        if name != "sglang-retracting"  # which wants another size of blocks
    },
    **{
        pair: why
        for tier in SWAPPING
        for name, why in UNSWAPPED.items()
        for pair in both(tier, name)
    },
    **{
        pair: why
        for drafts in DRAFTS
        for name, why in UNDRAFTED.items()
        if (drafts, name) not in UNDRAFTED_OTHERWISE
        and (drafts != "mtp" or name not in NOT_PUBLISHED)
        for pair in both(drafts, name)
    },
    ("async", "ngram"): "refuses it for n-gram drafts",
    ("async", "drafts-by-batch"): "not modelled with plans made ahead",
    **dict.fromkeys(
        product(
            ("async-drafts",),
            ("data-parallel", "deepep", "cadence", "roles", "pushed", "windows", "chunks"),
        ),
        "not modelled",
    ),
    **{pair: why for names, why in UNDRAFTED_OTHERWISE.items() if why for pair in both(*names)},
    **dict.fromkeys(
        product(("drafts-by-batch",), ("data-parallel", "deepep", "cadence")),
        "vLLM switches num_tokens_per_batch_size off on data ranks",
    ),
    **{
        (name, other): why
        for name, why in UNFAILING.items()
        for other in (*FAILING, *IMPATIENT, "steered")
    },
    ("lost", "steered"): "give one of the two",
    **{pair: "lora: adapters are" for name in UNADAPTED for pair in both("lora", name)},
    **dict.fromkeys(
        product(("sglang", "sglang-retracting", "lpm"), IMPATIENT),
        "whose estimates count on requests",
    ),
    **dict.fromkeys(product(PHASES, IMPATIENT), "not modelled for pools of one phase"),
    **dict.fromkeys(
        [
            *product(("least-kv", "data-parallel-score", "prefix-affinity"), ("lost", "steered")),
            ("session-affinity", "failing"),
        ],
        "not modelled for replicas that come and go",
    ),
    **dict.fromkeys(product(("static", "request"), ("fair",)), "order fair is not modelled for"),
    **{pair: why for name, why in UNSHED.items() for pair in both("shedding", name)},
    **{
        pair: why for name, why in ONE_PHASE.items() for role in PHASES for pair in both(role, name)
    },
}
"""Pairs that no scenario may have together, and words of the refusal."""

ALIKE: Mapping[str, tuple[str, ...]] = {
    "sglang": ("sglang-retracting",),
    "priority": ("sjf", "edf"),
    "no-evict": ("prompts-wait",),
    "host-tier": ("slow-host-tier",),
    "swap": ("auto-swap",),
    "ngram": ("eagle", "mtp", "async-drafts"),
    "tensor-parallel": ("power-limit", "link", "node"),
    "least-outstanding": (
        *("round-robin", "random", "power-of-two", "least-kv", "data-parallel-score"),
        "session-affinity",
    ),
    "roles": ("pushed",),
    "two-pools": ("weighted-pools", "weighted-turns"),
    "autoscaled": ("autoscaled-late",),
    "failing": ("lost",),
    "insistent": ("impatient",),
    "measured": ("reference-engine", "slow-host"),
    "fp8": ("int8", "int4"),
    "expert-parallel": ("experts", "expert-skew"),
    "data-parallel": ("deepep",),
    "windows": ("chunks",),
    "linear": ("mamba",),
    "latent": ("sparse",),
    "constant": ("gamma", "ramp", "diurnal"),
    "closed": ("closed-thinking",),
    "sessions": ("tool-sessions",),
    "trace": ("overlaid-trace", "spread-trace"),
    "equal-lengths": ("joint-lengths", "mixture-lengths"),
}
"""Features that the event loop meets in the same places. A pair with one on the right repeats much
of the pair with the one on the left: only `make thorough` runs it."""


def cases() -> Iterator[Names]:
    """Every feature alone, and every pair that can be had together; in the order of the rows."""
    yield from ((name,) for name in FEATURES)
    for pair in combinations(FEATURES, 2):
        if pair not in REFUSED and not alternatives(*pair):
            yield pair


def is_thorough(names: Names) -> bool:
    """Whether it is a pair that much of another one repeats."""
    return len(names) > 1 and any(name in like for like in ALIKE.values() for name in names)


def alternatives(one: str, other: str) -> bool:
    """Whether the two features want another value of the same thing."""
    return any(
        mine != theirs
        if key == their_key
        else f"{key}.".startswith(f"{their_key}.") or f"{their_key}.".startswith(f"{key}.")
        for key, mine in FEATURES[one].items()
        for their_key, theirs in FEATURES[other].items()
    )


def scenario_of(names: Names) -> Scenario:
    """The base scenario with these features; InfersimError if it is refused."""
    changes: dict[str, Any] = {}
    for name in names:
        changes |= FEATURES[name]
    return sim.load_scenario(changed(BASE, changes))


RULES_CROSSED: Names = (
    *("static", "request", "whole-prompts", "prefill-first", "long-prefill", "sglang"),
    *("sglang-retracting", "no-evict", "max-utilization", "prompts-wait", "async", "priority"),
)
"""Features of which each makes a policy, or another rule of one."""

KINDS_CROSSED: Mapping[str, Names] = {
    "dense": (),
    "windows": ("windows",),
    "chunks": ("chunks",),
    "state": ("mamba",),
    "hybrid": ("windows", "shared-prefix"),
}
"""Features that make each kind of memory."""


def crosses() -> Iterator[tuple[str, str, bool]]:
    """Every policy with every kind of memory that it can have, tight and ample."""
    for rule, kind in product(RULES_CROSSED, KINDS_CROSSED):
        names = sorted((rule, *KINDS_CROSSED[kind]), key=list(FEATURES).index)
        pairs = set(combinations(names, 2))
        if not pairs & REFUSED.keys() and (rule, kind) not in UNCROSSED:
            yield from ((rule, kind, tight) for tight in (False, True))


UNCROSSED = {
    ("prefill-first", "hybrid"): "`policy: vllm`",
    ("sglang", "hybrid"): "SGLang's is not modelled",
    ("sglang-retracting", "hybrid"): "SGLang's is not modelled",
    ("priority", "hybrid"): "does not preempt by rank",
}
"""What three features together are refused for, though no two of them are."""


def crossed(rule: str, kind: str, tight: bool) -> Scenario:
    """A policy with a kind of memory, enough for all slots, or for one to two requests."""
    changes: dict[str, Any] = {}
    for name in (rule, *KINDS_CROSSED[kind]):
        changes |= FEATURES[name]
    together = {"workload.arrivals": {"kind": "burst"}, "kv_cache.num_gpu_blocks": 4_000}
    ample = changed(BASE, changes | together)
    if not tight:
        return sim.load_scenario(ample)
    pool = prepare(sim.load_scenario(ample)).only
    needed = make_allocator(pool).blocks_for(180) + pool.capacity.null_blocks
    return sim.load_scenario(changed(ample, {"kv_cache.num_gpu_blocks": needed * 3 // 2}))


def check_together(names: Names) -> dict[str, int]:
    """Run these features together and check; what happened in the run, in numbers."""
    return check_scenario(scenario_of(names))


def check_scenario(scenario: Scenario) -> dict[str, int]:
    """The same of a scenario."""
    setup = prepare(scenario)
    leaps = sim.simulate(scenario, leap=True)
    fixed = leaps.record.attempts is None and all(
        pool.settings.scales is None for pool in setup.pools
    )
    in_harness: list[Played] = []
    if fixed and len(setup.pools) == 1:  # the harness has replicas of one kind, always there
        in_harness = [played(setup, leap) for leap in (True, False)]
        check_tokens(*in_harness, scenario)
    if in_harness and alike(setup):
        check_steps(leaps.record, RecordedSteps.of(in_harness[1].recorder))
    else:
        steps = sim.simulate(scenario, leap=False).record
        assert leaps.record.end == steps.end
        check_steps(leaps.record, RecordedSteps(steps.requests, steps.plans, steps.moves))
        mine, theirs = leaps.record.attempts, steps.attempts
        if mine is not None and theirs is not None:
            for table in ("failed", "outages", "again"):
                assert getattr(mine, table).tobytes() == getattr(theirs, table).tobytes(), table
            assert mine.chunks["tokens"].sum() == theirs.chunks["tokens"].sum()
    check(leaps)
    own = leaps.summary["infersim"]
    return {
        "preempted": own["preemptions"],
        "leapt": int((leaps.record.plans["iterations"] > 1).sum()),
        "moved": len(leaps.record.moves),
        **{key: own["requests"][key] for key in ("completed", "rejected", "unfinished")},
    }


class RecordedSteps(NamedTuple):
    """What a run without leaps recorded."""

    requests: NDArray[Any]
    plans: NDArray[Any]
    moves: NDArray[Any] | None

    @classmethod
    def of(cls, recorder: Recorder) -> RecordedSteps:
        """The same of a run in the harness."""
        return cls(recorder.request_rows(), recorder.plan_rows(), recorder.move_rows())


def alike(setup: Setup) -> bool:
    """Whether the harness plays a scenario to the end as ``simulate`` does: it has no front end and
    no admission, and a stream of its own for routers that draw."""
    scenario = setup.scenario
    return (
        scenario.run.horizon is None
        and scenario.admission is None
        and front_end_of(setup.pools) == 0
        and not (scenario.replicas > 1 and router_class(scenario.router).draws)
    )


def check_steps(leaps: RunRecord, steps: RecordedSteps) -> None:
    """A run with leaps recorded what one without them did, to the last bit."""
    assert leaps.requests.tobytes() == steps.requests.tobytes()
    for column in ("iterations", "preemptions", "prefill_tokens", "admitted", "finished"):
        assert leaps.plans[column].sum() == steps.plans[column].sum(), column
    assert leaps.moves is not None
    assert steps.moves is not None
    assert leaps.moves.tobytes() == steps.moves.tobytes()


def played(setup: Setup, leap: bool) -> Played:
    """The run of a scenario in the harness that writes down when each token came."""
    scenario = setup.scenario
    traffic = build(scenario, scenario.seed)
    rows: Any
    if isinstance(traffic, SessionTraffic):
        rows = traffic
    elif isinstance(traffic, OpenTraffic):
        rows = [row for chunk in traffic.chunks() for row in chunk.rows()]
    else:
        lengths = [row for chunk in traffic.lengths() for row in chunk.rows()]
        rows = (traffic.concurrency, traffic.think_time, lengths)
    return play(
        rows,
        lambda: make_replica_scheduler(setup.only),
        setup.only.cost,
        leap=leap,
        replicas=scenario.replicas,
        router=scenario.router,
        ranks=setup.only.deployment.layout.data,
        horizon=scenario.run.horizon,
        adapters=adapter_draw(scenario),
    )


def check_tokens(leaps: Played, steps: Played, scenario: Scenario) -> None:
    """Each token came at the same time with leaps and without, none is missing, and memory is free
    at the end."""
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.unfinished == steps.unfinished
    rows = leaps.recorder.request_rows()
    assert rows.tobytes() == steps.recorder.request_rows().tobytes()
    for row in rows:
        times = leaps.tokens.get(int(row["id"]), [])
        assert len(times) == row["generated"]
        assert times == sorted(times)
        assert not times or times[0] == row["first_token"]
        assert math.isnan(row["finish"]) or times[-1] == row["finish"]
    if scenario.run.horizon is None:
        for replica in leaps.replicas + steps.replicas:
            assert replica.outstanding == 0
            assert replica.scheduler.kv.reserved == 0
