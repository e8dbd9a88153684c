"""Batches that go round in a pipeline: with leaps and without, results are the same to the bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import sim
from sim.errors import InfersimError
from tests.random_scenarios import Bounded, Chance, Scenario

EVENTS = 400_000


def drawn(chance: Chance) -> Scenario:
    """A random scenario of pipelines: few requests or many at a time, in much memory or little."""
    prompt, output = chance.choice([20, 150]), chance.choice([8, 60, 400])
    block = chance.choice([3, 16])
    made: Scenario = {
        "model": "llama-3.2-1b",
        "seed": chance.randint(0, 10**6),
        "engine": chance.choice(["ideal", "vllm"]),
        "fleet": {"gpu": chance.choice(["a10g", "l40s"]), "replicas": chance.choice([1, 1, 3])},
        "router": chance.choice(["least-kv", "least-outstanding", "random"]),
        "max_model_len": 640,
        "scheduler": {
            "max_num_seqs": chance.choice([3, 16]),
            "max_num_batched_tokens": chance.choice([64, 512]),
        },
        "kv_cache": {"block_size": block, "enable_prefix_caching": chance.random() < 0.6},
        "workload": {
            "arrivals": chance.choice(
                [
                    *({"kind": "poisson", "rate": rate} for rate in (3, 10, 40, 200)),
                    {"kind": "constant", "rate": 25},
                    {"kind": "closed", "concurrency": 4},
                    {"kind": "burst"},
                ]
            ),
            "prompt_tokens": {"kind": "uniform", "low": prompt // 4, "high": prompt},
            "output_tokens": {"kind": "uniform", "low": output // 2, "high": output},
        },
        "run": {"requests": 30, "warmup": 0},
    }
    made["fleet"]["pipeline_parallel"] = chance.choice([2, 3, 4])
    if chance.random() < 0.4:
        whole = -(-(prompt + output) // block)
        made["kv_cache"]["num_gpu_blocks"] = whole + 2 + chance.randint(0, 3 * whole)
    feature = chance.choice(["", "", "prefix", "sessions", "horizon", "scaled"])
    made |= FEATURES.get(feature, {})
    if feature == "prefix":
        made["workload"]["shared_prefix"] = {"tokens": 50, "groups": 2}
    if feature == "sessions":
        made["workload"]["sessions"] = {
            "turns": {"kind": "uniform", "low": 1, "high": 3},
            "think_time": {"kind": "fixed", "value": "10ms"},
        }
    if feature == "scaled":
        made["fleet"]["replicas"], made["router"] = {"min": 1, "max": 3}, "random"
    return made


FEATURES: dict[str, Any] = {
    "horizon": {"run": {"requests": 30, "warmup": 0, "horizon": "400ms"}},
    "scaled": {
        "autoscaling": {"metric": "kv", "target": 0.3, "interval": "20ms", "cold_start": "10ms"}
    },
}


def check(made: Scenario) -> Counter[str]:
    """Run it both ways, and compare; what happened."""
    try:
        scenario = sim.load_scenario(made)
        leaps = sim.simulate(scenario, leap=True, stop=Bounded(EVENTS))
    except InfersimError:
        return Counter(refused=1)
    steps = sim.simulate(scenario, leap=False, stop=Bounded(EVENTS))
    mine, theirs = leaps.record, steps.record
    assert not mine.interrupted
    assert not theirs.interrupted
    assert mine.requests.tobytes() == theirs.requests.tobytes()
    assert mine.plans.tobytes() == theirs.plans.tobytes()
    assert mine.gaps.tobytes() == theirs.gaps.tobytes()
    for rows, others in zip(mine.trail, theirs.trail, strict=True):
        assert rows.tobytes() == others.tobytes()
    assert repr(leaps.summary) == repr(steps.summary)
    own = leaps.summary["infersim"]
    return Counter(
        run=1,
        leapt=mine.events < theirs.events / 2,
        preempted=own["preemptions"] > 0,
        several=len({row // 4 for row in mine.plans["replica"]}) > 1,
        unfinished=own["requests"]["unfinished"] > 0,
    )


@pytest.mark.parametrize("seed", range(0, 80, 20))
def test_leaps_change_no_bit(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 20):
        seen += check(drawn(Chance(f"rounds {number}")))
    assert seen["run"] == 20
    assert seen["leapt"] >= 5
    assert seen["preempted"]


def test_a_pass_that_ends_with_the_run_is_in_it() -> None:
    made: Scenario = {
        "model": "llama-3.2-1b",
        "fleet": {"gpu": "l40s", "pipeline_parallel": 2},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 200},
        },
        "run": {"requests": 3, "warmup": 0},
    }
    ends = sim.simulate(sim.load_scenario(made)).record.plans["end"]
    made["run"] |= {"horizon": float(ends[100])}
    assert check(made)["leapt"]
    assert sim.simulate(sim.load_scenario(made)).record.plans["end"][-1] == ends[100]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1000, 3000, 50))
def test_nor_in_many_more(seed: int) -> None:
    for number in range(seed, seed + 50):
        check(drawn(Chance(f"rounds {number}")))
