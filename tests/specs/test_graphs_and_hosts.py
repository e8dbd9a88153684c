"""Kernels that the host launches one by one, and hosts that are slower."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.cost.model import CostModel
from sim.deployments import deployment_of
from sim.iteration import Batch, Part

ASKED = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "b200-sxm"},
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 1},
        "prompt_tokens": {"kind": "fixed", "value": 256},
        "output_tokens": {"kind": "fixed", "value": 32},
    },
    "run": {"requests": 4, "warmup": 0},
}


def seconds(batch: Batch, engine: str = "vllm", **changes: Any) -> float:
    scenario = sim.load_scenario({**ASKED, "engine": engine, **changes})
    return CostModel(deployment_of(scenario, scenario.only_pool)).seconds(batch)


DECODES, PROMPT = Batch(1, 256), Batch(0, 0, (Part(256, 0),))


def test_without_graphs_small_passes_last_as_long_as_their_launches() -> None:
    """32 layers of 20 launches, 30 us apart."""
    launches = 32 * 20 * 30e-6
    for batch in (DECODES, PROMPT):
        assert seconds(batch) < launches
        assert seconds(batch, scheduler={"enforce_eager": True}) == pytest.approx(launches, rel=0.1)


def test_graphs_of_decodes_alone_leave_decodes_as_they_are() -> None:
    only = {"scheduler": {"prompt_graphs": False}}
    assert seconds(DECODES, **only) == seconds(DECODES)
    assert seconds(PROMPT, **only) > 1.5 * seconds(PROMPT)


def test_sglang_has_graphs_of_prompts_since_a_release_and_not_for_latent_attention() -> None:
    old, new = (seconds(PROMPT, f"sglang@0.5.{at}") for at in (9, 10))
    assert new < old
    deepseek = {"model": "deepseek-v3", "fleet": {"gpu": "b200-sxm", "tensor_parallel": 8}}
    both = [seconds(PROMPT, f"sglang@0.5.{at}", **deepseek) for at in (9, 10)]
    assert both[0] == both[1]


def test_a_slower_host_takes_longer_for_all_that_it_does() -> None:
    def of(speed: float) -> dict[str, float]:
        asked = {**ASKED, "host": {"speed": speed}, "scheduler": {"enforce_eager": True}}
        return sim.simulate(sim.load_scenario(asked)).summary

    usual, slow = of(1.0), of(0.5)
    assert slow["mean_tpot_ms"] == pytest.approx(2 * usual["mean_tpot_ms"], rel=0.05)
    assert slow["mean_ttft_ms"] == pytest.approx(2 * usual["mean_ttft_ms"], rel=0.05)
