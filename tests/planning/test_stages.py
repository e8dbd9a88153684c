"""Pipelines in the commands that decide without a simulation: fit, roofline, layouts, launch."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import pytest

import sim
from sim import catalog
from sim.cost import Deployment
from sim.memory.capacity import capacity
from sim.planning.causes.counterfactuals import counterfactuals
from sim.planning.fits import fit_document, node_layouts
from sim.planning.fleet.launch import launch_commands
from sim.planning.fleet.layouts import Candidate, layouts
from sim.planning.rooflines import roofline_document
from sim.scenario import Scenario
from sim.specs.layout import Layout
from tests.golden_scenarios import BASE, changed


def scenario(**keys: int) -> Scenario:
    changes: dict[str, Any] = {f"fleet.{key}": value for key, value in keys.items()}
    return sim.load_scenario(changed(BASE, {"fleet.gpu": "h100-sxm", **changes}))


def fit(layout: Layout) -> dict[str, Any]:
    d = Deployment(
        catalog.model("llama-3.1-70b"),
        catalog.gpu("h100-sxm"),
        catalog.engine("vllm"),
        layout=layout,
    )
    capacity_of = partial(
        capacity,
        block_size=16,
        gpu_memory_utilization=0.9,
        num_gpu_blocks=None,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
    )
    return fit_document(d, capacity_of, 8192)


def test_fit_shows_the_stages_and_the_one_that_decides() -> None:
    found = fit(Layout(tensor=2, pipeline=4))
    assert [row["layers"] for row in found["stages"]] == [20] * 4
    assert [row["decides"] for row in found["stages"]] == [False, False, False, True]
    last = found["stages"][3]
    for key in ("weight_bytes", "activation_bytes", "kv_cache_bytes", "num_gpu_blocks"):
        assert found[key] == last[key]
    assert sum(part["bytes"] for part in found["weights"]) == pytest.approx(found["weight_bytes"])
    assert "embedding" not in {part["name"] for part in found["weights"]}
    assert {row["pipeline_parallel"] for row in found["layouts"]} == {1, 2, 4, 8}
    json.dumps(found)


def test_fit_of_one_stage_lists_none() -> None:
    found = fit(Layout(tensor=4))
    assert "stages" not in found
    assert {row["pipeline_parallel"] for row in found["layouts"]} == {1}


def test_roofline_times_the_stages() -> None:
    """What they take, and the messages, is the whole pass."""
    d = Deployment(
        catalog.model("llama-3.1-70b"),
        catalog.gpu("h100-sxm"),
        catalog.engine("ideal"),
        layout=Layout(tensor=2, pipeline=2),
    )
    for each in roofline_document(d, [1, 64], 1000, 500)["passes"]:
        sent = [row["seconds"] for row in each["operators"] if row["name"] == "pipeline send"]
        assert math.isclose(sum(each["stages"]) + sum(sent), each["seconds"], rel_tol=1e-9)


def test_layouts_with_stages_stay_within_a_node() -> None:
    made = layouts(scenario(), ["h100-sxm"], (), (), pipeline_parallel=(1, 2, 4))
    pairs = {(each.tensor_parallel, each.pipeline_parallel) for each in made}
    assert {tensor * stages for tensor, stages in pairs} == {1, 2, 4, 8}
    assert (4, 2) in pairs
    assert (8, 2) not in pairs


def test_a_candidate_is_simulated_as_it_is_called() -> None:
    made = Candidate("h100-sxm", 2, None, pipeline_parallel=4)
    assert made.text == "8 x h100-sxm (TP 2 x PP 4)"
    own = scenario()
    assert own.override(made.settings(own)).only_pool.layout == Layout(2, 4)


def test_without_a_choice_the_stages_are_those_of_the_scenario() -> None:
    made = layouts(scenario(pipeline_parallel=2), ["h100-sxm"], (1, 2), ())
    assert {each.pipeline_parallel for each in made} == {2}


def test_engines_are_started_with_as_many_stages() -> None:
    commands = launch_commands(scenario(pipeline_parallel=2, tensor_parallel=4))
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2" in commands["vllm"]
    assert "--tp-size 4 --pp-size 2" in commands["sglang"]
    assert "--tp_size 4 --pp_size 2" in commands["tensorrt-llm"]
    assert "pipeline" not in launch_commands(scenario())["vllm"]


def test_diagnose_tries_the_gpus_as_tensor_ranks() -> None:
    tried = {each.name: each.settings for each in counterfactuals(scenario(pipeline_parallel=4))}
    assert tried["stages"] == {"fleet.0.tensor_parallel": 4, "fleet.0.pipeline_parallel": 1}
    assert "stages" not in {each.name for each in counterfactuals(scenario())}


def test_layouts_of_a_node_have_every_split() -> None:
    found = {(each.tensor, each.pipeline) for each in node_layouts(experts=False, pipelines=True)}
    assert found == {(2**i, 2**j) for i in range(4) for j in range(4 - i)}
