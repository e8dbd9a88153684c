"""Models with latent attention, read from the configuration files that their publishers ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.latent import Latent
from sim.specs.sparse import SparseLatent
from tests.huggingface import config, refused

V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "tie_word_embeddings": False, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
    "vocab_size": 129280,
}  # fmt: skip
INDEXER = {"index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048}
V32 = V3 | INDEXER | {"architectures": ["DeepseekV32ForCausalLM"]}
K2 = V3 | {
    "first_k_dense_replace": 1, "max_position_embeddings": 131072, "n_group": 1,
    "n_routed_experts": 384, "num_attention_heads": 64, "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0, "topk_group": 1, "vocab_size": 163840,
}  # fmt: skip
K25 = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": K2 | {"max_position_embeddings": 262144},
    "vision_config": {},
}
GLM = V32 | {
    "architectures": ["GlmMoeDsaForCausalLM"], "head_dim": 64, "hidden_size": 6144,
    "index_n_heads": 32, "intermediate_size": 12288, "max_position_embeddings": 202752,
    "n_group": 1, "num_attention_heads": 64, "num_hidden_layers": 78, "num_key_value_heads": 64,
    "q_lora_rank": 2048, "qk_nope_head_dim": 192, "topk_group": 1, "v_head_dim": 256,
    "vocab_size": 154880,
}  # fmt: skip
V2 = V3 | {
    "architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 5120,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "num_hidden_layers": 60,
    "num_nextn_predict_layers": 0, "topk_method": "group_limited_greedy", "vocab_size": 102400,
}  # fmt: skip
LITE = V2 | {
    "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "num_attention_heads": 16, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "q_lora_rank": None, "topk_method": "greedy",
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (V3, "deepseek-v3"),
        (V3, "deepseek-r1"),
        (V3, "deepseek-v3.1"),
        (V32, "deepseek-v3.2"),
        (K2, "kimi-k2"),
        (K25, "kimi-k2.5"),
        (GLM, "glm-5"),
        (V2, "deepseek-v2"),
        (V2, "deepseek-v2.5"),
        (LITE, "deepseek-v2-lite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_catalogue_and_the_file_are_one_model(
    tmp_path: Path, base: dict[str, Any], name: str
) -> None:
    found, expected = config(tmp_path, base), catalog.model(name)
    assert found.layers == expected.layers
    assert found.parameters == expected.parameters
    assert found.max_position_embeddings == expected.max_position_embeddings


@pytest.mark.parametrize(
    ("name", "total", "active", "in_the_active_count"),
    [
        ("deepseek-v3", 671.0, 37.0, 0.5),
        ("deepseek-v3.2", 671.0, 37.0, 0.5),
        ("kimi-k2", 1026.0, 32.0, 0.5),
        ("glm-5", 744.0, 40.0, 0.0),
        ("deepseek-v2", 236.0, 21.0, 0.5),
        ("deepseek-v2-lite", 15.7, 2.4, 0.5),
    ],
)
def test_published_counts(
    name: str, total: float, active: float, in_the_active_count: float
) -> None:
    """Publishers leave the embedding out of what is active, or it and the LM head; V3.2 is stated
    without its indexer, which has 0.85 billion."""
    spec = catalog.model(name)
    indexer = 61 * 13_959_424 if name == "deepseek-v3.2" else 0
    assert spec.parameters - indexer == pytest.approx(total * 1e9, rel=0.01)
    vocabulary = spec.embedding_parameters() + spec.head_parameters()
    counted = spec.active_parameters - indexer - (1 - in_the_active_count) * vocabulary
    assert counted == pytest.approx(active * 1e9, rel=0.025)


def test_deepseek_v3_exactly(tmp_path: Path) -> None:
    """671.026 and 37.552 billion; the head that predicts further tokens is not among them."""
    spec = config(tmp_path, V3)
    assert spec.parameters == 671_026_419_200
    assert spec.active_parameters == 37_552_297_472
    assert [group.count for group in spec.layers] == [3, 58]
    assert spec.layers[0].mlp == DenseMlp(18432)
    assert spec.layers[1].mlp == MixtureOfExperts(256, 8, 2048, 2048, router_bias=True)
    assert spec.layers[0].attention == Latent(128, 512, 128, 64, 128, q_lora_rank=1536)


def test_some_layers_share_an_indexer(tmp_path: Path) -> None:
    """GLM-5.2 has one in the first three layers and in every fourth one after them."""
    types = ["full"] * 3 + ["shared", "shared", "shared", "full"] * 18 + ["shared"] * 3
    spec = config(tmp_path, GLM, indexer_types=types)
    assert [group.count for group in spec.layers] == [3, 57, 18]
    shared = [group.attention for group in spec.layers if isinstance(group.attention, SparseLatent)]
    assert [attention.index_shared for attention in shared] == [False, True, False]
    whole = config(tmp_path, GLM)
    assert whole.parameters - spec.parameters == 57 * (2048 * 4096 + 6144 * (128 + 32) + 256)


def test_layers_named_one_by_one(tmp_path: Path) -> None:
    types = ["dense"] * 3 + ["sparse"] * 58
    assert config(tmp_path, V3, mlp_layer_types=types).layers == catalog.model("deepseek-v3").layers
    assert [group.count for group in config(tmp_path, V3, moe_layer_freq=2).layers] == [32, 29]
    assert config(tmp_path, V3, n_routed_experts=None).layers[0].count == 61


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (V3, {"kv_lora_rank": 0}, "kv_lora_rank: expected a whole number of at least 1"),
        (V3, {"v_head_dim": "128"}, "v_head_dim: expected a whole number"),
        (V3, {"mlp_layer_types": ["dense"]}, "mlp_layer_types: expected dense or sparse for each"),
        (V32, {"q_lora_rank": None}, "q_lora_rank: is null; the indexer needs it"),
        (GLM, {"indexer_types": ["shared"] * 78}, "the first layer has to have an indexer"),
        (GLM, {"indexer_types": ["none"] * 78}, "expected full or shared for each of the 78"),
    ],
)
def test_a_bad_config_names_file_and_key(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, base, changes)


def test_an_entry_has_fewer_dense_layers_than_layers(tmp_path: Path) -> None:
    text = Path(catalog.__file__).parent.joinpath("models", "deepseek-v3.yaml").read_text("utf-8")
    path = tmp_path / "own.yaml"
    path.write_text(text.replace("dense_layers: 3", "dense_layers: 61"))
    with pytest.raises(UsageError, match="dense_layers: expected fewer than the 61 layers"):
        catalog.model(path)
    path.write_text(text.replace("kv_lora_rank: 512", "kv_lora_rank: 513"))
    assert catalog.model(path).kv_bytes_per_token("bf16") == 61 * 577 * 2
