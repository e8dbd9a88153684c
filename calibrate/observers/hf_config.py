"""Writes a model of the catalogue as the configuration that Hugging Face engines read.

The reverse of ``sim.catalog.huggingface``: the shape of a model to the ``config.json`` of an
architecture that has exactly these matrices, norms and biases. No weights and no tokeniser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibrate.dense import dense_layer
from sim.errors import UsageError
from sim.specs.model import ModelSpec


def config(spec: ModelSpec) -> dict[str, Any]:
    """The configuration of ``spec``. A sliding window is left out, as everywhere here.

    UsageError for a shape that none of the Llama and Qwen architectures has.
    """
    architecture, layer = _architecture(spec), dense_layer(spec)
    return {
        "architectures": [f"{architecture}ForCausalLM"],
        "model_type": architecture.lower(),
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": layer.attention.num_heads,
        "num_key_value_heads": layer.attention.num_kv_heads,
        "head_dim": layer.attention.head_dim,
        "intermediate_size": layer.mlp.intermediate_size,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_position_embeddings,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "attention_bias": layer.attention.attention_bias,
        "mlp_bias": layer.mlp.mlp_bias,
        "hidden_act": "silu",
        "use_sliding_window": False,
        # no token ends an answer or starts a prompt
        "bos_token_id": None,
        "eos_token_id": None,
    }


def write(spec: ModelSpec, folder: Path) -> Path:
    """``folder`` with the ``config.json`` of ``spec`` in it."""
    text = json.dumps(config(spec), indent=1)
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder


def _architecture(spec: ModelSpec) -> str:
    """The family whose layers are those of ``spec``."""
    attention, mlp, parallel = dense_layer(spec)
    plain = mlp.mlp_matrices == 3 and not (parallel or spec.norm_bias or spec.head_bias)
    everywhere = attention.attention_bias == attention.output_bias
    if plain and attention.qk_norm and everywhere and not mlp.mlp_bias:
        return "Qwen3"
    if plain and not attention.qk_norm and everywhere:
        return "Llama"
    if plain and not attention.qk_norm and attention.attention_bias and not mlp.mlp_bias:
        return "Qwen2"
    raise UsageError(
        f"model: {spec.name} has layers of neither Llama, Qwen2 nor Qwen3, so no configuration can "
        "be written for another engine; choose a model of one of these families"
    )
