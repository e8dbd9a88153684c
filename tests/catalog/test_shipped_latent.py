"""Latent and sparse attention of the catalogue's profiles: measured, near published blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.parts import AttentionPart, attention_part
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.layout import Layout

OPERATORS = ("mla_decode", "mla_prefill", "dsa_decode", "dsa_prefill")


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm"])
@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v3.2", "glm-5"])
def test_it_is_measured_on_eight_gpus(gpu: str, model: str) -> None:
    for kv in ("bf16", "fp8"):
        d = Deployment(
            catalog.model(model), catalog.gpu(gpu), catalog.engine("ideal"), "fp8", "fp8", kv,
            layout=Layout(tensor=8),
        )  # fmt: skip
        attention = CostModel(d).attention
        for operator in (attention.decode(32, 32 * 4000), attention.prefill([Part(3000, 0)], 0)):
            assert float(np.asarray(operator.measured)) == 1
            assert 0 < float(np.asarray(operator.error)) < 0.22


def test_its_errors_do_not_widen_the_bands_of_other_models() -> None:
    """L40S decodes over latent vectors 20 % off under TensorRT-LLM, of which products and other
    attention know nothing."""
    profile = catalog.gpu("l40s", kernels="trtllm").profile
    assert profile is not None
    assert profile.kernels["mla_decode"]["fp8"].error > 0.15 > profile.worst_error
    bare = {name: fits for name, fits in profile.kernels.items() if name not in OPERATORS}
    assert profile.worst_error == replace(profile, kernels=bare).worst_error


def block(name: str) -> tuple[AttentionPart, Rooflines]:
    """The attention of one layer in fp8 on one H200."""
    model = catalog.model(name)
    (group, *_) = model.layers
    one = replace(group, count=1)
    d = Deployment(
        replace(model, layers=(one,)), catalog.gpu("h200-sxm"), catalog.engine("ideal"),
        "fp8", "fp8", "fp8",
    )  # fmt: skip
    kernels = Rooflines(d)
    return attention_part(one, d, kernels), kernels


def of_products(part: AttentionPart, kernels: Rooflines, tokens: int) -> float:
    assert not kernels.quantises  # the products of the profile contain it
    return sum(float(np.asarray(o.seconds)) for o in part.per_token(float(tokens)))


@pytest.mark.parametrize(
    ("name", "batch", "context", "measured"),
    [
        ("deepseek-v3", 1, 1024, 148e-6),
        ("deepseek-v3", 256, 65_536, 6318e-6),
        ("deepseek-v3.2", 1, 131_072, 216e-6),
        ("deepseek-v3.2", 256, 128, 755e-6),
        ("deepseek-v3.2", 256, 131_072, 1976e-6),
    ],
)
def test_published_blocks_that_decode(name: str, batch: int, context: int, measured: float) -> None:
    """vLLM 0.24 on an H200, weights and cache in fp8, 128 heads (aiconfigurator-core tables)."""
    part, kernels = block(name)
    found = of_products(part, kernels, batch)
    found += float(np.asarray(part.decode(batch, batch * context).seconds))
    assert found == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    ("name", "tokens", "measured"),
    [
        ("deepseek-v3", 512, 0.396e-3),
        ("deepseek-v3", 8192, 7.313e-3),
        ("deepseek-v3", 32_768, 68.265e-3),
        ("deepseek-v3.2", 512, 1.621e-3),
        ("deepseek-v3.2", 8192, 13.982e-3),
        ("deepseek-v3.2", 32_768, 65.608e-3),
    ],
)
def test_published_blocks_of_prompts(name: str, tokens: int, measured: float) -> None:
    """The same; sparse attention is slower up to some 32,000 tokens."""
    part, kernels = block(name)
    seconds, _ = part.prefill_seconds([Part(tokens, 0)], 0)
    assert of_products(part, kernels, tokens) + seconds == pytest.approx(measured, rel=0.08)
