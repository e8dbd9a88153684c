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
from typing import Any

import sim
from sim.pools import make_replica_scheduler
from sim.scenario import Scenario
from sim.simulation import Setup, prepare
from sim.workload import OpenTraffic, build
from tests.golden_scenarios import changed
from tests.harness import Played, play
from tests.places import DATA, MODELS
from tests.test_fuzz import check

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
    "prefill-first": {
        "scheduler.chunked_prefill": False,
        "scheduler.max_num_batched_tokens": 256,
    },
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
    "no-evict": {"scheduler.policy": "guaranteed-no-evict", "scheduler.max_tokens": 100},
    "async": {"scheduler.async_scheduling": True},
    # order
    "sjf": {"scheduler.order": "sjf"},
    "priority": {"scheduler.order": "priority", "workload.classes": CLASSES},
    "edf": {"scheduler.order": "edf", "workload.classes": CLASSES},
    "classes": {"workload.classes": CLASSES},
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
    "tensor-parallel": {"fleet.tensor_parallel": 2},
    "pipeline": {"fleet.pipeline_parallel": 2},
    # timing
    "measured": {"fleet.gpu": "h100-sxm", "engine": "vllm"},
    "reference-engine": {"engine": "reference"},
    "slow-host": {"engine": "transformers"},
    "fp8": {"precision": {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"}},
    "int8": {"precision": {"weights": "int8", "activations": "int8"}},
    "int4": {"precision": {"weights": "int4"}},
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
    "trace": trace("vllm-small.json", overlay=6, time_scale=0.02),
    "cached-trace": {
        "kv_cache.enable_prefix_caching": True,
        "max_model_len": 1024,
        **trace("mooncake-small.jsonl", overlay=3, time_scale=0.02),
    },
    "overlaid-trace": trace("azure-2024-small.csv", overlay=6.5, time_scale=0.1),
    "spread-trace": trace("burstgpt-small.csv", overlay=5, spread="1s", time_scale=0.05),
    "equal-lengths": {
        "workload.prompt_tokens": {"kind": "fixed", "value": 48},
        "workload.output_tokens": {"kind": "fixed", "value": 12},
    },
    "joint-lengths": {
        "workload.lengths": {"kind": "joint", "path": str(DATA / "plain-small.csv")},
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
AHEAD = "goes with chunked_prefill and without an order that preempts by rank"
OWN_RULES = ("sglang", "sglang-retracting", "no-evict")
TRACES = ("trace", "cached-trace", "overlaid-trace", "spread-trace")
UNCACHED = {
    "static": "starts every prompt at its beginning",
    "request": "starts every prompt at its beginning",
    "contiguous": "needs blocks",
    "windows": "not modelled yet for models with windows",
    "chunks": "not modelled yet for models with windows",
    **dict.fromkeys(OWN_RULES, "goes with `scheduler.policy: vllm`"),
    "linear": "not modelled yet for models with a state",
    "mamba": "not modelled yet for models with a state",
}
"""What has no prefix cache, and why."""


def both(one: str, other: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The pair in either order."""
    return (one, other), (other, one)


REFUSED: Mapping[tuple[str, str], str] = {
    ("contiguous", "tiny-memory"): "contiguous allocation reserves max_model_len",
    **dict.fromkeys(
        ((name, "cadence") for name in ("static", "request", "prefill-first", "priority", "edf")),
        NO_CADENCE,
    ),
    ("trace", "joint-lengths"): LENGTHS_TWICE,
    ("overlaid-trace", "joint-lengths"): LENGTHS_TWICE,
    ("spread-trace", "joint-lengths"): LENGTHS_TWICE,
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
    **dict.fromkeys(product(("sglang", "no-evict"), ("tiny-memory",)), OF_VLLM),
    **dict.fromkeys(product(OWN_RULES, ("contiguous",)), "counts free pages"),
    **dict.fromkeys(product(OWN_RULES, ("cadence",)), OF_VLLM),
    **dict.fromkeys(product((*OWN_RULES, "async"), ("pipeline",)), IN_FLIGHT),
    ("prefill-first", "async"): AHEAD,
    ("async", "priority"): AHEAD,
    ("async", "edf"): AHEAD,
    ("cached-trace", "joint-lengths"): LENGTHS_TWICE,
    **{("shared-prefix", name): "a trace replaces shared_prefix" for name in TRACES},
    **{pair: why for name, why in UNCACHED.items() for pair in both("shared-prefix", name)},
    **{pair: why for name, why in UNCACHED.items() for pair in both("cached-trace", name)},
}
"""Pairs that no scenario may have together, and words of the refusal."""

Names = tuple[str, ...]


def cases() -> Iterator[Names]:
    """Every feature alone, and every pair that can be had together; in the order of the rows."""
    yield from ((name,) for name in FEATURES)
    for pair in combinations(FEATURES, 2):
        if pair not in REFUSED and not alternatives(*pair):
            yield pair


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


def check_together(names: Names) -> dict[str, int]:
    """Run these features together and check; what happened in the run, in numbers."""
    scenario = scenario_of(names)
    leaps, steps = (sim.simulate(scenario, leap=leap) for leap in (True, False))
    assert leaps.record.requests.tobytes() == steps.record.requests.tobytes()
    assert leaps.record.end == steps.record.end
    for column in ("iterations", "preemptions", "prefill_tokens", "admitted", "finished"):
        mine, theirs = leaps.record.plans[column], steps.record.plans[column]
        assert mine.sum() == theirs.sum(), column
    check(leaps)
    setup = prepare(scenario)
    check_tokens(*(played(setup, leap) for leap in (True, False)), scenario)
    own = leaps.summary["infersim"]
    return {
        "preempted": own["preemptions"],
        "leapt": int((leaps.record.plans["iterations"] > 1).sum()),
        **{key: own["requests"][key] for key in ("completed", "rejected", "unfinished")},
    }


def played(setup: Setup, leap: bool) -> Played:
    """The run of a scenario in the harness that writes down when each token came."""
    scenario = setup.scenario
    traffic = build(scenario, scenario.seed)
    rows: Any
    if isinstance(traffic, OpenTraffic):
        rows = [row for chunk in traffic.chunks() for row in chunk.rows()]
    else:
        lengths = [row for chunk in traffic.lengths() for row in chunk.rows()]
        rows = (traffic.concurrency, traffic.think_time, lengths)
    return play(
        rows,
        lambda: make_replica_scheduler(setup.only),
        setup.only.cost,
        leap=leap,
        replicas=scenario.fleet[0].replicas,
        router=scenario.router,
        ranks=setup.only.deployment.layout.data,
        horizon=scenario.run.horizon,
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
