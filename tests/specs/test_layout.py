"""How GPUs share a model, against values worked out by hand."""

from __future__ import annotations

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.layers import Weights
from sim.specs.layout import Layout
from tests.gpus import data_sheet

IDEAL = catalog.engine("ideal")


def held(name: str, layout: Layout) -> float:
    """Bytes of 16-bit weights on one GPU."""
    return Deployment(
        catalog.model(name), catalog.gpu("h200-sxm"), IDEAL, layout=layout
    ).weight_bytes()


@pytest.mark.parametrize(
    ("fields", "gpus", "width"),
    [
        ({}, 1, 1),
        ({"tensor": 4}, 4, 4),
        ({"tensor": 4, "expert": 4}, 4, 1),
        ({"tensor": 2, "data": 4, "expert": 8}, 8, 1),
        ({"tensor": 2, "data": 4}, 8, 8),
        ({"tensor": 8, "expert": 2, "pipeline": 3}, 24, 4),
    ],
)
def test_gpus_and_the_width_of_an_expert(fields: dict[str, int], gpus: int, width: int) -> None:
    assert Layout(**fields).gpus == gpus
    assert Layout(**fields).expert_width == width


@pytest.mark.parametrize(("gpus", "size"), [(1, 131_072), (8, 16_384), (16, 16_384)])
def test_each_gpu_keeps_a_kv_head_at_least(gpus: int, size: int) -> None:
    """Of the 8 of Llama 3.1 8B: on 16 GPUs two keep the same one."""
    attention = catalog.model("llama-3.1-8b").layers[0].attention
    assert 32 * attention.kv_bytes_per_token("bf16", Layout(tensor=gpus)) == size


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tensor": 0}, "tensor_parallel: got 0, expected at least 1"),
        ({"data": -1}, "data_parallel: got -1"),
        ({"tensor": 4, "expert": 8}, "expert_parallel: got 8, expected a divisor of the 4 GPUs"),
        ({"tensor": 4, "expert": 3}, "expert_parallel: got 3, expected a divisor of the 4 GPUs"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**fields)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_dense_model_is_shared_out_evenly(gpus: int) -> None:
    assert held("llama-3.1-8b", Layout(gpus)) == held("llama-3.1-8b", Layout()) / gpus


def test_more_gpus_than_kv_heads_hold_copies_of_them() -> None:
    """16 GPUs, 8 KV heads: each GPU has the key and the value head of 128 that it shares with
    another, so 8 more of both in each of 32 layers, a 16th of them on each GPU."""
    copies = 32 * 2 * 8 * 128 * 4096 / 16
    even = held("llama-3.1-8b", Layout()) / 16
    assert held("llama-3.1-8b", Layout(16)) == even + 2 * copies


def test_the_router_is_on_every_gpu_and_experts_are_whole_or_cut() -> None:
    """Hidden size 10: 8 experts of 3 x 10 x 4 weights and 4 + 4 + 10 biases, shared ones of
    3 x 10 x 6 and 6 + 6 + 10, a router of 8 x 11. Cut over 2 GPUs, or 4 whole ones on each."""
    mlp = MixtureOfExperts(8, 2, 4, 6, mlp_bias=True, router_bias=True)
    each = (
        Weights("experts", 480, "experts"),
        Weights("router", 88, "kept"),
        Weights("shared experts", 90, "projections"),
        Weights("experts' biases", 72 + 11, "kept"),
    )
    assert mlp.weights(10, Layout(2)) == each
    assert mlp.weights(10, Layout(2, expert=2)) == each


def test_the_gpu_with_most_experts_counts() -> None:
    """8 experts over 3 GPUs: one has 3, and what a GPU holds is what the memory must have."""
    layout = Layout(3, expert=3)
    mlp = MixtureOfExperts(8, 2, 4)
    assert mlp.weights(10, layout)[0].parameters == 3 * 120
    assert mlp.not_shared(layout) is None
    assert mlp.not_shared(Layout(9, expert=9)) == (
        "expert_parallel: 9 GPUs cannot share the 8 experts"
    )


def test_data_ranks_copy_all_but_the_experts() -> None:
    """Each rank has the whole MLP of a dense layer, and a share of the experts."""
    layout = Layout(tensor=2, data=4, expert=8)
    assert DenseMlp(64).weights(16, layout) == DenseMlp(64).weights(16, Layout(2))
    assert MixtureOfExperts(8, 2, 4).weights(10, layout)[0].parameters == 120


def test_experts_may_be_stored_in_another_format() -> None:
    """Mixtral's experts are 32 x 8 x 3 x 4,096 x 14,336 weights: a byte less of each in fp8, in
    memory and when a pass touches all of them; attention reads as much as before."""
    model, gpu = catalog.model("mixtral-8x7b"), data_sheet("h200-sxm")
    plain = Deployment(model, gpu, IDEAL)
    narrow = Deployment(model, gpu, IDEAL, experts="fp8")
    assert plain.weight_bytes() - narrow.weight_bytes() == 32 * 8 * 3 * 4096 * 14_336
    before, after = (
        {o.name: float(o.bytes) for o in CostModel(d).by_size.per_token(512)}
        for d in (plain, narrow)
    )
    assert sum(before.values()) - sum(after.values()) == 32 * 8 * 3 * 4096 * 14_336
    unlike = {name for name in before if after[name] != before[name]}
    assert unlike == {"experts: gate and up", "experts: down"}
