"""Number formats: what they take in memory, what multiplies what, what is quantised when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim import catalog
from sim.cost import CostModel
from sim.cost.measured import gemm_of
from sim.cost.operators import Operator
from sim.specs.deployment import Deployment
from sim.specs.precision import precision_bytes
from tests.gpus import data_sheet


def deployed(model: str, gpu: str = "h100-sxm", **formats: Any) -> Deployment:
    return Deployment(catalog.model(model), catalog.gpu(gpu), catalog.engine("vllm"), **formats)


def operators(d: Deployment, tokens: float = 64.0) -> dict[str, Operator]:
    """What a pass of so many tokens is made of, by name."""
    return {each.name: each for each in CostModel(d).by_size.per_token(tokens)}


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("int4-group", 4 + 20 / 128),  # a scale of 16 bits and a zero point of 4 for 128 weights
        ("int4-group64", 4 + 16 / 64),
        ("int4-group32", 4 + 16 / 32),
        ("mxfp4", 4 + 8 / 32),
        ("nvfp4", 4 + 8 / 16),
        ("fp8-block", 8 + 32 / 128**2),
        ("fp8", 8),
        ("int4", 4),
    ],
)
def test_scales_of_groups_count(name: str, bits: float) -> None:
    assert precision_bytes(name) * 8 == pytest.approx(bits, rel=1e-12)


def test_a_quantised_checkpoint_by_hand() -> None:
    """Llama-3.1-8B has 6,979,321,856 weights in projections and 1,050,673,152 in embedding and
    head, which stay at 16 bits as its 266,240 norms do."""
    d = deployed("llama-3.1-8b", weights="nvfp4", activations="bf16")
    kept = (1_050_673_152 + 266_240) * 2
    assert d.weight_bytes() == pytest.approx(6_979_321_856 * 0.5625 + kept, rel=1e-12)


def test_experts_may_have_a_format_of_their_own() -> None:
    plain, mixed = (deployed("mixtral-8x7b", experts=name) for name in (None, "mxfp4"))
    experts = 32 * 8 * 3 * 4096 * 14336
    saved = plain.weight_bytes() - mixed.weight_bytes()
    assert saved == pytest.approx(experts * (2 - 0.53125), rel=1e-12)
    with pytest.raises(ValueError, match=r"llama-3\.1-8b has no experts to store in mxfp4"):
        deployed("llama-3.1-8b", experts="mxfp4")


def test_narrow_activations_multiply_only_what_fits() -> None:
    """Experts in mxfp4 by fp8 activations, as on Blackwell; the projections beside them stay."""
    d = deployed("mixtral-8x7b", "b200-sxm", experts="mxfp4", activations="fp8")
    assert (d.arithmetic_of("experts"), d.arithmetic_of("projections")) == ("fp8", "bf16")
    with pytest.raises(ValueError, match="fp8 activations are multiplied by fp8 or fp8-block or"):
        deployed("mixtral-8x7b", activations="fp8")
    with pytest.raises(ValueError, match="int4-group is for weights only"):
        deployed("llama-3.1-8b", weights="int4-group", activations="int4-group")


@pytest.mark.parametrize(
    ("gpu", "computed"), [("b200-sxm", "nvfp4"), ("h100-sxm", "bf16"), ("a100-sxm-80gb", "bf16")]
)
def test_cards_without_units_widen_the_weights(gpu: str, computed: str) -> None:
    d = deployed("llama-3.1-8b", gpu, weights="nvfp4", activations="nvfp4")
    assert d.arithmetic == computed
    assert (d.format_note is None) == (computed == "nvfp4")


def test_four_bits_double_the_peak_of_eight() -> None:
    gpu = data_sheet("b200-sxm")
    four, eight = (
        operators(replace(deployed("llama-3.1-8b"), gpu=gpu, weights=name, activations=name), 8192)
        for name in ("nvfp4", "fp8")
    )
    name = "gate and up projection"
    assert four[name].compute == pytest.approx(eight[name].compute / 2)


def test_a_static_checkpoint_quantises_inside_other_kernels() -> None:
    """By the data sheet the operator goes; nothing else changes."""
    gpu = data_sheet("h100-sxm")
    common = {"weights": "fp8", "activations": "fp8"}
    dynamic, static = (
        operators(replace(deployed("llama-3.1-8b", **common), gpu=gpu, static=each))
        for each in (False, True)
    )
    assert dynamic.pop("quantise activations").memory > 0
    assert static == dynamic


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "sglang"])
def test_a_static_product_has_no_conversion_in_it(engine: str) -> None:
    """With one row it begins as soon as one at 16 bits does, and reads half its weights."""
    gpu = catalog.gpu("h100-sxm", None, catalog.engine(engine).kernels)
    assert gpu.profile is not None
    own, plain = (gpu.profile.kernels["gemm"][name].parameters for name in ("fp8", "bf16"))
    dynamic = gemm_of(gpu, "fp8", "fp8")
    static = gemm_of(gpu, "fp8", "fp8", static=True)
    assert dynamic is not None
    assert static is not None
    saved = dynamic.timing(1.0, 4096, 4096).seconds - static.timing(1.0, 4096, 4096).seconds
    floor = own["latency"] - plain["latency"]
    assert floor > 1e-6
    # residuals by shape scale what is left, by less than a third
    assert saved == pytest.approx(floor, rel=0.35)


def test_products_stand_in_for_those_of_other_scales() -> None:
    gpu = catalog.gpu("h100-sxm", None, "vllm")
    blocks, whole = gemm_of(gpu, "fp8-block", "fp8"), gemm_of(gpu, "fp8", "fp8")
    assert blocks is not None
    assert whole is not None
    assert gemm_of(gpu, "nvfp4", "nvfp4") is None  # no units on Hopper
