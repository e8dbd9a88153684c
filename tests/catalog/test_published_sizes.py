"""Models of the catalogue against the sizes that their publishers state. Billions of parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim import catalog

SIZES = {
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen2.5-14b": 14.7,
    "qwen2.5-32b": 32.5,
    "phi-4": 14.7,
    "mistral-small-24b": 23.57,
    "mistral-nemo-12b": 12.25,
    "mistral-large-2": 122.6,
    "ministral-8b": 8.02,
    "qwen3-coder-30b-a3b": 30.5,
    "qwen3-coder-480b-a35b": 480,
    "glm-4.5": 355,
    "glm-4.6": 355,
    "glm-4.5-air": 106,
    "minimax-m2": 230,
    "qwen3-next-80b-a3b": 80,
    "qwen3.5-27b": 27,
    "qwen3.5-35b-a3b": 35,
    "qwen3.5-122b-a10b": 122,
    "qwen3.5-397b-a17b": 397,
    "nemotron-3-nano-30b-a3b": 31.6,
    "nemotron-h-56b": 56,
    "glm-4.7-flash": 30,
    "mistral-small-3.2-24b": 23.57,
    "granite-4.0-h-small": 32.207,
    "falcon-h1-34b": 33.6,
    "olmo-3-7b": 7.298,
    "olmo-3-32b": 32.23,
    "exaone-4.0-32b": 32.0,
    "seed-oss-36b": 36.15,
    "ernie-4.5-21b-a3b": 21.8,
    "ernie-4.5-300b-a47b": 300,
    "hunyuan-a13b": 80.4,
    "kimi-linear-48b-a3b": 49.1,
    "nemotron-super-49b": 49.9,
    "nemotron-3-super-120b-a12b": 120.6,
    "nemotron-3-ultra-550b-a55b": 550,
    "smollm3-3b": 3.075,
    "gemma-4-26b-a4b": 25.2,
    "gemma-4-31b": 30.7,
    "mimo-v2-flash": 309,
}
"""All parameters, by model cards or by the Hub's count of the tensors."""

ACTIVE = {
    "qwen3-coder-30b-a3b": (3.3, 0),
    "qwen3-coder-480b-a35b": (35, 0),
    "glm-4.5": (32, 2),
    "glm-4.5-air": (12, 2),
    "minimax-m2": (10, 2),
    "qwen3-next-80b-a3b": (3, 2),
    "qwen3.5-35b-a3b": (3, 0),
    "qwen3.5-122b-a10b": (10, 0),
    "qwen3.5-397b-a17b": (17, 0),
    "nemotron-3-nano-30b-a3b": (3.6, 0),
    "granite-4.0-h-small": (9, 0),
    "ernie-4.5-300b-a47b": (47, 1),
    "hunyuan-a13b": (13, 0),
    "nemotron-3-super-120b-a12b": (12.7, 0),
    "nemotron-3-ultra-550b-a55b": (55, 1),
    "kimi-linear-48b-a3b": (3, 1),
    "gemma-4-26b-a4b": (3.8, 0),
    "mimo-v2-flash": (15, 0),
}
"""Those that one token goes through, as published; and how many of embedding and LM head the
publisher leaves out."""

PHI_4: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"], "attention_bias": False, "hidden_size": 5120,
    "intermediate_size": 17920, "max_position_embeddings": 16384, "num_attention_heads": 40,
    "num_hidden_layers": 40, "num_key_value_heads": 10, "sliding_window": None,
    "tie_word_embeddings": False, "vocab_size": 100352,
}  # fmt: skip


@pytest.mark.parametrize(("name", "published"), SIZES.items())
def test_all_parameters(name: str, published: float) -> None:
    assert catalog.model(name).parameters == pytest.approx(published * 1e9, rel=0.01)


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_active_parameters(name: str, published: tuple[float, int]) -> None:
    """Within one of the last digit that the publisher gives."""
    size, left_out = published
    spec = catalog.model(name)
    found = spec.active_parameters - left_out * spec.embedding_parameters()
    digit = 1e9 if size == int(size) else 1e8
    assert found == pytest.approx(size * 1e9, abs=digit)


def test_phi_4_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PHI_4))
    assert catalog.model(tmp_path).layers == catalog.model("phi-4").layers
