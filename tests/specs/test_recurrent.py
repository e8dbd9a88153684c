"""Layers with a constant state: what they weigh, keep and compute, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.specs.dense_mlp import NoMlp
from sim.specs.gated_delta import GatedDelta
from sim.specs.layers import Kept
from sim.specs.layout import Layout
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2

NEXT = GatedDelta(16, 32, 128, 128)
"""Qwen3-Next and Qwen3.5 35B, with states in 32 bits."""
NANO = Mamba2(mamba_heads=64, mamba_head_dim=64, state_size=128)
TWO = Layout(tensor=2)


def test_what_a_sequence_keeps() -> None:
    """32 heads of 128 x 128, and three inputs of 16 x 128 twice and 32 x 128 channels."""
    assert NEXT.state_bytes() == 32 * 128 * 128 * 4
    assert 36 * NEXT.state_bytes() == pytest.approx(75.50e6, rel=1e-4)
    assert 36 * replace(NEXT, state_precision="bf16").state_bytes() == pytest.approx(37.75e6, 1e-4)
    assert 36 * NEXT.conv_bytes() == pytest.approx(1.77e6, rel=1e-3)
    assert NEXT.kept("fp8") == Kept(0.0, None, 2_097_152 + 49_152)
    assert NEXT.kept("fp8", TWO).state == NEXT.kept("fp8").state / 2
    assert NEXT.kv_bytes_per_token("bf16") == 0
    assert NEXT.reads("bf16") == ()
    assert NANO.kept("bf16").state == 64 * 64 * 128 * 4 + (4096 + 2 * 1024) * 3 * 2


def test_weights_of_linear_attention() -> None:
    """Queries, keys, values and their gate in, values out; decay and writing strength apart."""
    projections, small = NEXT.weights(2048)
    assert projections.parameters == 2048 * (2 * 2048 + 2 * 4096) + 4096 * 2048
    assert small.parameters == 2048 * 64 + 8192 * 4 + 2 * 32 + 128
    assert small.role == "kept"
    assert NEXT.flops_per_token(2048) == 2 * (projections.parameters + 2048 * 64)
    assert NEXT.flops_per_pair() == 0
    assert NEXT.weights(2048, TWO)[0].parameters == projections.parameters / 2


def test_weights_of_mamba() -> None:
    """Inputs, their gate, B, C and steps in; inputs out."""
    projections, small = NANO.weights(2688)
    assert projections.parameters == 2688 * (2 * 4096 + 2 * 1024 + 64) + 4096 * 2688
    assert small.parameters == 6144 * 4 + 6144 + 3 * 64 + 4096
    assert NANO.flops_per_token(2688) == 2 * projections.parameters


def test_more_gpus_than_groups_copy_them() -> None:
    assert NANO.channels_of(8) == 4096 / 8 + 2 * 128
    assert NANO.channels_of(16) == 4096 / 16 + 2 * 128


def test_lightning_attention_has_no_convolution() -> None:
    """Queries, keys, values and a gate in, results out."""
    one = Lightning(64, 128)
    projections, norm = one.weights(6144)
    assert projections.parameters == 5 * 6144 * 8192
    assert norm.parameters == 8192
    assert one.kept("bf16").state == 64 * 128 * 128 * 4
    with pytest.raises(ValueError, match="conv_kernel: got 4, expected 1"):
        replace(one, conv_kernel=4)


def test_heads_are_shared_out_whole() -> None:
    assert NEXT.not_shared(Layout(tensor=16)) is None
    assert NEXT.not_shared(Layout(tensor=32)) == (
        "tensor_parallel: 32 GPUs cannot share the 16 key heads of linear attention"
    )
    assert NANO.not_shared(Layout(tensor=3)) == (
        "tensor_parallel: 3 GPUs cannot share the 64 heads with a state"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GatedDelta(3, 32, 128, 128), "linear_key_heads: got 3, expected a divisor"),
        (lambda: replace(NEXT, state_precision="fp8"), "state_precision: got fp8, expected fp32"),
        (lambda: replace(NEXT, conv_kernel=0), "conv_kernel: got 0"),
        (lambda: Mamba2(64, 64, 128, mamba_groups=7), "mamba_groups: got 7, expected a divisor"),
    ],
)
def test_impossible_shapes(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_a_whole_model() -> None:
    """12 layers keep 2 x 2 x 256 numbers a token, 36 a state, however long the sequence is."""
    spec = catalog.model("qwen3-next-80b-a3b")
    assert spec.kv_bytes_per_token("bf16") == 24_576
    assert spec.state_bytes() == pytest.approx(37.75e6 + 1.77e6, rel=1e-3)
    assert spec.kv_bytes_of(1000, "bf16") == spec.state_bytes() + 24_576_000
    assert spec.attention_flops_per_token(1000) == 12 * 4 * 16 * 256 * 1000
    gate = catalog.model("qwen3.5-27b").layers[1].attention
    assert gate.weights(5120)[0].parameters == 5120 * (3 * 24 * 256 + 2 * 4 * 256)


def test_a_layer_without_an_mlp_has_one_norm_and_nothing_else() -> None:
    alone = catalog.model("nemotron-3-nano-30b-a3b").layers[1]
    assert alone.mlp == NoMlp()
    assert alone.norms == 1
    assert alone.weights(2688) == alone.attention.weights(2688)
