"""``assume``: what a run would be on other hardware, under another engine, with other lengths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.scenario import Scenario
from sim.setup import prepare
from sim.workload.longer import Longer

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 200},
        "output_tokens": {"kind": "fixed", "value": 50},
    },
    "run": {"requests": 60, "warmup": 0},
}


def scenario(**assume: float) -> Scenario:
    return sim.load_scenario({**BASE, "assume": assume})


def test_it_is_as_it_is_by_default() -> None:
    assert scenario().assume.told() is None
    assert prepare(scenario()).only.deployment == prepare(sim.load_scenario(BASE)).only.deployment


def test_a_run_that_assumes_says_so() -> None:
    notes = sim.simulate(scenario(bandwidth=2, host_time=0)).summary["infersim"]["notes"]
    assert notes[0] == "Assumed: bandwidth x 2, host time x 0."


def test_memory_makes_blocks_and_nothing_faster() -> None:
    plain, more = (prepare(scenario(memory=factor)).only for factor in (1, 2))
    added = plain.deployment.gpu.memory * 0.92 / plain.capacity.kv_bytes_per_token / 16
    blocks = more.capacity.num_gpu_blocks - plain.capacity.num_gpu_blocks
    assert blocks == pytest.approx(added, abs=1)
    assert more.deployment.gpu.bandwidth == plain.deployment.gpu.bandwidth


def test_blocks_are_scaled_however_they_were_found() -> None:
    found = prepare(scenario()).only.capacity.num_gpu_blocks
    assert prepare(scenario(kv_blocks=0.5)).only.capacity.num_gpu_blocks == pytest.approx(
        found / 2, 1e-3
    )
    given = scenario(kv_blocks=0.5).override({"kv_cache.num_gpu_blocks": 1000})
    assert prepare(given).only.capacity.num_gpu_blocks == 500


def test_kernels_and_host_scale_the_whole_of_a_run() -> None:
    plain, slow = scenario(), scenario(kernel_time=2, host_time=2)
    once, twice = (sim.simulate(s).summary["duration"] for s in (plain, slow))
    front_end = prepare(plain).only.deployment.engine.front_end
    assert twice - 2 * front_end == pytest.approx(2 * (once - front_end), rel=1e-9)
    shares = [sim.simulate(s).summary["infersim"]["time_by_operator"] for s in (plain, slow)]
    assert shares[1] == pytest.approx(shares[0], abs=1e-9)


def test_leaps_change_nothing_about_it() -> None:
    odd = scenario(kernel_time=1.3, host_time=0.7, bandwidth=1.1, output_tokens=1.5)
    leaping, stepping = (sim.simulate(odd, leap=leap).requests for leap in (True, False))
    assert leaping.equals(stepping)


def test_lengths_are_multiplied_in_a_closed_loop_too() -> None:
    closed = scenario(prompt_tokens=1.5, output_tokens=2).override(
        {"workload.arrivals": {"kind": "closed", "concurrency": 4}}
    )
    rows = sim.simulate(closed).requests
    assert set(rows["prompt_tokens"]) == {300}
    assert set(rows["output_tokens"]) == {100}


tokens, factor = st.integers(1, 500), st.floats(0.1, 10)


@given(tokens, tokens, factor, factor, st.integers(2, 1200))
def test_what_fitted_fits_and_nothing_is_empty(
    prompt: int, output: int, prompts: float, outputs: float, longest: int
) -> None:
    new = Longer(prompts, outputs, longest).lengths(prompt, output)
    if prompt + output <= longest:
        assert sum(new) <= longest
    assert min(new) >= 1


@pytest.mark.parametrize(("key", "value"), [("memory", 0), ("host_time", -1), ("compute", "fast")])
def test_factors_are_numbers(key: str, value: object) -> None:
    with pytest.raises(sim.errors.ScenarioError, match=f"assume.{key}"):
        sim.load_scenario({**BASE, "assume": {key: value}})
