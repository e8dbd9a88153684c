"""Provides ``config.json`` files of small models of each kind that the reference engine runs, with
the keys that the simulator reads and those that Hugging Face transformers needs besides."""

from __future__ import annotations

from typing import Any

_ALL: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_HEADS = {"num_key_value_heads": 2, "head_dim": 12}


def _base(theta: float) -> dict[str, Any]:
    return {"rope_theta": theta, "rope_parameters": {"rope_type": "default", "rope_theta": theta}}


MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    **_ALL,
    **_HEADS,
    **_base(10_000.0),
    "intermediate_size": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
QWEN_3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    **_ALL,
    **_HEADS,
    **_base(1_000_000.0),
    "intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_LOCAL, _FULL = "sliding_attention", "full_attention"
GEMMA_3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    **_ALL,
    **_HEADS,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "layer_types": [_LOCAL, _LOCAL, _FULL, _LOCAL],
    "sliding_window": 10,
    "query_pre_attn_scalar": 12,
    "tie_word_embeddings": True,
    "rope_parameters": {
        _LOCAL: {"rope_type": "default", "rope_theta": 10_000.0},
        _FULL: {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    **_ALL,
    **_HEADS,
    **_base(150_000.0),
    "intermediate_size": 24,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "layer_types": [_LOCAL, _FULL, _LOCAL, _FULL],
    "sliding_window": 7,
    "attention_bias": True,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    **_ALL,
    **_base(10_000.0),
    "num_key_value_heads": 4,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "attention_bias": False,
}
LLAMA_4 = {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    **_ALL,
    **_HEADS,
    **_base(500_000.0),
    "num_hidden_layers": 4,
    "intermediate_size": 24,
    "intermediate_size_mlp": 40,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 1,
    "attention_chunk_size": 16,
}
CONFIGS = {
    "mixtral": MIXTRAL,
    "qwen3-moe": QWEN_3_MOE,
    "gemma-3": GEMMA_3,
    "gpt-oss": GPT_OSS,
    "deepseek-v3": DEEPSEEK_V3,
    "llama-4": LLAMA_4,
}
