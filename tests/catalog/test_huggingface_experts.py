"""Models with experts, read from the configuration files that their publishers ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.model import ModelSpec
from sim.specs.window import Window
from tests.huggingface import config, refused

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "decoder_sparse_step": 1,
    "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "sliding_window": None, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "head_dim": 64,
    "hidden_size": 2880, "intermediate_size": 2880, "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36,
    "num_key_value_heads": 8, "num_local_experts": 128, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "vocab_size": 201088,
}  # fmt: skip
SCOUT = {
    "attention_bias": False, "attention_chunk_size": 8192, "head_dim": 128, "hidden_size": 5120,
    "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "max_position_embeddings": 10485760, "num_attention_heads": 40, "num_experts_per_tok": 1,
    "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
    "vocab_size": 202048,
}  # fmt: skip
MINIMAX = {
    "architectures": ["MiniMaxM2ForCausalLM"], "attn_type_list": [1] * 62, "head_dim": 128,
    "hidden_size": 3072, "intermediate_size": 1536, "max_position_embeddings": 204800,
    "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62,
    "num_key_value_heads": 8, "num_local_experts": 256, "shared_intermediate_size": 0,
    "tie_word_embeddings": False, "vocab_size": 200064,
}  # fmt: skip
GLM = {
    "architectures": ["Glm4MoeForCausalLM"], "attention_bias": True, "first_k_dense_replace": 3,
    "head_dim": 128, "hidden_size": 1024, "intermediate_size": 4096, "moe_intermediate_size": 512,
    "n_routed_experts": 16, "n_shared_experts": 2, "num_attention_heads": 12,
    "num_experts_per_tok": 4, "num_hidden_layers": 10, "num_key_value_heads": 4,
    "use_qk_norm": True, "vocab_size": 32000,
}  # fmt: skip


def llama4(**changes: object) -> dict[str, Any]:
    """A file in which the text model is one part of several."""
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "text_config": SCOUT | changes,
        "vision_config": {},
    }


def groups(spec: ModelSpec) -> list[tuple[int, int | None, int, str]]:
    """(layers, window, width of the MLP, its kind) of each group."""
    found = []
    for group in spec.layers:
        attention, mlp = group.attention, group.mlp
        assert isinstance(attention, GroupedQuery)
        if isinstance(mlp, MixtureOfExperts):
            kind, width = "experts", mlp.moe_intermediate_size
        else:
            assert isinstance(mlp, DenseMlp)
            kind, width = "dense", mlp.intermediate_size
        window = attention.window
        found.append((group.count, None if window is None else window.size, width, kind))
    return found


@pytest.mark.parametrize(
    ("base", "name"), [(MIXTRAL, "mixtral-8x7b"), (QWEN, "qwen3-30b-a3b")], ids=["mixtral", "qwen"]
)
def test_the_catalogue_and_the_file_are_one_model(
    tmp_path: Path, base: dict[str, Any], name: str
) -> None:
    assert config(tmp_path, base).layers == catalog.model(name).layers
    assert config(tmp_path, base).parameters == catalog.model(name).parameters


@pytest.mark.parametrize(
    ("base", "total", "active"),
    [
        (GPT_OSS, 116.829e9, 5.712e9),
        (GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32, "layer_types": None},
         20.915e9, 4.187e9),
        (llama4(), 107.770e9, 17.173e9),
        (llama4(interleave_moe_layer_step=2, num_local_experts=128), 400.712e9, 17.185e9),
    ],
    ids=["gpt-oss-120b", "gpt-oss-20b", "scout", "maverick"],
)  # fmt: skip
def test_counts(tmp_path: Path, base: dict[str, Any], total: float, active: float) -> None:
    """Embedding included, which the published counts of active parameters may leave out."""
    spec = config(tmp_path, base)
    assert spec.parameters == pytest.approx(total, rel=0.01)
    assert spec.active_parameters == pytest.approx(active, rel=0.01)


def test_minimax(tmp_path: Path) -> None:
    """A layer: 256 x 3 x 3,072 x 1,536 of experts, 3,072 x 128 x (2 x 48 + 2 x 8) of attention,
    256 x 3,073 of the router, 256 + 2 x 3,072 of norms: 3,668,711,936. 62 of them, the final norm,
    embedding and head 2 x 200,064 x 3,072. A token leaves out 248 of the experts."""
    spec = config(tmp_path, MINIMAX)
    assert spec.parameters == 62 * 3_668_711_936 + 3072 + 1_229_193_216
    assert spec.layers == catalog.model("minimax-m2").layers
    idle = 62 * 248 * 3 * 3072 * 1536
    assert spec.active_parameters == spec.parameters - idle


def test_every_other_layer_of_gpt_oss_has_a_window(tmp_path: Path) -> None:
    spec = config(tmp_path, GPT_OSS)
    assert groups(spec) == [(18, 128, 2880, "experts"), (18, None, 2880, "experts")]
    (mlp,) = {group.mlp for group in spec.layers}
    assert mlp == MixtureOfExperts(128, 4, 2880, mlp_bias=True, router_bias=True)
    attention = spec.layers[0].attention
    assert isinstance(attention, GroupedQuery)
    assert (attention.attention_bias, attention.output_bias) == (True, True)
    _, small = attention.weights(2880)
    assert small.parameters == 64 + 64 * (64 + 2 * 8) + 2880  # a sink for each head, and biases


def test_first_layers_of_glm_are_dense(tmp_path: Path) -> None:
    spec = config(tmp_path, GLM)
    assert groups(spec) == [(3, None, 4096, "dense"), (7, None, 512, "experts")]
    assert spec.layers[1].mlp == MixtureOfExperts(16, 4, 512, 1024, router_bias=True)
    attention = spec.layers[1].attention
    assert isinstance(attention, GroupedQuery)
    assert (attention.attention_bias, attention.output_bias) == (True, False)
    assert attention.qk_norm


def test_sparse_layers_of_qwen(tmp_path: Path) -> None:
    """Of 48 layers the odd ones, counted from 0, and of these not 1 and 3."""
    spec = config(tmp_path, QWEN, decoder_sparse_step=2, mlp_only_layers=[1, 3])
    assert groups(spec) == [(26, None, 6144, "dense"), (22, None, 768, "experts")]


@pytest.mark.parametrize(("full", "windows"), [(47, (Window(4096),)), (48, ())])
def test_qwen_has_no_window_where_all_its_layers_see_everything(
    tmp_path: Path, full: int, windows: tuple[Window, ...]
) -> None:
    switched = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": full}
    assert config(tmp_path, QWEN, **switched).windows == windows


def test_layers_of_llama_4(tmp_path: Path) -> None:
    """Every fourth layer attends to everything; in Maverick every other layer is dense."""
    assert groups(config(tmp_path, llama4())) == [
        (36, 8192, 8192, "experts"), (12, None, 8192, "experts")
    ]  # fmt: skip
    assert groups(config(tmp_path, llama4(interleave_moe_layer_step=2))) == [
        (24, 8192, 16384, "dense"), (12, 8192, 8192, "experts"), (12, None, 8192, "experts")
    ]  # fmt: skip
    first, last = (group.attention.window for group in config(tmp_path, llama4()).layers)
    assert (first, last) == (Window(8192, chunked=True), None)
    mlp = config(tmp_path, llama4()).layers[0].mlp
    assert mlp == MixtureOfExperts(16, 1, 8192, 8192)


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (MIXTRAL, {"num_experts_per_tok": 9}, "num_experts_per_tok: 9 is more than the 8 experts"),
        (MIXTRAL, {"num_local_experts": "8"}, "num_local_experts: expected a whole number"),
        (QWEN, {"mlp_only_layers": 3}, "mlp_only_layers: expected a list"),
        (QWEN, {"num_hidden_layers": 10**9}, "num_hidden_layers: expected at most 10,000"),
        (GPT_OSS, {"layer_types": ["full_attention"]}, "layer_types: expected sliding_attention"),
        (GPT_OSS, {"layer_types": ["linear"] * 36}, "full_attention for each of the 36 layers"),
        (MINIMAX, {"attn_type_list": [0] * 62}, "attn_type_list: a layer is of another type"),
        (llama4(no_rope_layers=[1]), {}, "text_config.no_rope_layers: expected 0 or 1"),
        (GLM, {"architectures": ["UnheardForCausalLM"]}, "which is not supported"),
    ],
)
def test_a_bad_config_names_file_and_key(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, base, changes)
