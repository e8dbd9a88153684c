"""Families of models by the keys of their published ``config.json``: sizes and kept bytes.

Each row has the keys that decide the shape, the number of parameters that the publisher or the
checkpoint's own files state, in billions, and the bytes of KV cache of a token and of state of a
sequence at 16 bits, worked out by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.mamba2 import Mamba2
from sim.specs.sparse_grouped import SparseGrouped
from sim.specs.window import Window
from tests.huggingface import config, refused


def shape(
    cls: str, hidden: int, layers: int, heads: int, kv: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """The keys that all files have."""
    return {
        **{"architectures": [cls], "hidden_size": hidden, "num_hidden_layers": layers},
        **{"num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocabulary},
        **more,
    }


class Row(NamedTuple):
    """A file, its published size in billions, and kept bytes."""

    document: dict[str, Any]
    billions: float
    token: float
    state: float = 0.0


def mamba_state(layers: int, heads: int, width: int, groups: int, state: int) -> float:
    """Bytes of the states of ``layers`` of Mamba-2 and of three inputs of their convolutions."""
    return layers * 2 * (heads * width * state + 3 * (heads * width + 2 * groups * state))


GRANITE_SMALL = shape(
    *("GraniteMoeHybridForCausalLM", 4096, 40, 32, 8, 100352),
    **{"num_local_experts": 72, "num_experts_per_tok": 10, "intermediate_size": 768},
    **{"shared_intermediate_size": 1536, "mamba_n_heads": 128, "mamba_d_head": 64},
    **{"mamba_d_state": 128, "mamba_n_groups": 1, "tie_word_embeddings": True},
    layer_types=[
        "attention" if at in (5, 15, 25, 35) else "mamba" for at in range(40)
    ],
)  # fmt: skip
KIMI_LINEAR = shape(
    *("KimiLinearForCausalLM", 2304, 27, 32, 32, 163840),
    **{"intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 256},
    **{"num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
    **{"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "moe_layer_freq": 1},
    linear_attn_config={
        **{"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32},
        "short_conv_kernel_size": 4,
    },
)
FALCON_500M = shape(
    *("FalconH1ForCausalLM", 1024, 36, 8, 2, 32784),
    **{"intermediate_size": 2048, "head_dim": 64, "mamba_d_ssm": 1536, "mamba_n_heads": 24},
    **{"mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128},
)
EXAONE_32B = shape(
    *("Exaone4ForCausalLM", 5120, 64, 40, 8, 102400),
    **{"intermediate_size": 27392, "head_dim": 128, "sliding_window": 4096},
    sliding_window_pattern="LLLG",
)
MIMO_V2 = shape(
    *("MiMoV2FlashForCausalLM", 4096, 48, 64, 4, 152576),
    **{"intermediate_size": 16384, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128},
    **{"swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192},
    **{"swa_v_head_dim": 128, "moe_intermediate_size": 2048, "n_routed_experts": 256},
    **{"num_experts_per_tok": 8, "n_shared_experts": None, "add_swa_attention_sink_bias": True},
    hybrid_layer_pattern=[int(at not in (0, 47) and (at - 5) % 6 != 0) for at in range(48)],
    moe_layer_freq=[0, *[1] * 47],
)
SUPER_120B = shape(
    *("NemotronHForCausalLM", 4096, 88, 32, 2, 131072),
    **{"mamba_num_heads": 128, "moe_latent_size": 1024, "moe_intermediate_size": 2688},
    **{"moe_shared_expert_intermediate_size": 5376, "n_routed_experts": 512},
    **{"num_experts_per_tok": 22, "n_shared_experts": 1},
    hybrid_override_pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM"
    "EM*EMEMEMEM*EMEMEMEME",
)
GLM_FLASH = shape(
    *("Glm4MoeLiteForCausalLM", 2048, 47, 20, 20, 154880),
    **{"intermediate_size": 10240, "moe_intermediate_size": 1536, "n_routed_experts": 64},
    **{"n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1},
    **{"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64},
    **{"v_head_dim": 256, "topk_method": "noaux_tc", "num_nextn_predict_layers": 1},
)
MINIMAX_M3 = shape(
    *("MiniMaxM3ForCausalLM", 6144, 60, 64, 4, 200064),
    **{"intermediate_size": 3072, "dense_intermediate_size": 12288, "n_shared_experts": 1},
    **{"shared_intermediate_size": 3072, "num_local_experts": 128, "num_experts_per_tok": 4},
    moe_layer_freq=[0] * 3 + [1] * 57,
    sparse_attention_config={
        **{"use_sparse_attention": True, "sparse_num_index_heads": 4, "sparse_index_dim": 128},
        **{"sparse_topk_blocks": 16, "sparse_block_size": 128},
        "sparse_attention_freq": [0] * 3 + [1] * 57,
    },
)
ERNIE = {"moe_layer_end_index": -1, "moe_layer_interval": 1, "use_bias": False}


def deci(count: int, group: int | None, multiple: float) -> list[dict[str, Any]]:
    """That many equal entries of ``block_configs``."""
    attention = {"n_heads_in_group": group, "no_op": group is None, "window_length": None}
    return [{"attention": attention, "ffn": {"ffn_mult": multiple, "no_op": False}}] * count


ROWS = {
    "qwen1.5-moe-a2.7b": Row(
        shape(
            *("Qwen2MoeForCausalLM", 2048, 24, 16, 16, 151936),
            **{"intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 60},
            **{"num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632},
        ),
        14.316,
        2 * 24 * 2048 * 2,
    ),
    "phi-3.5-moe": Row(
        shape(
            *("PhiMoEForCausalLM", 4096, 32, 32, 8, 32064),
            **{"intermediate_size": 6400, "num_local_experts": 16, "num_experts_per_tok": 2},
            **{"attention_bias": True, "lm_head_bias": True, "sliding_window": None},
        ),
        41.873,
        2 * 32 * 8 * 128 * 2,
    ),
    "olmo-3-7b": Row(
        shape(
            *("Olmo3ForCausalLM", 4096, 32, 32, 32, 100278),
            **{"intermediate_size": 11008, "sliding_window": 4096},
        ),
        7.298,
        2 * 32 * 32 * 128 * 2,
    ),
    "olmo-3-32b": Row(
        shape("Olmo3ForCausalLM", 5120, 64, 40, 8, 100278, intermediate_size=27648),
        32.234,
        2 * 64 * 8 * 128 * 2,
    ),
    "olmoe-1b-7b": Row(
        shape(
            *("OlmoeForCausalLM", 2048, 16, 16, 16, 50304),
            **{"intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8},
        ),
        6.919,
        2 * 16 * 2048 * 2,
    ),
    "exaone-4.0-32b": Row(EXAONE_32B, 32.003, 2 * 64 * 8 * 128 * 2),
    "command-r-08-2024": Row(
        shape("CohereForCausalLM", 8192, 40, 64, 8, 256000, intermediate_size=24576),
        32.296,
        2 * 40 * 8 * 128 * 2,
    ),
    "command-a": Row(
        shape("Cohere2ForCausalLM", 12288, 64, 96, 8, 256000, intermediate_size=36864),
        111.058,
        2 * 64 * 8 * 128 * 2,
    ),
    "glm-4-32b-0414": Row(
        shape(
            *("Glm4ForCausalLM", 6144, 61, 48, 2, 151552),
            **{"intermediate_size": 23040, "attention_bias": False},
        ),
        32.566,
        2 * 61 * 2 * 128 * 2,
    ),
    "glm-4-9b-chat-hf": Row(
        shape("GlmForCausalLM", 4096, 40, 32, 2, 151552, intermediate_size=13696),
        9.400,
        2 * 40 * 2 * 128 * 2,
    ),
    # 31.2 B with the layer for further tokens, of 0.6 B and an LM head and an embedding of its own
    "glm-4.7-flash": Row(GLM_FLASH, 29.94, 47 * (512 + 64) * 2),
    "seed-oss-36b": Row(
        shape("SeedOssForCausalLM", 5120, 64, 80, 8, 155136, intermediate_size=27648),
        36.151,
        2 * 64 * 8 * 128 * 2,
    ),
    "ernie-4.5-0.3b": Row(
        shape("Ernie4_5ForCausalLM", 1024, 18, 16, 2, 103424, intermediate_size=3072),
        0.3607,
        2 * 18 * 2 * 128 * 2,
    ),
    "ernie-4.5-21b-a3b": Row(
        shape(
            *("Ernie4_5_MoeForCausalLM", 2560, 28, 20, 4, 103424),
            **{"intermediate_size": 12288, "moe_intermediate_size": 1536, "moe_num_experts": 64},
            **{"moe_k": 6, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, **ERNIE},
        ),
        21.83,
        2 * 28 * 4 * 128 * 2,
    ),
    "ernie-4.5-300b-a47b": Row(
        shape(
            *("Ernie4_5_MoeForCausalLM", 8192, 54, 64, 8, 103424),
            **{"intermediate_size": 28672, "moe_intermediate_size": 3584, "moe_num_experts": 64},
            **{"moe_k": 8, "moe_num_shared_experts": 0, "moe_layer_start_index": 3, **ERNIE},
            tie_word_embeddings=False,
        ),
        300.0,
        2 * 54 * 8 * 128 * 2,
    ),
    "hunyuan-a13b": Row(
        shape(
            *("HunYuanMoEV1ForCausalLM", 4096, 32, 32, 8, 128167),
            **{"intermediate_size": 3072, "moe_intermediate_size": [3072] * 32},
            **{"num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32},
            **{"use_qk_norm": True, "use_cla": False, "tie_word_embeddings": True},
        ),
        80.39,
        2 * 32 * 8 * 128 * 2,
    ),
    "hunyuan-7b": Row(
        shape(
            *("HunYuanDenseV1ForCausalLM", 4096, 32, 32, 8, 128167),
            **{"intermediate_size": 14336, "head_dim": 128, "tie_word_embeddings": True},
        ),
        7.505,
        2 * 32 * 8 * 128 * 2,
    ),
    "granite-3.3-8b": Row(
        shape(
            *("GraniteForCausalLM", 4096, 40, 32, 8, 49159),
            **{"intermediate_size": 12800, "tie_word_embeddings": True},
        ),
        8.171,
        2 * 40 * 8 * 128 * 2,
    ),
    "granite-3.1-3b-a800m": Row(
        shape(
            *("GraniteMoeForCausalLM", 1536, 32, 24, 8, 49155),
            **{"intermediate_size": 512, "num_local_experts": 40, "num_experts_per_tok": 8},
            tie_word_embeddings=True,
        ),
        3.299,
        2 * 32 * 8 * 64 * 2,
    ),
    "granite-4.0-h-small": Row(
        GRANITE_SMALL, 32.207337984, 2 * 4 * 8 * 128 * 2, mamba_state(36, 128, 64, 1, 128)
    ),
    "falcon-h1-0.5b": Row(FALCON_500M, 0.521, 2 * 36 * 2 * 64 * 2, mamba_state(36, 24, 64, 1, 128)),
    "falcon-h1-34b": Row(
        shape(
            *("FalconH1ForCausalLM", 5120, 72, 20, 4, 261120),
            **{"intermediate_size": 21504, "head_dim": 128, "mamba_d_ssm": 4096},
            **{"mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2},
            mamba_d_state=256,
        ),
        33.643,
        2 * 72 * 4 * 128 * 2,
        mamba_state(72, 32, 128, 2, 256),
    ),
    "nemotron-super-49b": Row(
        shape(
            *("DeciLMForCausalLM", 8192, 80, 64, 8, 128256),
            block_configs=[
                *(deci(48, 8, 5.25) + deci(10, None, 1.3125) + deci(8, None, 1.0)),
                *(deci(6, None, 0.5) + deci(5, None, 2.625) + deci(1, 8, 2.625)),
                *(deci(1, None, 3.28125) + deci(1, None, 5.25)),
            ],
        ),
        49.867,
        2 * 49 * 8 * 128 * 2,
    ),
    "nemotron-3-super": Row(
        SUPER_120B, 120.6, 2 * 8 * 2 * 128 * 2, mamba_state(40, 128, 64, 8, 128)
    ),
    # keys of 192 and values of 128: nine layers see everything
    "mimo-v2-flash": Row(MIMO_V2, 309.0, (9 * 4 + 39 * 8) * (192 + 128) * 2),
    "step-3.5-flash": Row(
        shape(
            *("Step3p5ForCausalLM", 4096, 45, 64, 8, 128896),
            **{"intermediate_size": 11264, "moe_intermediate_size": 1280, "moe_num_experts": 288},
            **{"moe_top_k": 8, "share_expert_dim": 1280, "sliding_window": 512, "head_dim": 128},
            moe_layers_enum=",".join(str(at) for at in range(3, 45)),
            layer_types=[f"{('full', 'sliding')[at % 4 > 0]}_attention" for at in range(45)],
            attention_other_setting={
                **{"attention_type": "sliding_attention", "num_attention_heads": 96},
                **{"num_attention_groups": 8, "head_dim": 128},
            },
        ),
        196.8,
        2 * 45 * 8 * 128 * 2,
    ),
    # states in 32 bits; three inputs of the convolutions over queries, keys and values
    "kimi-linear-48b-a3b": Row(
        KIMI_LINEAR,
        49.12,
        7 * (512 + 64) * 2,
        20 * (4 * 32 * 128 * 128 + 2 * 3 * 3 * 32 * 128),
    ),
    "dbrx": Row(
        {
            **{"architectures": ["DbrxForCausalLM"], "d_model": 6144, "n_heads": 48},
            **{"n_layers": 40, "vocab_size": 100352, "max_seq_len": 32768},
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        131.597,
        2 * 40 * 8 * 128 * 2,
    ),
    "lfm2-8b-a1b": Row(
        shape(
            *("Lfm2MoeForCausalLM", 2048, 24, 32, 8, 65536),
            **{"intermediate_size": 7168, "moe_intermediate_size": 1792, "num_experts": 32},
            **{"num_experts_per_tok": 4, "num_dense_layers": 2, "conv_L_cache": 3},
            layer_types=[
                f"{'full_attention' if at in (2, 6, 10, 14, 18, 21) else 'conv'}"
                for at in range(24)
            ],
        ),
        8.34,
        2 * 6 * 8 * 64 * 2,
        18 * 2 * 2048 * 2,
    ),
    "lfm2-1.2b": Row(
        shape(
            *("Lfm2ForCausalLM", 2048, 16, 32, 8, 65536),
            **{"block_ff_dim": 12288, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0},
            full_attn_idxs=[2, 5, 8, 10, 12, 14],
        ),
        1.17,
        2 * 6 * 8 * 64 * 2,
        10 * 2 * 2048 * 2,
    ),
    # 854 GB at 16 bits; the indexer's key of 128 numbers in 57 layers of 60
    "minimax-m3": Row(MINIMAX_M3, 427.0, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
    "k-exaone-236b-a23b": Row(
        shape(
            *("ExaoneMoEForCausalLM", 6144, 48, 64, 8, 153600),
            **{"intermediate_size": 18432, "moe_intermediate_size": 2048, "num_experts": 128},
            **{"num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
            **{"sliding_window": 128, "sliding_window_pattern": "LLLG"},
        ),
        236.6,
        2 * 48 * 8 * 128 * 2,
    ),
    "trinity-mini": Row(
        shape(
            *("AfmoeForCausalLM", 2048, 32, 32, 4, 200192),
            **{"intermediate_size": 6144, "moe_intermediate_size": 1024, "num_experts": 128},
            **{"num_experts_per_tok": 8, "num_shared_experts": 1, "num_dense_layers": 2},
            **{"sliding_window": 2048, "global_attn_every_n_layers": 4, "head_dim": 128},
        ),
        26.1,
        2 * 32 * 4 * 128 * 2,
    ),
    "dots.llm1": Row(
        shape(
            *("Dots1ForCausalLM", 4096, 62, 32, 32, 152064),
            **{"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128},
            **{"num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1},
        ),
        142.8,
        2 * 62 * 32 * 128 * 2,
    ),
    "solar-open-100b": Row(
        shape(
            *("SolarOpenForCausalLM", 4096, 48, 64, 8, 196608),
            **{"intermediate_size": 10240, "moe_intermediate_size": 1280},
            **{"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8},
        ),
        102.6,
        2 * 48 * 8 * 128 * 2,
    ),
    "ling-mini-2.0": Row(
        shape(
            *("BailingMoeV2ForCausalLM", 2048, 20, 16, 4, 157184),
            **{"intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256},
            **{"num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
        ),
        16.26,
        2 * 20 * 4 * 128 * 2,
    ),
    "apertus-8b": Row(
        shape("ApertusForCausalLM", 4096, 32, 32, 8, 131072, intermediate_size=21504),
        8.05,
        2 * 32 * 8 * 128 * 2,
    ),
    "nemotron-4-15b": Row(
        shape("NemotronForCausalLM", 6144, 32, 48, 8, 256000, intermediate_size=24576),
        15.6,
        2 * 32 * 8 * 128 * 2,
    ),
    "starcoder2-15b": Row(
        shape(
            *("Starcoder2ForCausalLM", 6144, 40, 48, 4, 49152),
            **{"intermediate_size": 24576, "sliding_window": 4096, "tie_word_embeddings": False},
        ),
        15.958,
        2 * 40 * 4 * 128 * 2,
    ),
    "afm-4.5b": Row(
        shape("ArceeForCausalLM", 2560, 36, 20, 4, 128004, intermediate_size=18432),
        4.62,
        2 * 36 * 4 * 128 * 2,
    ),
    "nemotron-nano-9b-v2": Row(
        shape(
            *("NemotronHForCausalLM", 4480, 56, 40, 8, 131072),
            **{"intermediate_size": 15680, "mamba_num_heads": 128, "mamba_head_dim": 80},
            hybrid_override_pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        ),
        8.888227328,
        2 * 4 * 8 * 128 * 2,
        mamba_state(27, 128, 80, 8, 128),
    ),
    "mistral-small-4": Row(
        shape(
            *("Mistral4ForCausalLM", 4096, 36, 32, 32, 131072),
            **{"intermediate_size": 12288, "moe_intermediate_size": 2048, "n_shared_experts": 1},
            **{"n_routed_experts": 128, "num_experts_per_tok": 4, "kv_lora_rank": 256},
            **{"q_lora_rank": 1024, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64},
        ),
        119.0,
        36 * (256 + 64) * 2,
    ),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_sizes_are_the_published_ones(tmp_path: Path, name: str) -> None:
    document, billions, token, state = ROWS[name]
    found = config(tmp_path, document)
    assert found.parameters == pytest.approx(billions * 1e9, rel=0.01)
    assert found.kv_bytes_per_token("bf16") == token
    assert found.state_bytes() == state


def test_trinity_gates_attention_and_norms_behind_it(tmp_path: Path) -> None:
    """Of 32 layers every fourth sees everything; the first two are dense."""
    found = config(tmp_path, ROWS["trinity-mini"].document)
    kinds = [(group.count, group.attention.window, type(group.mlp)) for group in found.layers]
    assert kinds == [
        (2, Window(2048), DenseMlp),
        (22, Window(2048), MixtureOfExperts),
        (8, None, MixtureOfExperts),
    ]
    assert all(group.post_norms for group in found.layers)
    assert all(getattr(group.attention, "output_gate", False) for group in found.layers)


def test_exaone_sees_everything_in_each_fourth_layer(tmp_path: Path) -> None:
    near, whole = config(tmp_path, EXAONE_32B).layers
    assert (near.count, whole.count) == (48, 16)
    assert whole.places[:2] == (3, 7)
    assert near.attention.window == (4096, False)
    assert whole.attention.window is None


def test_the_last_layer_of_a_pattern_in_letters_sees_everything(tmp_path: Path) -> None:
    near, whole = config(tmp_path, EXAONE_32B, num_hidden_layers=62).layers
    assert (near.count, whole.count) == (46, 16)
    assert whole.places[-1] == 61


def test_cohere_has_attention_and_mlp_behind_one_norm(tmp_path: Path) -> None:
    for group in config(tmp_path, ROWS["command-a"].document).layers:
        assert group.parallel_mlp
        assert group.norms == 1


def test_layers_of_deci_may_have_no_attention(tmp_path: Path) -> None:
    found = config(tmp_path, ROWS["nemotron-super-49b"].document)
    whole = sum(g.count for g in found.layers if isinstance(g.attention, GroupedQuery))
    assert whole == 49
    assert {group.norms for group in found.layers} == {1, 2}


def test_experts_behind_a_latent_are_as_wide_as_it(tmp_path: Path) -> None:
    plain = config(tmp_path, SUPER_120B, moe_latent_size=None)
    found = config(tmp_path, SUPER_120B)
    experts = 40 * 2 * 512 * 2688
    assert plain.parameters - found.parameters == experts * (4096 - 1024) - 40 * 2 * 4096 * 1024


def test_falcon_has_two_layers_for_one(tmp_path: Path) -> None:
    mamba, attention = config(tmp_path, FALCON_500M).layers
    assert isinstance(mamba.attention, Mamba2)
    assert mamba.places[:2] == (0, 2)
    assert attention.places[:2] == (1, 3)
    assert mamba.norms + attention.norms == 3


def test_kimi_linear_counts_layers_from_one(tmp_path: Path) -> None:
    groups = config(tmp_path, KIMI_LINEAR).layers
    delta = [group for group in groups if isinstance(group.attention, GatedDelta)]
    assert sum(group.count for group in delta) == 20
    assert all(3 not in group.places for group in delta)


def test_the_text_part_goes_by_its_own_classes(tmp_path: Path) -> None:
    text = {**ROWS["hunyuan-7b"].document}
    outer = {"architectures": ["InternVLChatModel"], "llm_config": text}
    assert config(tmp_path, outer).parameters == config(tmp_path, text).parameters
    omni = {"architectures": ["Some"], "thinker_config": {"text_config": text}}
    assert config(tmp_path, omni).parameters == config(tmp_path, text).parameters


@pytest.mark.parametrize(
    ("row", "changes", "message"),
    [
        ("hunyuan-7b", {"use_cla": True}, "use_cla: layers that share keys and values"),
        ("exaone-4.0-32b", {"sliding_window_pattern": "LXG"}, "expected a number, or L and G"),
        ("ernie-4.5-21b-a3b", {"use_bias": True}, "use_bias: biases of experts"),
        ("hunyuan-a13b", {"moe_topk": [8, 8]}, "moe_topk: expected a whole number, or one for"),
        ("granite-4.0-h-small", {"mamba_d_head": 32}, "128 heads of 32 are not 8192 wide"),
        ("nemotron-super-49b", {"block_configs": deci(2, 8, 1.0)}, "has 2 layers, not num_hidden"),
        ("mimo-v2-flash", {"moe_layer_freq": [2] * 48}, "moe_layer_freq: expected 0 or 1"),
        ("step-3.5-flash", {"moe_layers_enum": "3,x"}, "moe_layers_enum: expected numbers"),
    ],
)
def test_impossible_shapes_are_refused_by_key(
    tmp_path: Path, row: str, changes: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, ROWS[row].document, changes)


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"architectures": ["JambaForCausalLM"], "model_type": "jamba"}, "Mamba-1"),
        (
            {
                "architectures": ["Gemma3nForConditionalGeneration"],
                "text_config": {"model_type": "gemma3n_text"},
            },
            "embeddings for each layer",
        ),
        (
            {
                "architectures": ["MllamaForConditionalGeneration"],
                "text_config": {"model_type": "mllama_text_model"},
            },
            "layers that attend to a picture",
        ),
        ({"model_type": "rwkv7"}, "RWKV"),
        ({"architectures": ["DeepseekV41ForCausalLM"]}, "rows that layers share"),
        ({"architectures": ["LongcatFlashForCausalLM"]}, "two attentions in each layer"),
        ({"architectures": ["Zamba2ForCausalLM"]}, "attention that layers share"),
        (
            {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"},
            "a head that drafts for another model",
        ),
        (
            {
                "architectures": ["Qwen3_8FlashNextForConditionalGeneration"],
                "text_config": {"model_type": "qwen3_8_flash_next_text"},
            },
            "embeddings of n-grams",
        ),
        (
            {
                "architectures": ["Glm5NextForConditionalGeneration"],
                "text_config": {"model_type": "glm5_next_text"},
            },
            "an indexer over pooled keys",
        ),
    ],
)
def test_kinds_of_layers_that_nothing_models_are_named(
    tmp_path: Path, document: dict[str, Any], kind: str
) -> None:
    found = refused(tmp_path, document, {})
    assert kind in found
    assert "not modelled; it would need a record in sim/specs" in found


@pytest.mark.parametrize(
    ("key", "rope", "longest"),
    [
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}, 131072),
        ("rope_parameters", {"rope_type": "yarn", "factor": 2.0}, 65536),
        ("rope_scaling", {"type": "yarn", "factor": 4}, 131072),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}, 40960),
        ("rope_scaling", None, 40960),
    ],
)
def test_yarn_makes_the_longest_context_longer(
    tmp_path: Path, key: str, rope: dict[str, Any] | None, longest: int
) -> None:
    """Qwen3 with YaRN, as its model card says: 32,768 tokens, and a factor of 4."""
    dense = shape("Qwen3ForCausalLM", 2560, 36, 32, 8, 151936, intermediate_size=9728)
    given = None if rope is None else {**rope, "original_max_position_embeddings": 32768}
    found = config(tmp_path, dense, max_position_embeddings=40960, **{key: given})
    assert found.max_position_embeddings == longest


KIMI_K3 = {
    **{"hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 96},
    **{"num_key_value_heads": 96, "vocab_size": 163840, "intermediate_size": 33792},
    **{"moe_intermediate_size": 3072, "num_experts": 896, "num_experts_per_token": 16},
    **{"num_shared_experts": 2, "routed_expert_hidden_size": 3584, "first_k_dense_replace": 1},
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "v_head_dim": 128},
    **{"qk_rope_head_dim": 64, "mla_use_output_gate": True, "attn_res_block_size": 12},
    "linear_attn_config": {
        **{"full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96},
        "use_full_rank_gate": True,
    },
}


def test_kimi_k3_has_gates_and_experts_behind_a_latent(tmp_path: Path) -> None:
    """2.8 trillion parameters; 24 layers of 512 + 64 numbers; 69 states of 96 x 128 x 128."""
    outer = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3"}
    text = {"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", **KIMI_K3}
    found = config(tmp_path, {**outer, "text_config": text})
    plain = config(tmp_path, {**outer, "text_config": {**text, "mla_use_output_gate": False}})
    assert found.parameters == pytest.approx(2.8e12, rel=0.01)
    assert found.parameters - plain.parameters == 24 * 7168 * 96 * 128
    assert found.kv_bytes_per_token("bf16") == 24 * (512 + 64) * 2
    assert found.state_bytes() == 69 * (4 * 96 * 128 * 128 + 2 * 3 * 3 * 96 * 128)
    assert "attention residuals" in found.remarks[0]


def test_minimax_m3_attends_to_chosen_tokens(tmp_path: Path) -> None:
    dense, sparse = config(tmp_path, MINIMAX_M3).layers
    assert (dense.count, sparse.count) == (3, 57)
    assert type(dense.attention) is GroupedQuery
    assert isinstance(sparse.attention, SparseGrouped)
    assert sparse.attention.index_topk == 2048
    off = {"use_sparse_attention": False}
    whole = config(tmp_path, MINIMAX_M3, sparse_attention_config=off)
    assert all(type(group.attention) is GroupedQuery for group in whole.layers)
