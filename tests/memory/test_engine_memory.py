"""Memory as engines take it: bytes in place of a share, SGLang's pool of states, choices of fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import InfeasibleError, ScenarioError, UsageError
from sim.pools import PreparedPool
from sim.simulation import prepare

GIB = 2**30
ASKED = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h200-sxm"},
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 8},
        "prompt_tokens": {"kind": "fixed", "value": 512},
        "output_tokens": {"kind": "fixed", "value": 100},
    },
    "run": {"requests": 40},
}
HYBRID = {"model": "qwen3.5-35b-a3b", "engine": "sglang"}


def pool(**changes: Any) -> PreparedPool:
    return prepare(sim.load_scenario({**ASKED, **changes})).pools[0]


def test_kv_memory_in_bytes_takes_the_place_of_a_share() -> None:
    """A block of 16 tokens in bf16 takes 2 MiB, and vLLM keeps one of them."""
    memory = pool(kv_cache={"memory": "16GiB"}).capacity
    assert memory.num_gpu_blocks == 16 * GIB // 2**21
    assert pool(kv_cache={"memory": "8GiB"}).capacity.num_gpu_blocks == 8 * GIB // 2**21


def test_kv_memory_that_does_not_fit_next_to_the_weights_is_refused() -> None:
    for size in ("130GiB", "300GiB"):
        with pytest.raises(InfeasibleError, match="does not fit"):
            pool(kv_cache={"memory": size})
    with pytest.raises(ScenarioError, match="num_gpu_blocks says it in blocks"):
        pool(kv_cache={"memory": "16GiB", "num_gpu_blocks": 100})


def test_a_split_without_a_pool_of_states_is_refused() -> None:
    for changes in ({}, {"model": HYBRID["model"]}):
        with pytest.raises(UsageError, match="no pool of states"):
            pool(**changes, kv_cache={"state_ratio": 0.5})


def test_sglang_splits_its_memory_between_states_and_kv() -> None:
    """0.9 to 1 by default: without a prefix cache each request has one slot of the states, and no
    more can run."""
    found = pool(**HYBRID, kv_cache={"enable_prefix_caching": False})
    memory, state = found.capacity, found.deployment.state_bytes()
    assert memory.states / memory.kv_cache == pytest.approx(0.9, rel=0.01)
    assert memory.block_size == 1
    assert found.limits.max_num_seqs == memory.sequences == int(memory.states / state + 0.5)
    few = pool(**HYBRID, kv_cache={"enable_prefix_caching": False, "state_ratio": 0.2})
    assert few.capacity.states / few.capacity.kv_cache == pytest.approx(0.2, rel=0.01)
    assert few.limits.max_num_seqs < found.limits.max_num_seqs


@pytest.mark.parametrize(("release", "slots"), [("0.5.6", 3), ("0.5.13", 3), ("0.5.14", 5)])
def test_cached_prefixes_take_slots_of_the_states(release: str, slots: int) -> None:
    """SGLang's radix cache is on by default, and each running request has so many slots then."""
    hybrid = {**HYBRID, "engine": f"sglang@{release}"}
    found, plain = pool(**hybrid), pool(**hybrid, kv_cache={"enable_prefix_caching": False})
    assert found.settings.kv_cache.enable_prefix_caching
    assert found.capacity.states == plain.capacity.states
    assert found.limits.max_num_seqs == plain.limits.max_num_seqs // slots
    asked = ["fit", HYBRID["model"], "--gpu", "h200-sxm", "--json", "--engine", hybrid["engine"]]
    printed = json.loads(CliRunner().invoke(app, asked).stdout)
    assert printed["num_gpu_blocks"] == found.capacity.num_gpu_blocks


def test_shared_texts_of_models_with_a_state_are_found_and_noted() -> None:
    shared = {**ASKED["workload"], "shared_prefix": {"tokens": 256}}
    result = sim.simulate(sim.load_scenario({**ASKED, **HYBRID, "workload": shared}))
    notes = result.summary["infersim"]["notes"]
    assert any(note.startswith("A state is taken to be kept") for note in notes)


def test_a_limit_of_requests_is_no_more_than_their_states() -> None:
    assert pool(**HYBRID, scheduler={"max_num_seqs": 5}).limits.max_num_seqs == 5
    assert sim.simulate(sim.load_scenario({**ASKED, **HYBRID})).summary["completed"] == 40


@pytest.mark.parametrize(
    ("given", "share"),
    [([], 0.92), (["--engine", "vllm@0.13"], 0.9), (["--gpu-memory-utilization", "0.5"], 0.5)],
)
def test_fit_has_the_choices_of_a_run(given: list[str], share: float) -> None:
    asked = ["fit", "llama-3.1-8b", "--gpu", "h200-sxm", "--json", *given]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    engine = given[1] if "--engine" in given else "vllm"
    cache = {"gpu_memory_utilization": share}
    run = pool(engine=engine, kv_cache=cache if share == 0.5 else {})
    assert found["num_gpu_blocks"] == run.capacity.num_gpu_blocks
    assert run.capacity.utilization == share


@pytest.mark.parametrize(("release", "states"), [("0.22", 1), ("0.27", 2)])
def test_vllm_keeps_two_states_where_prefixes_are_cached(release: str, states: int) -> None:
    """Cached by default since 0.27: two blocks of each of three groups of states a request. Whole
    blocks of 1,056 tokens are found."""
    found = pool(model=HYBRID["model"], engine=f"vllm@{release}")
    assert found.settings.kv_cache.enable_prefix_caching is (states == 2)
    assert found.capacity.state_blocks == 3 * states
    long = {"kind": "fixed", "value": 1300}
    shared = {**ASKED["workload"], "shared_prefix": {"tokens": 1200}, "prompt_tokens": long}
    asked = {**ASKED, "model": HYBRID["model"], "engine": f"vllm@{release}", "workload": shared}
    entry = sim.simulate(sim.load_scenario(asked)).summary["infersim"].get("prefix_cache")
    assert (entry is not None) is (states == 2)
    assert entry is None or entry["hits"] == 39 * 1056
