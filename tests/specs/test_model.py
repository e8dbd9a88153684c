"""Parameter, byte and FLOP formulas against values worked out by hand, for MHA and GQA models."""

from __future__ import annotations

from typing import Any

import pytest

from sim.specs.layers import counted
from sim.specs.precision import precision_bytes
from tests.dense_models import LLAMA_2_7B, attention_of, changed, mlp_of

LLAMA_31_8B = changed(
    LLAMA_2_7B, name="llama-3.1-8b", num_kv_heads=8, intermediate_size=14336, vocab_size=128256
)

GPT_J = changed(
    LLAMA_2_7B, name="gpt-j-6b", num_layers=28, num_heads=16, num_kv_heads=16, head_dim=256,
    intermediate_size=16384, vocab_size=50400, max_position_embeddings=2048, mlp_bias=True,
    mlp_matrices=2, parallel_mlp=True, norm_bias=True, head_bias=True,
)  # fmt: skip


def test_parameters_of_a_multi_head_model() -> None:
    """Llama-2-7B, by hand.

    Attention: Q, K, V and O are each 4,096 x 4,096 = 16,777,216; four of them are 67,108,864.
    MLP: 4,096 x 11,008 = 45,088,768; three of them are 135,266,304.
    Norms: 2 x 4,096 = 8,192. One layer: 67,108,864 + 135,266,304 + 8,192 = 202,383,360.
    32 layers: 6,476,267,520. Embedding: 32,000 x 4,096 = 131,072,000, and the LM head as many.
    Total: 6,476,267,520 + 262,144,000 + 4,096 (final norm) = 6,738,415,616.
    """
    assert (
        counted(attention_of(LLAMA_2_7B).weights(LLAMA_2_7B.hidden_size), "projections")
        == 67_108_864
    )
    assert counted(mlp_of(LLAMA_2_7B).weights(LLAMA_2_7B.hidden_size), "projections") == 135_266_304
    assert LLAMA_2_7B.linear_parameters() == 32 * 202_375_168
    assert LLAMA_2_7B.small_parameters() == 32 * 8_192 + 4_096
    assert LLAMA_2_7B.embedding_parameters() == 131_072_000
    assert LLAMA_2_7B.head_parameters() == 131_072_000
    assert LLAMA_2_7B.parameters == 6_738_415_616


def test_parameters_of_a_grouped_query_model() -> None:
    """Llama-3.1-8B, by hand.

    Attention: Q and O 4,096 x 4,096 = 16,777,216 each; K and V 4,096 x (8 x 128 = 1,024) =
    4,194,304 each; together 41,943,040.
    MLP: 3 x 4,096 x 14,336 = 176,160,768. One layer with its 8,192 norms: 218,112,000.
    32 layers: 6,979,584,000. Embedding and head: 2 x 128,256 x 4,096 = 1,050,673,152.
    Total with the final norm's 4,096: 8,030,261,248.
    """
    assert (
        counted(attention_of(LLAMA_31_8B).weights(LLAMA_31_8B.hidden_size), "projections")
        == 41_943_040
    )
    assert (
        counted(mlp_of(LLAMA_31_8B).weights(LLAMA_31_8B.hidden_size), "projections") == 176_160_768
    )
    assert LLAMA_31_8B.linear_parameters() + LLAMA_31_8B.small_parameters() == 6_979_588_096
    assert LLAMA_31_8B.parameters == 8_030_261_248


def test_weight_bytes_of_a_multi_head_model() -> None:
    """Llama-2-7B: 32 x 202,375,168 = 6,476,005,376 projection weights, 262,144,000 of embedding
    and head, 32 x 8,192 + 4,096 = 266,240 norms.

    bf16: 2 x 6,738,415,616 = 13,476,831,232.
    fp8: 6,476,005,376 + 2 x 262,144,000 + 2 x 266,240 = 7,000,825,856.
    int4: 3,238,002,688 + 524,288,000 + 532,480 = 3,762,823,168.
    """
    assert LLAMA_2_7B.weight_bytes("bf16") == 13_476_831_232
    assert LLAMA_2_7B.weight_bytes("fp16") == 13_476_831_232
    assert LLAMA_2_7B.weight_bytes("fp8") == 7_000_825_856
    assert LLAMA_2_7B.weight_bytes("int8") == 7_000_825_856
    assert LLAMA_2_7B.weight_bytes("int4") == 3_762_823_168


def test_weight_bytes_of_a_grouped_query_model() -> None:
    """Llama-3.1-8B: 32 x (41,943,040 + 176,160,768) = 6,979,321,856 projection weights,
    1,050,673,152 of embedding and head, 266,240 norms.

    bf16: 2 x 8,030,261,248 = 16,060,522,496. fp32: twice that.
    fp8: 6,979,321,856 + 2,101,346,304 + 532,480 = 9,081,200,640.
    int4: 3,489,660,928 + 2,101,346,304 + 532,480 = 5,591,539,712.
    With an fp8 embedding and head as well: 9,081,200,640 - 1,050,673,152 = 8,030,527,488.
    """
    assert LLAMA_31_8B.weight_bytes("bf16") == 16_060_522_496
    assert LLAMA_31_8B.weight_bytes("fp32") == 32_121_044_992
    assert LLAMA_31_8B.weight_bytes("fp8") == 9_081_200_640
    assert LLAMA_31_8B.weight_bytes("int4") == 5_591_539_712
    assert LLAMA_31_8B.weight_bytes("fp8", embedding_precision="fp8") == 8_030_527_488


def test_a_model_without_gate_and_with_attention_beside_the_mlp() -> None:
    """GPT-J-6B, by hand.

    Attention: four of 4,096 x 4,096 = 67,108,864. MLP: 2 x 4,096 x 16,384 = 134,217,728.
    Small: one norm of 2 x 4,096 = 8,192, MLP biases 16,384 + 4,096 = 20,480; together 28,672.
    28 layers of 201,355,264 are 5,637,947,392. Embedding 50,400 x 4,096 = 206,438,400, the head as
    many and 50,400 biases. Final norm 8,192. In sum 6,050,882,784.
    fp8: 28 x 201,326,592 = 5,637,144,576 projection weights at 1 byte; the other 413,738,208 at 2.
    FLOP of the projections: 2 x 5,637,144,576; biases are not in them, nor in the head's.
    """
    assert counted(mlp_of(GPT_J).weights(GPT_J.hidden_size), "projections") == 134_217_728
    assert GPT_J.small_parameters() == 28 * 28_672 + 8_192
    assert GPT_J.linear_parameters() + GPT_J.small_parameters() == 28 * 201_355_264 + 8_192
    assert GPT_J.head_parameters() == 206_438_400 + 50_400
    assert GPT_J.parameters == 6_050_882_784
    assert GPT_J.weight_bytes("fp16") == 2 * 6_050_882_784
    assert GPT_J.weight_bytes("fp8") == 5_637_144_576 + 2 * 413_738_208
    assert GPT_J.linear_flops_per_token() == 2 * 5_637_144_576
    assert GPT_J.head_flops_per_token() == 2 * 206_438_400
    assert GPT_J.kv_bytes_per_token("fp16") == 2 * 28 * 4096 * 2


def test_kv_cache_counts_kv_heads_and_not_query_heads() -> None:
    """Llama-2-7B: 2 x 32 layers x 32 heads x 128 x 2 bytes = 524,288 a token, so 4,096 tokens are
    2,147,483,648 bytes. Llama-3.1-8B has 8 KV heads: a quarter, 131,072 a token; half in fp8.
    """
    assert LLAMA_2_7B.kv_bytes_per_token("fp16") * 4096 == 2_147_483_648
    assert LLAMA_31_8B.kv_bytes_per_token("bf16") == 131_072
    assert LLAMA_31_8B.kv_bytes_per_token("fp8") == 65_536


def test_flops_of_a_multi_head_model() -> None:
    """Llama-2-7B, one token: projections 2 x 6,476,005,376 = 12,952,010,752; LM head
    2 x 131,072,000 = 262,144,000; attention over 1,000 tokens: scores and values are each
    2 x 4,096 x 1,000 a layer, so 4 x 32 x 4,096 x 1,000 = 524,288,000.
    """
    assert LLAMA_2_7B.linear_flops_per_token() == 12_952_010_752
    assert LLAMA_2_7B.head_flops_per_token() == 262_144_000
    assert LLAMA_2_7B.attention_flops_per_token(1000) == 524_288_000


def test_grouped_queries_save_kv_bytes_but_no_attention_flops() -> None:
    context = 1000
    assert LLAMA_31_8B.attention_flops_per_token(context) == LLAMA_2_7B.attention_flops_per_token(
        context
    )


def test_tied_embeddings_are_stored_once_and_computed_all_the_same() -> None:
    tied = changed(LLAMA_31_8B, tie_word_embeddings=True)
    assert LLAMA_31_8B.parameters - tied.parameters == 128_256 * 4096
    assert LLAMA_31_8B.weight_bytes("int4") - tied.weight_bytes("int4") == 128_256 * 4096 * 2
    assert tied.head_flops_per_token() == LLAMA_31_8B.head_flops_per_token()


@pytest.mark.parametrize(
    ("change", "extra_per_layer"),
    [
        ({"attention_bias": True}, 4096 + 2 * 1024),
        ({"output_bias": True}, 4096),
        ({"mlp_bias": True}, 2 * 14336 + 4096),
        ({"qk_norm": True}, 2 * 128),
        ({"parallel_mlp": True}, -4096),
    ],
)
def test_biases_and_norms_add_few_parameters_that_stay_at_16_bits(
    change: dict[str, Any], extra_per_layer: int
) -> None:
    other = changed(LLAMA_31_8B, **change)
    assert other.parameters - LLAMA_31_8B.parameters == 32 * extra_per_layer
    difference = other.weight_bytes("int4") - LLAMA_31_8B.weight_bytes("int4")
    assert difference == 32 * extra_per_layer * 2


def test_norm_biases_count_for_the_final_norm_too() -> None:
    other = changed(LLAMA_31_8B, norm_bias=True)
    assert other.parameters - LLAMA_31_8B.parameters == (2 * 32 + 1) * 4096


def test_head_dim_need_not_be_hidden_size_over_heads() -> None:
    """64 heads of 128 on a hidden size of 5,120: Q is 5,120 x 8,192, K and V 5,120 x 1,024."""
    wide = changed(LLAMA_31_8B, hidden_size=5120, num_heads=64)
    assert (
        counted(attention_of(wide).weights(wide.hidden_size), "projections")
        == 2 * 5120 * 8192 + 2 * 5120 * 1024
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers: got 0"),
        ({"head_dim": -128}, "head_dim: got -128"),
        ({"num_kv_heads": 7}, "num_kv_heads: got 7, expected a divisor of the 32"),
        ({"num_kv_heads": 64}, "num_kv_heads: got 64"),
        ({"sliding_window": 0}, "sliding_window: got 0"),
        ({"mlp_matrices": 1}, "mlp_matrices: got 1, expected 2 or 3"),
        ({"head_bias": True, "tie_word_embeddings": True}, "head_bias: a head tied"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(LLAMA_31_8B, **change)


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown precision 'fp4'; known: fp32, bf16"):
        LLAMA_31_8B.weight_bytes("fp4")
    with pytest.raises(ValueError, match="unknown precision 'bfloat16'"):
        LLAMA_31_8B.kv_bytes_per_token("bfloat16")
    with pytest.raises(ValueError, match="unknown precision 'fp6'"):
        LLAMA_31_8B.weight_bytes("fp8", embedding_precision="fp6")
    plain = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")
    assert [precision_bytes(p) for p in plain] == [4, 2, 2, 1, 1, 0.5]
