"""Mixtures of experts against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import Deployment
from sim.memory.capacity import activation_bytes
from sim.specs.experts import MixtureOfExperts
from sim.specs.layers import LayerGroup, counted
from sim.specs.layout import Layout

MIXTRAL, QWEN = catalog.model("mixtral-8x7b"), catalog.model("qwen3-30b-a3b")


def experts(number: int = 8, per_token: int = 2, width: int = 64, **more: int) -> MixtureOfExperts:
    return MixtureOfExperts(number, per_token, width, **more)


@pytest.mark.parametrize(
    ("number", "per_token", "by_doubling"),
    [
        (8, 2, [2, 3.5, 5.47, 7.20, 7.92]),
        (128, 8, [8, 15.5, 29.12, 51.62, 82.42, 111.77, 125.94]),
        (256, 8, [8, 15.75, 30.53, 57.42, 101.96, 163.31, 222.44, 251.6]),
        (128, 4, [4, 7.88, 15.27, 28.71, 50.98, 81.66, 111.22, 125.8]),
        (32, 4, [4, 7.5, 13.24, 21.0, 28.22, 31.55]),
        (16, 1, [1, 1.94, 3.64, 6.45, 10.3, 13.97]),
    ],
)
def test_distinct_experts_of_1_2_4_tokens(
    number: int, per_token: int, by_doubling: list[float]
) -> None:
    """Each expert is missed by a token with probability 1 - k/E, by T with its T-th power."""
    tokens = 2.0 ** np.arange(len(by_doubling))
    found = experts(number, per_token).touched(tokens)
    assert found == pytest.approx(by_doubling, abs=0.051)
    assert experts(number, per_token).touched(0) == 0
    assert experts(number, number).touched(1) == number


@pytest.mark.parametrize(
    ("name", "total", "active", "within"),
    [
        ("mixtral-8x7b", 46.7e9, 12.9e9, 0.01),
        ("mixtral-8x22b", 141e9, 39e9, 0.01),
        ("qwen3-30b-a3b", 30.5e9, 3.3e9, 0.02),  # of 3.353, published as 3.3
        ("qwen3-235b-a22b", 235e9, 22e9, 0.01),
    ],
)
def test_counts_are_the_published_ones(
    name: str, total: float, active: float, within: float
) -> None:
    model = catalog.model(name)
    assert model.parameters == pytest.approx(total, rel=0.01)
    assert model.active_parameters == pytest.approx(active, rel=within)


def test_weights_and_kv_of_mixtral() -> None:
    """A layer: 8 x 3 x 4,096 x 14,336 = 1,409,286,144 of experts, 4,096 x (2 x 4,096 + 2 x 1,024) =
    41,943,040 of attention; router 8 x 4,096 and two norms, 40,960. 32 of them, the final norm, and
    2 x 32,000 x 4,096 = 262,144,000: 46,439,333,888 + 1,314,816 + 262,144,000. A token keeps
    2 x 8 x 128 numbers in each of 32 layers."""
    assert MIXTRAL.linear_parameters() == 46_439_333_888
    assert MIXTRAL.small_parameters() == 1_314_816
    assert MIXTRAL.parameters == 46_702_792_704
    assert MIXTRAL.parameters - MIXTRAL.active_parameters == 32 * 6 * 176_160_768
    assert MIXTRAL.weight_bytes("bf16") == 93_405_585_408
    assert MIXTRAL.weight_bytes("fp8") == 46_439_333_888 + 2 * 263_458_816
    assert MIXTRAL.kv_bytes_per_token("bf16") == 131_072
    assert MIXTRAL.has_experts
    assert not catalog.model("llama-3.1-8b").has_experts
    assert catalog.model("llama-3.1-8b").expert_layers == 0
    assert catalog.model("deepseek-v3").expert_layers == 58  # the first three are dense


def test_biases_and_shared_experts_count() -> None:
    """Hidden size 10: an expert of width 4 has 3 x 40 weights and 4 + 4 + 10 biases, a shared one
    of width 6 has 3 x 60 and 6 + 6 + 10, the router 8 x (10 + 1)."""
    mlp = MixtureOfExperts(8, 2, 4, 6, mlp_bias=True, router_bias=True)
    assert counted(mlp.weights(10), "experts") == 8 * 120
    assert counted(mlp.weights(10), "projections") == 180
    assert counted(mlp.weights(10), "kept") == 88 + 8 * 18 + 22
    assert mlp.idle_parameters(10) == 6 * 138
    assert mlp.flops_per_token(10) == 2 * (80 + 2 * 120 + 180)
    assert counted(replace(mlp, mlp_matrices=2).weights(10), "experts") == 8 * 80


def test_the_largest_pass_holds_what_every_chosen_expert_has_in_between() -> None:
    """Eight experts of 768, of which 1,536 is less than the hidden 2,048: 8 x (2,048 + 768) =
    22,528 numbers a token, and 2 x 2,048 for the residual and its copy."""
    deployment = Deployment(QWEN, catalog.gpu("h100-sxm"), catalog.engine("ideal"))
    logits = 2 * 16 * 151_936 * 4
    assert activation_bytes(deployment, 1000, 16) == 1000 * 2 * (4096 + 22_528) + logits
    mlp = MixtureOfExperts(8, 2, 14336)
    assert mlp.widest(4096, Layout(2)) == 2 * (14_336 + 7168)


def test_gpus_that_cannot_share_an_expert_are_refused() -> None:
    (group,) = QWEN.layers
    odd = replace(QWEN, layers=(LayerGroup(48, group.attention, experts(width=100)),))
    with pytest.raises(ValueError, match="8 GPUs cannot share the 100 columns of an expert of"):
        Deployment(odd, catalog.gpu("h100-sxm"), catalog.engine("ideal"), layout=Layout(8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"number": 0}, "num_experts: got 0"),
        ({"per_token": 9}, "experts_per_token: got 9, expected at most the 8 experts"),
        ({"width": 0}, "moe_intermediate_size: got 0"),
        ({"shared_intermediate_size": -1}, "shared_intermediate_size: got -1"),
        ({"mlp_matrices": 4}, "mlp_matrices: got 4, expected 2 or 3"),
    ],
)
def test_impossible_shapes_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experts(**fields)
