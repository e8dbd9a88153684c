"""Leaps change nothing, nothing hangs and nothing leaks in random scenarios (their generator says
what they cross); `make thorough` plays more of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.places import MODELS, VLLM
from tests.random_scenarios import KINDS, POLICIES, Bounded, check_scenario, check_seed, drawn


def like(
    model: str, scheduler: dict[str, Any], kv: dict[str, Any], lengths: str, **others: Any
) -> dict[str, Any]:
    """A scenario as they are drawn; of lengths LOW-HIGH/LOW-HIGH."""
    prompt, output = (
        {"kind": "uniform", "low": int(low), "high": int(high)}
        for low, high in (law.split("-") for law in lengths.split("/"))
    )
    workload = {"prompt_tokens": prompt, "output_tokens": output}
    workload["arrivals"] = others.pop("arrivals", {"kind": "burst"})
    return {
        "model": model if "llama" in model else str(MODELS / model),
        "engine": "ideal",
        "fleet": {"gpu": "a10g"},
        "max_model_len": 256,
        "scheduler": scheduler,
        "kv_cache": kv,
        "workload": workload,
        "run": {"requests": 40, "warmup": 0},
        **others,
    }


WHOLE = {"max_num_seqs": 6, "max_num_batched_tokens": 256, "chunked_prefill": False}
FOUND = {
    "padded slots whose members begin chunks at other times": like(
        "tiny-chunks", {"batching": "static", "max_num_seqs": 3}, {"block_size": 1}, "7-60/20-40"
    ),
    "a whole batch that fills more behind windows in a leap than it takes": like(
        "tiny-chunks",
        {
            "batching": "request",
            "batch_timeout": "4ms",
            "max_num_seqs": 16,
            "max_num_batched_tokens": 32,
        },
        {"block_size": 16, "num_gpu_blocks": 44},
        "75-150/20-40",
        arrivals={"kind": "closed", "concurrency": 9},
        engine="vllm",
        fleet={"gpu": "a10g", "replicas": 3},
        router="round-robin",
        run={"requests": 8, "warmup": 0},
        seed=846167,
    ),
    "SGLang's preemptions for a prompt that goes on": like(
        "tiny-windows",
        {
            "policy": "sglang",
            "async_scheduling": False,
            "enable_mixed_chunk": True,
            "max_tokens": 1,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 96,
        },
        {"block_size": 1, "num_gpu_blocks": 1065},
        "150-150/8-8",
    ),
    "preemptions that leave nothing to run, where requests on their way hold the memory": like(
        "llama-3.2-1b",
        WHOLE,
        {"block_size": 1, "num_gpu_blocks": 301},
        "150-150/1-8",
        arrivals={"kind": "gamma", "rate": 150, "cv": 2},
        fleet=[
            {"name": "prompts", "role": "prefill", "gpu": "a10g"},
            {"name": "answers", "role": "decode", "gpu": "a10g", "replicas": 2},
        ],
    ),
    "the same where batches in flight do": like(
        "tiny-linear",
        WHOLE,
        {"block_size": 3, "num_gpu_blocks": 13},
        "75-150/5-40",
        fleet={"gpu": "l40s", "pipeline_parallel": 2},
    ),
    "a prefix that is evicted, without which a first chunk needs less": like(
        "tiny-windows",
        {"max_num_seqs": 16, "max_num_batched_tokens": 32, "scheduler_reserve_full_isl": False},
        {"block_size": 16, "enable_prefix_caching": True, "num_gpu_blocks": 111},
        "75-150/50-100",
        arrivals={"kind": "gamma", "rate": 40, "cv": 2},
        engine="vllm",
        fleet={"gpu": "l40s"},
        run={"requests": 20, "warmup": 0},
        seed=413501,
    ),
}
"""Scenarios that showed a fault."""


@pytest.mark.parametrize("scenario", FOUND.values(), ids=FOUND)
def test_what_once_failed_holds(scenario: dict[str, Any]) -> None:
    assert check_scenario(scenario)["run"]


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_leaps_change_nothing_nothing_hangs_and_nothing_leaks(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 10):
        seen += check_seed(number)
    assert seen["run"] >= 7
    assert seen["leapt"] >= 3


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 3100, 50))
def test_nor_in_many_more(seed: int) -> None:
    for number in range(seed, seed + 50):
        check_seed(number)


def test_the_scenarios_cross_policies_and_kinds_of_memory() -> None:
    made = [drawn(seed) for seed in range(150)]
    assert {each["model"] for each in made} >= set(KINDS.values())
    knobs = [each["scheduler"] for each in made]
    rules = {each.get("policy") or each.get("batching") for each in knobs}
    assert rules == {
        *(None, "vllm-v0", "sglang", "guaranteed-no-evict", "max-utilization"),
        *("static", "request"),
    }
    assert len(POLICIES) > len(rules)  # vLLM's rule in five ways
    tight = [each for each in made if each["kv_cache"].get("num_gpu_blocks") is not None]
    assert len(made) / 3 < len(tight) < len(made) * 2 / 3


def test_a_run_that_does_not_end_is_seen() -> None:
    bounded = Bounded(3)
    assert [bounded.requested for _ in range(5)] == [False, False, False, True, True]


SESSIONS: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "l40s"},
    "engine": VLLM,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 70},
        "output_tokens": {"kind": "fixed", "value": 30},
        "sessions": {
            "turns": {"kind": "fixed", "value": 3},
            "think_time": {"kind": "fixed", "value": "20ms"},
        },
    },
    "run": {"requests": 25, "warmup": 0},
}
SCALED: dict[str, Any] = {
    "fleet": {"gpu": "l40s", "replicas": {"min": 1, "max": 3}},
    "autoscaling": {"metric": "running", "target": 2, "interval": "20ms", "cold_start": "10ms"},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"failures": {"mtbf": "200ms", "repair": "50ms", "in_flight": "lost"}},
        {**SCALED, "failures": {"mtbf": "200ms", "repair": "50ms", "in_flight": "lost"}},
        {**SCALED, "admission": {"policy": "deadline"}, "slo": {"ttft": "40ms"}},
        {**SCALED, "scheduler": {"client_timeout": "30ms"}},
    ],
    ids=["replicas fail", "scaled replicas fail", "requests are refused", "clients give up"],
)
def test_a_run_ends_whose_sessions_lose_turns(changes: dict[str, Any]) -> None:
    """A session that ends early never sends its other turns, for which nothing waits."""
    seen = check_scenario({**SESSIONS, **changes})
    assert seen["gave_up"] + seen["rejected"]
