"""No engine is priced with a kernel that it would hardly take: over all GPUs and engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.deployments import deployment_of
from sim.errors import InfersimError
from sim.iteration import Batch, Part
from sim.planning.rooflines import implausible
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
    assert any(note.startswith("qkv projection is priced at ") for note in named), named
