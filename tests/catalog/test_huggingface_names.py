"""Models whose layers are a known family's under another class name, and files without a class.

Counts are those that the publishers state, or those of the same layers under the known name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.specs.model import ModelSpec
from tests.huggingface import config, refused

QWEN3_8B = {
    **{"hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128, "vocab_size": 151936},
    **{"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8},
}
QWEN3_4B = {**QWEN3_8B, "hidden_size": 2560, "intermediate_size": 9728}
QWEN3_30B = {
    **{"hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768},
    **{"num_experts": 128, "num_experts_per_tok": 8, "head_dim": 128, "vocab_size": 151936},
    **{"num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4},
}
QWEN2_5_7B = {
    **{"hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064},
    **{"num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4},
}
SMALL_24B = {
    **{"hidden_size": 5120, "intermediate_size": 32768, "head_dim": 128, "vocab_size": 131072},
    **{"num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8},
}
DEVSTRAL_123B = {
    **{"hidden_size": 12288, "intermediate_size": 28672, "head_dim": 128, "vocab_size": 131072},
    **{"num_attention_heads": 96, "num_hidden_layers": 88, "num_key_value_heads": 8},
}
SMOLLM3_3B = {
    **{"hidden_size": 2048, "intermediate_size": 11008, "vocab_size": 128256},
    **{"num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4},
}
MIMO_7B = {
    **{"hidden_size": 4096, "intermediate_size": 11008, "head_dim": 128, "vocab_size": 151680},
    **{"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8},
    **{"attention_bias": True, "num_nextn_predict_layers": 1},
}


def pictures(name: str, kind: str, text: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The file of a model that also reads pictures."""
    outer = {"architectures": [f"{name}ForConditionalGeneration"], "vision_config": {"depth": 27}}
    return {**outer, **more, "text_config": {"model_type": kind, **text}}


@pytest.mark.parametrize(
    ("document", "billions"),
    [
        (pictures("Qwen3VL", "qwen3_vl_text", QWEN3_8B, tie_word_embeddings=False), 8.19),
        (pictures("Qwen3VL", "qwen3_vl_text", QWEN3_4B, tie_word_embeddings=True), 4.02),
        (pictures("Qwen3VLMoe", "qwen3_vl_moe_text", QWEN3_30B), 30.53),
        (pictures("Qwen3OmniMoe", "qwen3_omni_moe_text", QWEN3_30B), 30.53),
        (pictures("Qwen2_5_VL", "qwen2_5_vl_text", QWEN2_5_7B), 7.62),
        (
            {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
            | QWEN2_5_7B,
            7.62,
        ),
        (pictures("Mistral3", "mistral", SMALL_24B), 23.57),
        (pictures("Mistral3", "ministral3", SMALL_24B), 23.57),
        ({"architectures": ["Ministral3ForCausalLM"], **DEVSTRAL_123B}, 125.03),
        ({"architectures": ["SmolLM3ForCausalLM"], **SMOLLM3_3B}, 3.075098624),
        ({"architectures": ["MiMoForCausalLM"], **MIMO_7B}, 7.62),
        ({"model_type": "llama", **QWEN3_8B}, 8.19),
        ({"model_type": "qwen3", "architectures": None, **QWEN3_8B}, 8.19),
    ],
)
def test_the_text_part_is_read_as_what_it_is(
    tmp_path: Path, document: dict[str, Any], billions: float
) -> None:
    assert config(tmp_path, document).parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_layers_for_further_tokens_are_known_and_not_counted(tmp_path: Path) -> None:
    mimo = config(tmp_path, {"architectures": ["MiMoForCausalLM"], **MIMO_7B})
    assert mimo.mtp_layers == 1
    assert mimo.num_layers == 36


def test_mistral_small_keeps_what_a_model_of_its_layers_does(tmp_path: Path) -> None:
    found = config(tmp_path, pictures("Mistral3", "ministral3", SMALL_24B, sliding_window=None))
    assert found.kv_bytes_per_token("bf16") == 2 * 40 * 8 * 128 * 2
    assert found.windows == ()


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [(True, None, True), (False, None, False), (True, False, False), (None, True, True)],
)
def test_embeddings_are_tied_as_the_text_part_says_or_else_the_file(
    tmp_path: Path, outer: bool | None, inner: bool | None, tied: bool
) -> None:
    key = "tie_word_embeddings"
    text = QWEN3_8B if inner is None else {**QWEN3_8B, key: inner}
    more = {} if outer is None else {key: outer}
    found = config(tmp_path, pictures("Qwen3VL", "qwen3_vl_text", text, **more))
    assert found.tie_word_embeddings == tied
    assert found.parameters == pytest.approx((8.19e9 - 151936 * 4096 * tied), rel=0.001)


NEMOTRON = {
    **{"architectures": ["NemotronHForCausalLM"], "hidden_size": 2688, "num_hidden_layers": 7},
    **{"mamba_num_heads": 64, "num_attention_heads": 32, "num_key_value_heads": 2},
    **{"intermediate_size": 1856, "moe_intermediate_size": 1856, "n_routed_experts": 128},
    **{"num_experts_per_tok": 6, "vocab_size": 131072},
}
WORDS = ["mamba", "moe", "mamba", "attention", "moe", "mamba", "moe"]


def test_layers_in_words_are_those_of_the_letters(tmp_path: Path) -> None:
    def layers(model: ModelSpec) -> object:
        return [(group, group.places) for group in model.layers]

    letters = config(tmp_path, NEMOTRON, hybrid_override_pattern="MEM*EME")
    words = config(tmp_path, NEMOTRON, layers_block_type=WORDS)
    assert layers(words) == layers(letters)
    bare = config(tmp_path, NEMOTRON, layers_block_type=WORDS, num_hidden_layers=...)
    assert layers(bare) == layers(letters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers_block_type": ["mamba", "magic"]}, "layers_block_type: expected mamba, attention"),
        ({"layers_block_type": WORDS[:3]}, "layers_block_type: has 3 layers, not the 7"),
        ({}, "hybrid_override_pattern: is missing"),
    ],
)
def test_layers_in_wrong_words_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, NEMOTRON, changes)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"},
            "if its layers are those of its model_type, LlamaForCausalLM in `architectures`",
        ),
        ({"architectures": ["FooForCausalLM"], "model_type": "foo"}, "is not supported; supported"),
        (pictures("Foo", "foo_text", QWEN3_8B), "is not supported; supported"),
        ({"model_type": "foo", **QWEN3_8B}, "architectures: is missing, and `model_type` decides"),
    ],
)
def test_an_unknown_class_is_refused_with_what_would_be_read(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, document, {})


def test_a_context_that_no_file_states_is_the_default_of_the_class(tmp_path: Path) -> None:
    given = {"architectures": ["LlamaForCausalLM"], **QWEN3_8B}
    silent = config(tmp_path, given)
    assert (silent.max_position_embeddings, silent.assumed_context) == (2048, True)
    assert silent.made_for.startswith("the 2,048 tokens that transformers takes by default for ")
    assert silent.made_for.endswith(" gives no max_position_embeddings (add the key)")
    stated = config(tmp_path, given, max_position_embeddings=2048)
    assert (stated.max_position_embeddings, stated.assumed_context) == (2048, False)
    assert "default" not in stated.made_for
