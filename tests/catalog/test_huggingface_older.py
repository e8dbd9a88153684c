"""Families whose ``config.json`` has keys of its own, by small shapes: matrices and kept bytes by
hand, biases and norms by their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.latent import Latent
from tests.huggingface import config, refused

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
FALCON = {"architectures": ["FalconForCausalLM"], **SIZES}
NEOX = {"architectures": ["GPTNeoXForCausalLM"], **SIZES, "intermediate_size": 96}
STABLE = {"architectures": ["StableLmForCausalLM"], **SIZES, "intermediate_size": 96}
BLOOM = {
    **{"architectures": ["BloomForCausalLM"], "n_embed": 64, "n_layer": 2, "n_head": 4},
    **{"seq_length": 512, "vocab_size": 100},
}
MPT = {
    **{"architectures": ["MPTForCausalLM"], "d_model": 64, "n_layers": 2, "n_heads": 4},
    **{"max_seq_len": 512, "vocab_size": 100, "expansion_ratio": 2, "no_bias": True},
}
INTERN = {**SIZES, "intermediate_size": 96, "num_key_value_heads": 2}


class Row(NamedTuple):
    """A file, the matrices of a layer, and its KV heads, of 16 elements each."""

    document: dict[str, Any]
    matrices: int
    kv_heads: int


def attention(kv_heads: int) -> int:
    """Weights of the four projections of four query heads."""
    return 64 * 16 * (4 + 2 * kv_heads + 4)


ROWS = {
    "falcon, one KV head": Row(FALCON, attention(1) + 2 * 64 * 256, 1),
    "falcon, a KV head each": Row(
        {**FALCON, "multi_query": False}, attention(4) + 2 * 64 * 256, 4
    ),
    "falcon, new": Row(
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 80},
        *(attention(2) + 2 * 64 * 80, 2),
    ),
    "gpt-neox": Row(NEOX, attention(4) + 2 * 64 * 96, 4),
    "stablelm": Row({**STABLE, "num_key_value_heads": 2}, attention(2) + 3 * 64 * 96, 2),
    "bloom": Row(BLOOM, attention(4) + 2 * 64 * 256, 4),
    "mpt": Row(MPT, attention(4) + 2 * 64 * 128, 4),
    "mpt, grouped": Row(
        {**MPT, "attn_config": {"kv_n_heads": 2}}, attention(2) + 2 * 64 * 128, 2
    ),
    "internlm 2": Row(
        {"architectures": ["InternLM2ForCausalLM"], **INTERN}, attention(2) + 3 * 64 * 96, 2
    ),
    "internlm 3": Row({"model_type": "internlm3", **INTERN}, attention(2) + 3 * 64 * 96, 2),
    "baichuan": Row(
        {"model_type": "baichuan", **SIZES, "intermediate_size": 96, "model_max_length": 512},
        *(attention(4) + 3 * 64 * 96, 4),
    ),
    "gemma": Row(
        {"model_type": "gemma", **INTERN, "head_dim": 16}, attention(2) + 3 * 64 * 96, 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ROWS))
def test_matrices_and_kept_bytes_are_those_by_hand(tmp_path: Path, name: str) -> None:
    document, matrices, kv_heads = ROWS[name]
    found = config(tmp_path, document)
    assert found.linear_parameters() == 2 * matrices
    assert found.kv_bytes_per_token("bf16") == 2 * 2 * kv_heads * 16 * 2


@pytest.mark.parametrize(
    ("document", "tied", "norm_bias", "beside", "biases"),
    [
        (FALCON, True, True, True, (False, False, False)),
        ({**FALCON, "bias": True, "parallel_attn": False}, True, True, False, (True, True, True)),
        (NEOX, False, True, True, (True, True, True)),
        (
            {**NEOX, "use_parallel_residual": False, "attention_bias": False},
            *(False, True, False, (False, False, True)),
        ),
        (STABLE, False, True, False, (False, False, False)),
        (
            {**STABLE, "use_qkv_bias": True, "use_parallel_residual": True},
            *(False, True, True, (True, False, False)),
        ),
        (BLOOM, True, True, False, (True, True, True)),
        (MPT, True, False, False, (False, False, False)),
        ({**MPT, "no_bias": False}, True, False, False, (True, True, True)),
        (
            {"model_type": "internlm3", **INTERN, "qkv_bias": True, "bias": True},
            *(False, False, False, (True, True, True)),
        ),
    ],
)
def test_biases_and_norms_are_as_the_keys_say(
    tmp_path: Path,
    document: dict[str, Any],
    tied: bool,
    norm_bias: bool,
    beside: bool,
    biases: tuple[bool, bool, bool],
) -> None:
    found = config(tmp_path, document)
    (group,) = found.layers
    assert isinstance(group.attention, GroupedQuery)
    assert isinstance(group.mlp, DenseMlp)
    assert (found.tie_word_embeddings, found.norm_bias) == (tied, norm_bias)
    assert group.parallel_mlp == beside
    attended = group.attention.attention_bias, group.attention.output_bias
    assert (*attended, group.mlp.mlp_bias) == biases


@pytest.mark.parametrize("document", [BLOOM, MPT, ROWS["baichuan"].document])
def test_a_context_may_have_another_name(tmp_path: Path, document: dict[str, Any]) -> None:
    assert config(tmp_path, document).max_position_embeddings == 512


HY_3 = {
    **{"model_type": "hy_v3", **SIZES, "num_key_value_heads": 2, "head_dim": 16},
    **{"intermediate_size": 160, "expert_hidden_dim": 24, "num_experts": 8},
    **{"num_experts_per_tok": 2, "num_shared_experts": 1, "first_k_dense_replace": 1},
}


def test_hy3_has_dense_layers_and_then_experts_with_a_shared_one(tmp_path: Path) -> None:
    found = config(tmp_path, HY_3)
    dense, sparse = found.layers
    assert (dense.count, sparse.count) == (1, 1)
    assert isinstance(dense.attention, GroupedQuery)
    assert dense.attention.qk_norm
    more = sparse.linear_parameters(64) - dense.linear_parameters(64)
    assert more == 3 * 64 * (24 * (8 + 1) - 160)


LING = {
    **{"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid"},
    **{**SIZES, "num_hidden_layers": 8, "num_key_value_heads": 4, "head_dim": 16},
    **{"layer_group_size": 3, "no_kda_lora": True, "kv_lora_rank": 32, "q_lora_rank": None},
    **{"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "num_experts": 8},
    **{"num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 24},
    **{"intermediate_size": 160, "first_k_dense_replace": 1},
    "gated_attention_proj_granularity_type": "head_wise",
}


def test_ling_3_has_latent_attention_at_the_end_of_groups_and_behind_the_last(
    tmp_path: Path,
) -> None:
    found = config(tmp_path, LING)
    latent = [p for g in found.layers if isinstance(g.attention, Latent) for p in g.places]
    assert latent == [2, 5, 6, 7]
    assert found.kv_bytes_per_token("bf16") == 4 * (32 + 8) * 2
    delta = next(g.attention for g in found.layers if isinstance(g.attention, KimiDelta))
    assert delta.full_gate
    assert delta.gate_rank * (64 + 64) == 64 * 64
    text = {key: LING[key] for key in LING if key not in ("architectures", "model_type")}
    outer = {"architectures": ["BailingMoeV3VLForConditionalGeneration"]}
    wrapped = {**outer, "model_type": "bailing_moe_v3_vl", "text_config": text}
    assert config(tmp_path, wrapped).layers == found.layers


def test_the_type_of_the_file_stands_in_for_that_of_its_text_part(tmp_path: Path) -> None:
    """The text part of MiniMax M3 states no ``model_type``; one that states another goes by it."""
    text = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 24}
    text |= {"dense_intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2}
    outer = {"architectures": ["FooForConditionalGeneration"], "model_type": "minimax_m3_vl"}
    found = config(tmp_path, {**outer, "text_config": {**text, "moe_layer_freq": [0, 1]}})
    assert [group.count for group in found.layers] == [1, 1]
    other = {**outer, "text_config": {**text, "model_type": "foo"}}
    assert "is not supported" in refused(tmp_path, other, {})


def test_the_last_layer_with_experts_may_be_null(tmp_path: Path) -> None:
    ernie = {"model_type": "ernie4_5_moe", **SIZES, "intermediate_size": 96}
    ernie |= {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24}
    last = config(tmp_path, ernie, moe_layer_end_index=None)
    assert last.layers == config(tmp_path, ernie, moe_layer_end_index=1).layers
