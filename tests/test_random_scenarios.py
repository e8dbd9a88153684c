"""Leaps change nothing, nothing hangs and nothing leaks in random scenarios (their generator says
what they cross); `make thorough` plays more of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.random_scenarios import KINDS, POLICIES, Bounded, check_scenario, check_seed, drawn

FOUND = {
    "padded slots, and members whose chunks begin at other times": 246,
    "SGLang's preemptions for a prompt that goes on": 1269,
    "preemptions that leave nothing to run, where others hold the memory": 307,
    "the same in a pipeline": 10373,
    "requests at the gateway of a pool that has no replica": 953,
}
"""Seeds of scenarios that showed a fault."""


@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND)
def test_what_once_failed_holds(seed: int) -> None:
    check_seed(seed)


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
