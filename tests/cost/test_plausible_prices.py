"""No engine is priced with a kernel that it would hardly take: over all GPUs and engines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import sim
from sim import catalog
from sim.cli import app
from sim.cost import CostModel, Deployment
from sim.cost.plausible import implausible
from sim.deployments import deployment_of
from sim.errors import InfersimError
from sim.iteration import Batch, Part
from sim.planning.fleet.choose import choose
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_document import document
from tests.planning_fixtures import small

MODELS = {"llama-3.1-8b": 1, "qwen3-30b-a3b": 1, "gpt-oss-120b": 1, "deepseek-v3": 8}
FORMATS = ({}, {"weights": "bf16"}, {"weights": "fp8", "activations": "fp8"}, {"weights": "int4"})
LONG = Batch(0, 0, [Part(8192, 0)])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm-pytorch"])
def test_long_prompts_reach_a_plausible_share_of_the_arithmetic(engine: str) -> None:
    found, priced = set(), 0
    for gpu in catalog.names("gpus"):
        for model, gpus in MODELS.items():
            for precision in FORMATS:
                try:
                    scenario = small(
                        model=model,
                        fleet={"gpu": gpu, "tensor_parallel": gpus},
                        engine=engine,
                        precision=precision,
                    )
                    deployment = deployment_of(scenario, scenario.only_pool)
                    operators = CostModel(deployment).pass_operators(LONG)
                except InfersimError:
                    continue  # the GPU has no such arithmetic, or the engine no such GPU
                priced += 1
                found |= {(gpu, model, note) for note in implausible(deployment, operators)}
    assert priced > 300
    assert found == set()


def test_an_implausible_price_is_named() -> None:
    of = Deployment(catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), catalog.engine("vllm"))
    assert list(implausible(of, CostModel(of).pass_operators(LONG))) == []
    slow = replace(of, kernel_time=25.0)
    named = list(implausible(slow, CostModel(slow).pass_operators(LONG)))
    assert any(note.startswith("qkv projection is predicted at ") for note in named), named


def test_a_run_and_a_plan_name_it_once() -> None:
    """A run has the note once, whatever number of pools; a ranked fleet of a plan has it too."""
    usual = sim.simulate(small()).summary["infersim"]["notes"]
    slow = {"assume__kernel_time": 25, "slo": None}
    found = sim.simulate(small(**slow)).summary["infersim"]["notes"]
    named = "qkv projection is predicted at "
    assert not any(named in note for note in usual)
    assert sum(named in note for note in found) == 1
    scenario = small(run__requests=100, **slow)
    asked = FleetQuestion(tuple(layouts(scenario, ["h100-sxm"], [1], [])), 0.5, 0.0, 1)
    (fleet,) = document(choose(scenario, asked))["fleets"]
    assert sum(named in note for note in fleet["notes"]) == 1


def test_a_roofline_takes_the_kernels_of_an_engine() -> None:
    """Another preset has other times of the same pass, as under ``--set engine`` of a run."""
    asked = ["roofline", "qwen3-30b-a3b", "--gpu", "h100-sxm", "--json"]
    found = {}
    for engine in ("ideal", "vllm", "sglang"):
        answer = CliRunner().invoke(app, [*asked, "--engine", engine])
        assert answer.exit_code == 0, answer.output
        found[engine] = json.loads(answer.stdout)
        assert found[engine]["engine"].startswith(engine)
    usual = json.loads(CliRunner().invoke(app, asked).stdout)
    assert usual["passes"] == found["ideal"]["passes"]
    seconds = {name: each["passes"][0]["seconds"] for name, each in found.items()}
    assert seconds["sglang"] < 0.95 * seconds["ideal"]
    unknown = CliRunner().invoke(app, [*asked, "--engine", "vlm"])
    assert (unknown.exit_code, "vllm" in unknown.output) == (2, True)
