"""The format of experts' inputs is a rule of the engine by GPU; a scenario may name another."""

from __future__ import annotations

from pathlib import Path

import pytest

import sim
from sim import catalog
from sim.cost.measured_experts import fit_for
from sim.deployments import deployment_of
from sim.errors import UsageError
from sim.specs.deployment import Deployment

BLACKWELL = ("b200-sxm", "b300-sxm", "gb200", "gb300")


def deployed(engine: str, gpu: str, model: str = "gpt-oss-120b", **precision: str) -> Deployment:
    fleet = {"gpu": gpu, "tensor_parallel": 4}
    document = {"model": model, "fleet": fleet, "engine": engine, "precision": precision}
    traffic = {"prompt_tokens": {"kind": "fixed", "value": 100}}
    traffic["output_tokens"] = {"kind": "fixed", "value": 10}
    arrivals = {"kind": "closed", "concurrency": 1}
    document["workload"] = {"arrivals": arrivals, **traffic}
    scenario = sim.load_scenario(document)
    return deployment_of(scenario, scenario.only_pool)


@pytest.mark.parametrize("gpu", BLACKWELL)
@pytest.mark.parametrize(
    ("engine", "inputs"), [("tensorrt-llm", "fp8"), ("sglang", "fp8"), ("vllm", "bf16")]
)
def test_blackwell_takes_the_inputs_of_the_engine(engine: str, inputs: str, gpu: str) -> None:
    assert deployed(engine, gpu).arithmetic_of("experts") == inputs


@pytest.mark.parametrize("gpu", ["b200-sxm", "gb200"])
@pytest.mark.parametrize(
    ("engine", "kernel"),
    [("tensorrt-llm", "mxfp4"), ("sglang", "mxfp4"), ("vllm", "mxfp4-weights")],
)
def test_blackwell_takes_the_kernel_of_the_engine(engine: str, kernel: str, gpu: str) -> None:
    found = fit_for(deployed(engine, gpu))
    assert found is not None
    assert found.precision == kernel


@pytest.mark.parametrize("engine", ["tensorrt-llm", "sglang", "vllm"])
def test_hopper_leaves_inputs_at_16_bits(engine: str) -> None:
    assert deployed(engine, "h200-sxm").arithmetic_of("experts") == "bf16"


@pytest.mark.parametrize(("gpu", "inputs"), [("h200-sxm", "bf16"), ("b200-sxm", "fp8")])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_deepseek_v4_has_fp8_all_around_its_experts(engine: str, gpu: str, inputs: str) -> None:
    """Its checkpoint asks for fp8 of all inputs, which Hopper's kernels of mxfp4 do not take."""
    found = deployed(engine, gpu, "deepseek-v4-flash")
    assert found.arithmetic_of("experts") == inputs
    assert (found.arithmetic_of("projections"), found.kv_cache) == ("fp8", "fp8")
    assert found.formats["experts"] == "mxfp4"


def test_other_products_keep_their_inputs() -> None:
    found = deployed("tensorrt-llm", "b200-sxm")
    assert found.arithmetic_of("experts") == "fp8"
    assert found.arithmetic_of("projections") == "bf16"


def test_a_scenario_may_ask_for_another_format() -> None:
    assert deployed("tensorrt-llm", "b200-sxm", expert_inputs="bf16").arithmetic_of("experts") == (
        "bf16"
    )
    assert deployed("vllm", "b200-sxm", expert_inputs="fp8").arithmetic_of("experts") == "fp8"


def test_experts_are_not_multiplied_by_every_format() -> None:
    with pytest.raises(UsageError, match="mxfp4 are not multiplied by inputs in nvfp4"):
        deployed("vllm", "b200-sxm", expert_inputs="nvfp4")
    with pytest.raises(UsageError, match="has no experts"):
        deployed("vllm", "b200-sxm", model="llama-3.1-8b", expert_inputs="fp8")


def test_a_rule_names_formats_that_go_together(tmp_path: Path) -> None:
    rule = "{value: [{weights: mxfp4, gpus: [B200], inputs: int8}], source: mine}"
    (tmp_path / "own.yaml").write_text(
        f"title: mine\nextends: vllm\nsources: mine\nexpert_inputs: {rule}\n", "utf-8"
    )
    with pytest.raises(UsageError, match="inputs"):
        catalog.engine("own.yaml", tmp_path)


def test_scales_of_blocks_are_never_in_a_checkpoint() -> None:
    """Of nvfp4, that is; those of fp8 by tensor may be."""
    for name in ("nvfp4", "fp8"):
        formats = {"weights": name, "activations": name, "quantisation": "static"}
        if name == "nvfp4":
            with pytest.raises(UsageError, match="a scale for each block"):
                deployed("vllm", "b200-sxm", model="llama-3.1-8b", **formats)
        else:
            assert deployed("vllm", "b200-sxm", model="llama-3.1-8b", **formats).static
