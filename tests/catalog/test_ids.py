"""Ids of Hugging Face and other spellings are read as models of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import catalog
from sim.catalog.ids import named, spelt
from sim.errors import UsageError


@pytest.mark.parametrize(
    ("text", "entry", "formats"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("qwen/qwen3-8b", "qwen3-8b", None),
        ("Qwen3-8B", "qwen3-8b", None),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", ("fp8-block", None, "fp8", None)),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "qwen3-8b", ("fp8", None, "fp8", None)),
        ("RedHatAI/Qwen3-8B-FP8-block", "qwen3-8b", ("fp8-block", None, "fp8", None)),
        ("nvidia/Qwen3-8B-FP8-block", "qwen3-8b", ("fp8-block", None, "fp8", None)),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b", ("fp8", None, "fp8", "fp8")),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "llama-3.1-70b", ("fp8", None, "fp8", "fp8")),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "qwen3-235b-a22b", ("nvfp4", None, "nvfp4", "fp8")),
        ("nvidia/Llama-3.1-405B-Instruct-FP4", "llama-3.1-405b", ("nvfp4", None, "nvfp4", "fp8")),
        ("nvidia/Kimi-K2.5-NVFP4", "kimi-k2.5", ("bf16", "nvfp4", "nvfp4", "fp8")),
        (
            "nvidia/DeepSeek-V4-Pro-NVFP4",
            "deepseek-v4-pro",
            ("fp8-block", "nvfp4", "nvfp4", "fp8"),
        ),
        (
            "sgl-project/DeepSeek-V4-Flash-FP8",
            "deepseek-v4-flash",
            ("fp8-block", None, "fp8", "fp8"),
        ),
        ("Qwen/Qwen3-32B-AWQ", "qwen3-32b", ("int4-group", None, "bf16", None)),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", ("int4-group", None, "bf16", None)),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", ("int8", None, "bf16", None)),
        (
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8",
            *("llama-3.1-8b", ("int8", None, "int8", None)),
        ),
        ("RedHatAI/Qwen3-32B-quantized.w4a16", "qwen3-32b", ("int4-group", None, "bf16", None)),
        (
            "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
            *("llama-3.1-70b", ("int4-group", None, "bf16", None)),
        ),
        ("Intel/Qwen3-8B-int4-AutoRound", "qwen3-8b", ("int4-group", None, "bf16", None)),
        ("someone/Qwen3-8B-Q4_K_M-GGUF", "qwen3-8b", ("q4_k_m", None, "bf16", None)),
        ("openai/gpt-oss-120b", "gpt-oss-120b", ("bf16", "mxfp4", None, None)),
        ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", ("bf16", None, None, None)),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2.5", ("bf16", "int4-group32", None, None)),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1", None),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b", None),
        ("Qwen/Qwen3.6-27B", "qwen3.5-27b", None),
        ("Qwen/Qwen3.8-27B", "qwen3.5-27b", None),
        ("Qwen/Qwen3-Coder-Next", "qwen3-next-80b-a3b", None),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b", None),
        ("allenai/Olmo-3-7B-Think", "olmo-3-7b", None),
        ("mistralai/Mistral-Large-Instruct-2411", "mistral-large-2", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b", None),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-70b", None),
        ("zai-org/GLM-4.7", "glm-4.6", None),
        ("zai-org/GLM-5.3", "glm-5.2", None),
        ("mistralai/Devstral-Small-2507", "mistral-small-3.2-24b", None),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nemotron-super-49b", None),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron-3-super-120b-a12b", None),
        ("baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b", None),
        ("moonshotai/Kimi-K3", "kimi-k3", ("bf16", "mxfp4", None, None)),
    ],
)
def test_an_id_is_the_shape_of_an_entry_in_the_format_that_it_states(
    text: str, entry: str, formats: tuple[str | None, ...] | None
) -> None:
    model = catalog.model(text)
    assert (model.name, model.layers) == (entry, catalog.model(entry).layers)
    assert model.remarks == (f"{text} is read as {entry} of the catalogue.",)
    stored = model.published
    if formats is None:
        assert stored is None
    else:
        assert stored is not None
        found = (stored.weights, stored.experts, stored.activations, stored.kv_cache)
        assert found == formats
        assert stored.problem is None


@pytest.mark.parametrize("name", ["Instruct-2507", "Thinking-2507", "Instruct-2507-FP8"])
def test_a_variant_of_a_longer_context_has_it(name: str) -> None:
    model = catalog.model(f"Qwen/Qwen3-235B-A22B-{name}")
    assert model.max_position_embeddings == 262144
    assert catalog.model("qwen3-235b-a22b").max_position_embeddings == 40960


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("Qwen/Qwen3-32B-Foo", "qwen3-32b"),
        ("Qwen/Qwen3-32B-FP8-Foo", "qwen3-32b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Foo-8B", "deepseek-r1"),
        ("Qwen/Qwen3-33B", "qwen3-32b"),
        ("someone/qwen3-8b/config.json", ""),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest_name(text: str, nearest: str) -> None:
    assert named(text) is None
    with pytest.raises(UsageError, match="does not exist") as caught:
        catalog.model(text)
    assert f"did you mean '{nearest}" in str(caught.value) or not nearest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("someone/Llama-2-7B-GPTQ", "does not say which format gptq stands for"),
        ("unsloth/Qwen3-8B-bnb-4bit", "does not say which format 4bit, bnb stands for"),
        ("unsloth/Qwen3-32B-GGUF", "gguf stands for; the header of a .gguf file says it"),
    ],
)
def test_a_word_that_leaves_the_format_open_is_a_problem_not_a_guess(
    text: str, message: str
) -> None:
    stored = catalog.model(text).published
    assert stored is not None
    assert message in str(stored.problem)


def test_a_path_of_the_same_spelling_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        catalog.model("Qwen/Qwen3-8B")
    assert catalog.model("Qwen/Qwen3-8B", tmp_path / "Qwen").name == "qwen3-8b"


def test_the_checkpoint_of_an_id_is_itself() -> None:
    assert catalog.checkpoint("Qwen/Qwen3-32B-FP8") == "Qwen/Qwen3-32B-FP8"
    assert catalog.checkpoint("Qwen3-32B") == "Qwen/Qwen3-32B"
    assert catalog.checkpoint("gpt-oss-120b") == "openai/gpt-oss-120b"


def test_of_words_that_begin_alike_the_longer_one_is_left_out() -> None:
    assert spelt("llama-3.1-8b-99.9", {}, ("99", "99.9")) == ("llama-3.1-8b", ("99.9",))


def test_a_month_that_lengthens_qwen3_lengthens_no_other_model() -> None:
    """``2507`` is in the names of Qwen3 of July 2025, and of a Devstral of that month."""
    assert catalog.model("Qwen/Qwen3-4B-Instruct-2507").max_position_embeddings == 262144
    devstral = catalog.model("mistralai/Devstral-Small-2507")
    assert devstral.max_position_embeddings == 131072
