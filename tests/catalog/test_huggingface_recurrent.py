"""Models with recurrent layers, read from the configuration files that their publishers ship."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2
from tests.huggingface import config

TYPES = ["linear_attention"] * 3 + ["full_attention"]
NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"], "decoder_sparse_step": 1,
    "full_attention_interval": 4, "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
    "mlp_only_layers": [], "moe_intermediate_size": 512, "num_attention_heads": 16,
    "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48,
    "num_key_value_heads": 2, "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False, "vocab_size": 151936,
}  # fmt: skip
QWEN_35: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "tie_word_embeddings": False,
    "text_config": NEXT | {
        "attn_output_gate": True, "layer_types": TYPES * 10, "mamba_ssm_dtype": "float32",
        "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40,
        "vocab_size": 248320,
    },
    "vision_config": {},
}  # fmt: skip
DENSE: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256,
        "hidden_size": 5120, "intermediate_size": 17408, "layer_types": TYPES * 16,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "num_attention_heads": 24, "num_hidden_layers": 64,
        "num_key_value_heads": 4, "vocab_size": 248320,
    },
}  # fmt: skip
NANO: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"], "attention_bias": False, "conv_kernel": 4,
    "head_dim": 128, "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856, "mamba_head_dim": 64, "mamba_num_heads": 64,
    "mamba_ssm_cache_dtype": "float32", "max_position_embeddings": 262144,
    "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_groups": 8,
    "n_routed_experts": 128, "n_shared_experts": 1, "num_attention_heads": 32,
    "num_experts_per_tok": 6, "num_hidden_layers": 52, "num_key_value_heads": 2,
    "ssm_state_size": 128, "tie_word_embeddings": False, "use_conv_bias": True,
    "vocab_size": 131072,
}  # fmt: skip


TEXT_01: dict[str, Any] = {
    "architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "head_dim": 128, "hidden_size": 6144, "intermediate_size": 9216,
    "max_position_embeddings": 10240000, "num_attention_heads": 64, "num_experts_per_tok": 2,
    "num_hidden_layers": 80, "num_key_value_heads": 8, "num_local_experts": 32,
    "shared_intermediate_size": 0, "vocab_size": 200064,
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (NEXT, "qwen3-next-80b-a3b"),
        (QWEN_35, "qwen3.5-35b-a3b"),
        (DENSE, "qwen3.5-27b"),
        (NANO, "nemotron-3-nano-30b-a3b"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_catalogue_and_the_file_are_one_model(
    tmp_path: Path, base: dict[str, Any], name: str
) -> None:
    assert config(tmp_path, base).layers == catalog.model(name).layers
    assert config(tmp_path, base).parameters == catalog.model(name).parameters


def test_one_layer_of_four_is_attention_with_a_gate(tmp_path: Path) -> None:
    linear, full = config(tmp_path, NEXT).layers
    assert (linear.count, full.count) == (36, 12)
    assert linear.attention == GatedDelta(16, 32, 128, 128, 4, "bf16")
    assert isinstance(full.attention, GroupedQuery)
    assert full.attention.output_gate
    assert full.attention.qk_norm
    assert full.mlp == MixtureOfExperts(512, 10, 512, 512, shared_gate=True)
    assert config(tmp_path, NEXT, full_attention_interval=6).layers[1].count == 8


@pytest.mark.parametrize(
    ("named", "state"),
    [("float32", "fp32"), ("bfloat16", "bf16"), ("auto", "bf16"), (None, "bf16")],
)
def test_the_format_of_a_state(tmp_path: Path, named: str | None, state: str) -> None:
    attention = config(tmp_path, NANO, mamba_ssm_cache_dtype=named).layers[0].attention
    assert attention == Mamba2(64, 64, 128, state_precision=state)


def test_a_pattern_of_mamba_attention_and_experts(tmp_path: Path) -> None:
    """23 layers of Mamba-2, of which 17 come before experts, and six of attention."""
    found = config(tmp_path, NANO).layers
    experts = MixtureOfExperts(128, 6, 1856, 3712, mlp_matrices=2, router_bias=True)
    assert [(group.count, group.mlp, group.norms) for group in found] == [
        (17, experts, 2), (6, NoMlp(), 1), (6, experts, 2),
    ]  # fmt: skip
    assert [type(group.attention) for group in found] == [Mamba2, Mamba2, GroupedQuery]


def test_a_pattern_with_dense_layers(tmp_path: Path) -> None:
    found = config(tmp_path, NANO, hybrid_override_pattern="M-M*-", num_hidden_layers=5).layers
    assert [(group.count, group.mlp) for group in found] == [
        (1, DenseMlp(1856, mlp_matrices=2)), (1, NoMlp()), (1, DenseMlp(1856, mlp_matrices=2)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (NANO, {"num_hidden_layers": 51}, "has 52 layers, not the 51 of num_hidden_layers"),
        (NANO, {"hybrid_override_pattern": "MEE*", "num_hidden_layers": 4}, "'E' has to follow M"),
        (NANO, {"hybrid_override_pattern": "MEX*", "num_hidden_layers": 4}, "found 'X'"),
        (NANO, {"hybrid_override_pattern": "MEME", "num_hidden_layers": 4}, "at least one layer"),
        (NANO, {"moe_latent_size": 0}, "moe_latent_size: expected a whole number of at least 1"),
        (NANO, {"mamba_ssm_cache_dtype": "int8"}, "expected float32 or bfloat16 or float16"),
        (NEXT, {"layer_types": ["sliding"] * 48}, "expected linear_attention or full_attention"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        config(tmp_path, base, **changes)


def test_a_catalogue_file_of_ones_own(tmp_path: Path) -> None:
    """Fewer layers of attention than there are layers; and a pattern of as many."""
    text = (Path(catalog.__file__).parent / "models" / "qwen3-next-80b-a3b.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("full_layers: 12", "full_layers: 48"))
    with pytest.raises(UsageError, match="full_layers: expected fewer than the 48 layers"):
        catalog.model(path)
    text = (Path(catalog.__file__).parent / "models" / "nemotron-3-nano-30b-a3b.yaml").read_text()
    path.write_text(text.replace("num_layers: 29", "num_layers: 30"))
    with pytest.raises(UsageError, match="num_layers: the pattern makes 29 layers, found 30"):
        catalog.model(path)


def test_lightning_attention(tmp_path: Path) -> None:
    """Published: 456 billion parameters, 45.9 of them active; one layer of eight is softmax."""
    spec = config(tmp_path, TEXT_01)
    assert [group.count for group in spec.layers] == [70, 10]
    assert spec.layers[0].attention == Lightning(64, 128)
    assert spec.parameters == pytest.approx(456e9, rel=0.01)
    active = spec.active_parameters - 2 * spec.embedding_parameters()
    assert active == pytest.approx(45.9e9, rel=0.03)
    with pytest.raises(UsageError, match="attn_type_list: expected 0 or 1 for each of the 80"):
        config(tmp_path, TEXT_01, attn_type_list=[2] * 80)


def test_no_gate_without_shared_experts(tmp_path: Path) -> None:
    mlp = config(tmp_path, NEXT, shared_expert_intermediate_size=0).layers[0].mlp
    assert mlp == MixtureOfExperts(512, 10, 512)
    with pytest.raises(ValueError, match="shared_gate: there are no shared experts"):
        replace(mlp, shared_gate=True)
