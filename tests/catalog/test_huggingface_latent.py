"""Models with latent attention, read from the configuration files that their publishers ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.errors import UsageError
from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp
from sim.specs.deployment import Deployment
from sim.specs.drafter import drafter_of
from sim.specs.experts import MixtureOfExperts
from sim.specs.latent import Latent
from sim.specs.model import ModelSpec
from sim.specs.sparse import SparseLatent
from sim.specs.window import Window
from tests.huggingface import config, refused


def deployed(spec: ModelSpec) -> Deployment:
    return Deployment(spec, catalog.gpu("h200-sxm"), catalog.engine("ideal"))


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
V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "expert_dtype": "fp4", "hc_mult": 4, "head_dim": 512, "hidden_size": 4096,
    "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512,
    "max_position_embeddings": 1048576, "model_type": "deepseek_v4",
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_attention_heads": 64, "num_experts_per_tok": 6, "num_hash_layers": 3,
    "num_hidden_layers": 43, "num_key_value_heads": 1, "num_nextn_predict_layers": 1,
    "o_groups": 8, "o_lora_rank": 1024, "q_lora_rank": 1024, "qk_rope_head_dim": 64,
    "rope_scaling": {"factor": 16, "original_max_position_embeddings": 65536, "type": "yarn"},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "sliding_window": 128, "tie_word_embeddings": False, "vocab_size": 129280,
}  # fmt: skip
V4_PRO = V4 | {
    "compress_ratios": [128, *[128, 4] * 30, 0], "hidden_size": 7168, "index_topk": 1024,
    "moe_intermediate_size": 3072, "n_routed_experts": 384, "num_attention_heads": 128,
    "num_hidden_layers": 61, "o_groups": 16, "q_lora_rank": 1536,
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (V4, "deepseek-v4-flash"),
        (V4_PRO, "deepseek-v4-pro"),
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


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-v4-flash", 284.0, 13.0), ("deepseek-v4-pro", 1600.0, 49.0)],
)
def test_published_counts_of_deepseek_v4(name: str, total: float, active: float) -> None:
    """The 1.6 trillion of Pro include the layer for multi-token prediction: one like the others
    but for its rows, and two products that join its inputs. Publishers leave the embedding out of
    what is active, and round to whole billions."""
    spec = catalog.model(name)
    drafter = drafter_of(deployed(spec), "mtp")
    assert drafter is not None
    joins = sum(wide * out for wide, out in drafter.joins)
    layer = drafter.deployment.model.parameters - 2 * spec.embedding_parameters() + joins
    counted = spec.parameters + (layer if name == "deepseek-v4-pro" else 0)
    assert counted == pytest.approx(total * 1e9, rel=0.01)
    assert spec.active_parameters - spec.embedding_parameters() == pytest.approx(
        active * 1e9, abs=0.5e9
    )


def test_the_last_layer_of_deepseek_v4_predicts_through_the_window_alone() -> None:
    """``compress_ratios`` end in 0 for it."""
    drafter = drafter_of(deployed(catalog.model("deepseek-v4-pro")), "mtp")
    assert drafter is not None
    (group,) = drafter.deployment.model.layers
    assert isinstance(group.attention, CompressedLatent)
    assert group.attention.compress_ratio == 0
    assert group.attention.window == Window(128)


@pytest.mark.parametrize(
    ("changes", "stored"),
    [
        ({}, "mxfp4 (experts) and fp8-block (the rest)"),
        ({"expert_dtype": ...}, "mxfp4 (experts) and fp8-block (the rest)"),
        ({"expert_dtype": "fp8"}, "fp8-block"),
        (
            {
                "quantization_config": V4["quantization_config"]
                | {"moe_quant_algo": "NVFP4", "ignore": ["*.attn.*", "*.ffn.shared_experts.*"]}
            },
            "nvfp4 (experts) and fp8-block (the rest)",
        ),
    ],
)
def test_formats_of_deepseek_v4(tmp_path: Path, changes: dict[str, Any], stored: str) -> None:
    """Experts have a format of their own, and engines take a cache of 8 bits unasked."""
    found = config(tmp_path, V4, **changes).published
    assert found is not None
    assert (str(found), found.kv_cache, found.problem) == (stored, "fp8", None)


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
        (V4, {"compress_ratios": [4] * 42}, "compress_ratios: expected a list of at least 43"),
        (V4, {"compress_ratios": [8] * 43}, "compress_ratios: expected 0, 1, 4, 128 for each"),
        (V4, {"o_groups": 7}, "o_groups: 7 do not divide 64 heads"),
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
