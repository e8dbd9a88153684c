"""All-reduces that are one kernel with the norm after them: a rule of the engine by release, GPU,
size and model, and what such a pass saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import sim
from sim import catalog
from sim.cost import CostModel
from sim.cost.operators import Operator
from sim.deployments import deployment_of
from sim.errors import UsageError
from sim.iteration import Batch, Part
from sim.specs.deployment import Deployment
from sim.specs.layout import Layout

FUSING = "vllm@0.18"
MIB = 2**20
BLACKWELL = ("b200-sxm", "gb200", "b300-sxm", "gb300")


def deployed(
    engine: str = FUSING, gpu: str = "b200-sxm", model: str = "llama-3.1-70b", tensor: int = 4
) -> Deployment:
    used = catalog.engine(engine)
    card = catalog.gpu(gpu, kernels=used.kernels)
    return Deployment(catalog.model(model), card, used, layout=Layout(tensor))


def apart(d: Deployment) -> Deployment:
    return replace(d, engine=replace(d.engine, fused_sums=()))


def operators(d: Deployment, batch: Batch) -> dict[str, Operator]:
    return {each.name: each for each in CostModel(d).pass_operators(batch)}


def seconds(d: Deployment, tokens: int) -> float:
    return CostModel(d).seconds(Batch(tokens, tokens * 1000))


def test_a_fused_pass_saves_half_the_traffic_of_each_norm() -> None:
    """By the data sheet, where both take the same all-reduce: 160 norms of 64 tokens."""
    d = deployed()
    d = replace(d, gpu=replace(d.gpu, profile=None))
    saved = 160 * 2 * 64 * 8192 * 2 / (d.gpu.bandwidth * d.gpu.efficiency.bandwidth)
    assert seconds(apart(d), 64) - seconds(d, 64) == pytest.approx(saved, rel=1e-9)


@pytest.mark.parametrize(("tokens", "published"), [(6, 6.98), (138, 12.98)])
def test_sum_and_norm_take_what_was_published(tokens: int, published: float) -> None:
    """Over two H100, 6,144 numbers a token: vLLM 0.28, in a graph (FlagGems-vllm, pull request
    773)."""
    d = deployed(gpu="h100-sxm", tensor=2)
    found = operators(d, Batch(round(tokens * 6144 / 8192), 1000))
    each = found["all-reduce"].seconds / 161 + found["norms"].seconds / 160
    assert 1e6 * each == pytest.approx(published, rel=0.15)


def test_sums_take_the_time_of_the_kernel_that_does_both() -> None:
    """TensorRT-LLM's, which FlashInfer took over: 256 KiB over eight B200 take 7.9 us in its table.
    vLLM's own kernels end before, and NCCL takes three times as long."""
    fused, other = (
        operators(d, Batch(16, 16_000))["all-reduce"].seconds / 161 * 1e6
        for d in (deployed(tensor=8), apart(deployed(tensor=8)))
    )
    assert fused == pytest.approx(7.9, rel=0.1)
    assert other > 2 * fused


def test_the_same_kernel_quantises_to_nvfp4() -> None:
    """Products of what a norm wrote begin a launch earlier; the inputs of others come from other
    kernels."""
    d = replace(deployed(), weights="nvfp4", activations="nvfp4", kv_cache="fp8")
    batch = Batch(1, 1000)
    fused, other = operators(d, batch), operators(apart(d), batch)
    changed = {name for name, each in fused.items() if each.seconds != other[name].seconds}
    products = {"qkv projection", "gate and up projection"}
    assert changed == {"norms", "all-reduce", *products}
    for name in products:
        saved = (other[name].seconds - fused[name].seconds) / 80
        assert saved == pytest.approx(d.gpu.efficiency.operator_latency, rel=0.25)
    with_8_bits = replace(d, weights="fp8", activations="fp8")
    assert {"norms", "all-reduce"} == {
        name
        for name, each in operators(with_8_bits, batch).items()
        if each.seconds != operators(apart(with_8_bits), batch)[name].seconds
    }


@pytest.mark.parametrize(
    ("gpu", "tensor", "largest"),
    [
        *(("b200-sxm", ranks, size) for ranks, size in ((2, 64), (4, 32), (8, 1))),
        *(("b300-sxm", ranks, size) for ranks, size in ((2, 64), (4, 64), (8, 2))),
        *(("h200-sxm", ranks, size) for ranks, size in ((2, 64), (4, 2), (8, 0.5))),
    ],
)
def test_beyond_the_size_sums_and_norms_are_apart(gpu: str, tensor: int, largest: float) -> None:
    d = deployed(gpu=gpu, tensor=tensor)
    assert d.largest_fused_sum == largest * MIB
    most = int(largest * MIB / (8192 * 2))
    cost, other = CostModel(d), CostModel(apart(d))
    for tokens, saves in ((most, True), (most + 1, False)):
        batch = Batch(0, 0, [Part(tokens, 0)])
        norms = [
            {o.name: o for o in each.pass_operators(batch)}["norms"].seconds
            for each in (cost, other)
        ]
        assert bool(norms[0] < norms[1]) is saves
        if not saves:
            assert cost.seconds(batch) == other.seconds(batch)


@pytest.mark.parametrize("release", ["0.11", "0.13", "0.15", "0.16"])
def test_older_releases_keep_them_apart(release: str) -> None:
    assert deployed(f"vllm@{release}").largest_fused_sum == 0


@pytest.mark.parametrize(
    "gpu", ["a100-sxm-80gb", "l40s", "rtx-pro-6000", "h100-pcie", "rtx-4090", "mi300x"]
)
def test_gpus_without_the_kernel_keep_them_apart(gpu: str) -> None:
    d = deployed(gpu=gpu, tensor=2)
    assert d.largest_fused_sum == 0
    assert seconds(d, 8) == seconds(apart(d), 8)


def test_one_gpu_has_no_sums() -> None:
    d = deployed(tensor=1)
    assert d.largest_fused_sum == 0
    assert seconds(d, 8) == seconds(apart(d), 8)


@pytest.mark.parametrize("gpu", BLACKWELL)
def test_sglang_fuses_in_models_with_experts(gpu: str) -> None:
    d = deployed("sglang", gpu, "gpt-oss-120b")
    assert d.largest_fused_sum == 2048 * 2880 * 2
    batch = Batch(32, 32_000)
    assert operators(d, batch)["all-reduce"] != operators(apart(d), batch)["all-reduce"]
    assert deployed("sglang", gpu).largest_fused_sum == 0
    assert deployed("sglang", "h200-sxm", "gpt-oss-120b").largest_fused_sum == 0


@pytest.mark.parametrize(
    ("model", "gpu", "tensor", "largest"),
    [
        ("llama-3.1-70b", "b200-sxm", 2, 16e6),
        ("llama-3.1-70b", "gb300", 4, 8e6),
        ("llama-3.1-70b", "h200-sxm", 4, 0),
        ("llama-3.1-8b", "b200-sxm", 2, 0),
        ("qwen3-32b", "b200-sxm", 2, 0),
        ("gpt-oss-120b", "b200-sxm", 2, 0),
    ],
)
def test_tensorrt_llm_fuses_in_wide_llamas(
    model: str, gpu: str, tensor: int, largest: float
) -> None:
    assert deployed("tensorrt-llm", gpu, model, tensor).largest_fused_sum == largest


def test_a_run_takes_the_rule_of_the_release() -> None:
    traffic = {"prompt_tokens": {"kind": "fixed", "value": 100}}
    traffic["output_tokens"] = {"kind": "fixed", "value": 10}
    found = []
    for engine in ("vllm@0.15", "vllm@0.18"):
        scenario = sim.load_scenario(
            {
                "model": "llama-3.1-70b",
                "fleet": {"gpu": "b200-sxm", "tensor_parallel": 8},
                "engine": engine,
                "workload": {"arrivals": {"kind": "closed", "concurrency": 1}, **traffic},
            }
        )
        found.append(deployment_of(scenario, scenario.only_pool).largest_fused_sum)
    assert found == [0, MIB]


def test_a_rule_names_models_that_are_known(tmp_path: Path) -> None:
    rule = "{value: [{gpus: [B200], ranks: [2], models: gemma}], source: mine}"
    path = tmp_path / "own.yaml"
    path.write_text(f"title: Own\nextends: vllm\nfused_sums: {rule}\n")
    with pytest.raises(UsageError, match="models: expected one of any, experts, wide-llama"):
        catalog.engine(path)
