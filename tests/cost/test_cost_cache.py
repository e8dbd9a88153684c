"""Runs of one process share the tables of a deployment, and see nothing of each other in them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.cost_cache import MOST, cost_of
from sim.iteration import Batch, Part
from sim.setup import prepare
from sim.specs.drafter import drafter_of
from sim.specs.layout import Layout
from sim.specs.speculation import Speculation
from tests.planning_fixtures import small

CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": catalog.model("llama-3.2-1b")},
    "expert skew": {"model": catalog.model("qwen3-30b-a3b").with_skew(1.0)},
    "GPU": {"gpu": catalog.gpu("a100-sxm-80gb")},
    "memory of the GPU": {"gpu": catalog.gpu("h100-sxm").scaled(0.5, 1, 1, 1)},
    "engine": {"engine": catalog.engine("ideal")},
    "host time": {"engine": catalog.engine("vllm").scaled(2)},
    "weights": {"weights": "fp8"},
    "activations": {"weights": "fp8", "activations": "fp8"},
    "scales": {"weights": "fp8", "activations": "fp8", "static": True},
    "KV cache": {"kv_cache": "fp8"},
    "layout": {"layout": Layout(2)},
    "kernel time": {"kernel_time": 1.1},
}


def deployed(**changes: Any) -> Deployment:
    parts = [catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), catalog.engine("vllm")]
    return replace(Deployment(*parts), **changes)  # type: ignore[arg-type]


def test_equal_deployments_have_one_cost_model() -> None:
    assert cost_of(deployed()) is cost_of(deployed())
    assert cost_of(deployed(engine=replace(catalog.engine("vllm")))) is cost_of(deployed())


def test_runs_that_assume_the_same_of_a_gpu_have_one_cost_model() -> None:
    doubled, again, memory = (
        prepare(small(**assumed)).only.deployment
        for assumed in (
            {"assume__compute": 2, "run__requests": 10},
            {"assume__compute": 2, "run__requests": 20},
            {"assume__memory": 2},
        )
    )
    assert cost_of(again) is cost_of(doubled)
    assert cost_of(memory) is not cost_of(doubled)
    assert doubled.gpu.flops("bf16") == 2 * memory.gpu.flops("bf16")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_is_different_has_another(change: dict[str, Any]) -> None:
    found = cost_of(deployed(**change))
    assert found is not cost_of(deployed())
    assert found.deployment == deployed(**change)


def test_every_field_of_a_deployment_counts() -> None:
    experts = deployed(model=catalog.model("qwen3-30b-a3b"))
    assert cost_of(replace(experts, experts="fp8")) is not cost_of(experts)
    wide = replace(experts, layout=Layout(data=2, expert=2))
    other = replace(wide, all2all="deepep_low_latency")
    assert cost_of(other) is not cost_of(wide)


def test_what_drafts_has_one_of_its_own() -> None:
    plain = deployed()
    rates = (0.7,)
    drafts = Speculation("eagle", 1, rates)
    drafted = replace(plain, speculation=drafts, drafter=drafter_of(plain, "eagle", None))
    assert cost_of(drafted) is not cost_of(plain)
    assert cost_of(drafted) is not cost_of(drafted)


def test_no_more_than_a_few_are_kept() -> None:
    first = cost_of(deployed())
    for percent in range(1, MOST + 1):
        cost_of(deployed(kernel_time=1 + percent / 100))
    assert cost_of(deployed()) is not first


def test_times_do_not_depend_on_what_was_asked_before() -> None:
    random = Random(5)
    asked = [
        Batch(random.choice([0, 1, 7, 300]), 900_000, (Part(random.randint(1, 9000), 64),), 1)
        for _ in range(40)
    ]
    used = CostModel(deployed())
    found = [used.seconds(batch) for batch in asked]
    assert [CostModel(deployed()).seconds(batch) for batch in asked] == found
    assert [used.seconds(batch) for batch in reversed(asked)] == found[::-1]
