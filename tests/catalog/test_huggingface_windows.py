"""Models with windows: their configuration files, what is published of them, and their KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.errors import UsageError
from sim.specs.grouped_query import GroupedQuery
from sim.specs.window import Window
from tests.catalog.test_huggingface_experts import GPT_OSS, SCOUT, groups
from tests.huggingface import config

GEMMA_2 = {
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_size": 3584,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 16,
    "num_hidden_layers": 42, "num_key_value_heads": 8, "sliding_window": 4096,
    "vocab_size": 256000,
}  # fmt: skip
GEMMA_2_27B = GEMMA_2 | {
    "head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864, "num_attention_heads": 32,
    "num_hidden_layers": 46, "num_key_value_heads": 16,
}  # fmt: skip
GEMMA_3 = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "hidden_size": 3840, "intermediate_size": 15360, "num_attention_heads": 16,
        "num_hidden_layers": 48, "num_key_value_heads": 8, "sliding_window": 1024,
    },
    "vision_config": {},
}  # fmt: skip
GEMMA_3_27B = GEMMA_3 | {
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        "sliding_window": 1024,
    },
}  # fmt: skip
TYPES = (["sliding_attention"] * 5 + ["full_attention"]) * 5
GEMMA_4 = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "attention_bias": False, "attention_k_eq_v": True, "enable_moe_block": True,
        "global_head_dim": 512, "head_dim": 256, "hidden_size": 2816,
        "hidden_size_per_layer_input": 0, "intermediate_size": 2112, "layer_types": TYPES,
        "max_position_embeddings": 262144, "moe_intermediate_size": 704,
        "num_attention_heads": 16, "num_experts": 128, "num_global_key_value_heads": 2,
        "num_hidden_layers": 30, "num_key_value_heads": 8, "num_kv_shared_layers": 0,
        "sliding_window": 1024, "tie_word_embeddings": True, "top_k_experts": 8,
        "vocab_size": 262144,
    },
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "sliding_window": 4096, "tie_word_embeddings": False,
    "vocab_size": 32000,
}  # fmt: skip
LLAMA_4 = {"architectures": ["Llama4ForConditionalGeneration"], "text_config": SCOUT}
MAVERICK = SCOUT | {
    "interleave_moe_layer_step": 2, "max_position_embeddings": 1048576, "num_local_experts": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("gemma-2-9b", GEMMA_2),
        ("gemma-2-27b", GEMMA_2_27B),
        ("gemma-3-12b", GEMMA_3),
        ("gemma-3-27b", GEMMA_3_27B),
        ("mistral-7b-v0.1", MISTRAL),
        ("gpt-oss-120b", GPT_OSS),
        ("gpt-oss-20b", GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32,
                                   "layer_types": None}),
        ("llama-4-scout", LLAMA_4),
        ("llama-4-maverick", LLAMA_4 | {"text_config": MAVERICK}),
    ],
)  # fmt: skip
def test_the_catalogue_and_the_file_are_one_model(
    tmp_path: Path, name: str, base: dict[str, Any]
) -> None:
    read, known = config(tmp_path, base), catalog.model(name)
    assert read.layers == known.layers
    assert read.parameters == known.parameters
    assert read.max_position_embeddings == known.max_position_embeddings
    assert read.tie_word_embeddings == known.tie_word_embeddings


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("gemma-2-9b", 0.918e9 + 8.324e9, None),  # arXiv 2408.00118, table 2: embedding and others
        ("gemma-2-27b", 1.180e9 + 26.047e9, None),
        ("gemma-3-12b", 1.012e9 + 10.759e9, None),  # arXiv 2503.19786, table 1
        ("gemma-3-27b", 1.416e9 + 25.600e9, None),
        ("mistral-7b-v0.1", 7.242e9, None),
        ("gpt-oss-20b", 20.915e9, 3.61e9 + 201_088 * 2880),  # published without the embedding
        ("gpt-oss-120b", 116.829e9, 5.13e9 + 201_088 * 2880),
        ("llama-4-scout", 107.770e9, 17.173e9),
        ("llama-4-maverick", 400.712e9, 17.185e9),
    ],
)
def test_counts(name: str, total: float, active: float | None) -> None:
    spec = catalog.model(name)
    assert spec.parameters == pytest.approx(total, rel=0.01)
    assert spec.active_parameters == pytest.approx(active or total, rel=0.01)


KV_MB = {
    "gemma-2-9b": (2114, 6342, 23_253),
    "gemma-2-27b": (2315, 6946, 25_468),
    "gemma-3-12b": (872, 2483, 8926),
    "gemma-3-27b": (1107, 3121, 11_174),
    "gpt-oss-20b": (205, 809, 3224),
    "gpt-oss-120b": (307, 1213, 4837),
    "mistral-7b-v0.1": (537, 537, 537),
    "llama-4-scout": (1611, 2819, 7650),
    "llama-4-maverick": (1611, 2819, 7650),
}
"""Of a sequence of 8, 32 and 128 thousand tokens (of 1,024) in bf16: its whole length in full
layers, and at most the window in the others."""


@pytest.mark.parametrize("name", list(KV_MB))
def test_kv_of_a_sequence(name: str) -> None:
    spec = catalog.model(name)
    found = [spec.kv_bytes_of(length * 1024, "bf16") / 1e6 for length in (8, 32, 128)]
    assert found == pytest.approx(KV_MB[name], abs=1)


def test_gemma_4_has_other_heads_where_it_sees_everything(tmp_path: Path) -> None:
    """A local layer projects to 16 + 2 x 8 heads of 256, a global one to 16 + 2 of 512, whose keys
    are the values; both have an output as wide as their queries. Experts 128 x 3 x 2,816 x 704, and
    a router of 128 x 2,816, stand next to an MLP of 3 x 2,816 x 2,112."""
    spec = config(tmp_path, GEMMA_4)
    assert groups(spec) == [(25, 1024, 704, "experts"), (5, None, 704, "experts")]
    local, full = (group.attention for group in spec.layers)
    assert isinstance(local, GroupedQuery)
    assert isinstance(full, GroupedQuery)
    assert local.projected == (16 + 16) * 256
    assert full.projected == (16 + 2) * 512
    assert (local.kv_bytes_per_token("bf16"), full.kv_bytes_per_token("bf16")) == (8192, 4096)
    mlp = 128 * 3 * 2816 * 704 + 128 * 2816 + 3 * 2816 * 2112
    attention = 25 * 2816 * (32 + 16) * 256 + 5 * 2816 * (18 + 16) * 512
    norms = 30 * (4 * 2816) + 2816 + 25 * 2 * 256 + 5 * 2 * 512
    assert spec.parameters == 30 * mlp + attention + norms + 262144 * 2816
    text = GEMMA_4["text_config"] | {"num_kv_shared_layers": 20}
    with pytest.raises(UsageError, match="num_kv_shared_layers: embeddings for each layer"):
        config(tmp_path, GEMMA_4, text_config=text)


def test_every_sixth_layer_of_gemma_3_or_as_the_file_says(tmp_path: Path) -> None:
    assert groups(config(tmp_path, GEMMA_3)) == [
        (40, 1024, 15360, "dense"), (8, None, 15360, "dense"),
    ]  # fmt: skip
    text = GEMMA_3["text_config"] | {"sliding_window_pattern": 4}
    assert [g.count for g in config(tmp_path, GEMMA_3, text_config=text).layers] == [36, 12]
    text |= {"layer_types": ["full_attention"] * 47 + ["sliding_attention"]}
    assert [g.count for g in config(tmp_path, GEMMA_3, text_config=text).layers] == [47, 1]
    with pytest.raises(UsageError, match="layer_types: expected sliding_attention"):
        config(tmp_path, GEMMA_3, text_config=text | {"layer_types": ["full_attention"]})


def test_gemma_has_four_norms_a_layer_and_a_word_on_its_soft_cap(tmp_path: Path) -> None:
    spec = config(tmp_path, GEMMA_2)
    assert {group.norms for group in spec.layers} == {4}
    assert {group.attention.left_out for group in spec.layers} == {
        "The soft cap on attention's scores is not timed: no kernel timings have it."
    }
    plain = config(tmp_path, GEMMA_2, attn_logit_softcapping=None)
    assert {group.attention.left_out for group in plain.layers} == {None}


def test_windows_of_qwen_begin_at_a_layer(tmp_path: Path) -> None:
    """Of 36 layers the first 28 see everything, unless the file says otherwise."""
    base = {
        "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "sliding_window": 512, "use_sliding_window": True,
        "vocab_size": 151936,
    }  # fmt: skip
    assert groups(config(tmp_path, base)) == [
        (28, None, 12288, "dense"), (8, 512, 12288, "dense"),
    ]  # fmt: skip
    early = config(tmp_path, base, max_window_layers=1)
    assert [group.count for group in early.layers] == [1, 35]
    assert early.windows == (Window(512),)
    assert config(tmp_path, base, use_sliding_window=False).windows == ()
