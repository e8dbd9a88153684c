"""Lists the families of models whose ``config.json`` is understood, by the classes of transformers.

A family is the assumptions of its configuration class, and a function that makes its layers
(``huggingface_experts``, ``_latent``, ``_recurrent``, ``_windows``). Classes with layers of a kind
that nothing here models are listed, too, with what they would need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.catalog import huggingface_experts as experts
from sim.catalog import huggingface_latent as latent
from sim.catalog import huggingface_recurrent as recurrent
from sim.catalog import huggingface_windows as windows
from sim.catalog.fields import Fields
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The assumptions of one configuration class, and the make-up of its layers.

    ``kv_heads`` None means as many as attention heads; ``head_dim`` None means hidden size over
    heads. ``bias`` is where attention has biases: "never", "qkv" (always, on those three) or "key"
    (on all four projections when the key ``attention_bias`` says so, which ``biased`` stands in
    for). ``window`` is when attention looks back ``window_size`` tokens, or as many as the file
    says: "never", "always", or by the "switch" that Qwen classes have. ``layers`` turns the
    attention into groups of layers where they are not all alike and dense. ``tied`` is whether the
    LM head is the embedding, of ``vocabulary`` tokens, where the file does not say; with
    ``norm_bias`` norms have biases.
    """

    kv_heads: int | None
    head_dim: int | None
    max_positions: int
    bias: str
    qk_norm: bool = False
    mlp_bias: bool = False
    biased: bool = False
    window: str = "never"
    window_size: int | None = 4096
    layers: Callable[[Fields, GroupedQuery], tuple[LayerGroup, ...]] | None = None
    tied: bool = False
    vocabulary: int | None = None
    norm_bias: bool = False


_GEMMA_3 = ModelFamily(
    4, 256, 131072, bias="key", qk_norm=True, window="always", layers=windows.gemma3, tied=True,
    vocabulary=262208,
)  # fmt: skip
_GEMMA_4 = ModelFamily(
    4, 256, 131072, bias="key", qk_norm=True, window="always", window_size=512,
    layers=windows.gemma4, tied=True, vocabulary=262144,
)  # fmt: skip
_QWEN_NEXT = ModelFamily(2, 256, 32768, bias="key", qk_norm=True, layers=recurrent.qwen3_next)
_QWEN_3_5 = ModelFamily(4, 256, 32768, bias="key", qk_norm=True, layers=recurrent.qwen3_5)

_MINIMAX_TEXT = ModelFamily(8, 128, 10240000, bias="never", layers=recurrent.minimax_text)
_PHI_MOE = ModelFamily(
    8, None, 131072, bias="key", window="always", window_size=None, layers=experts.phi,
    norm_bias=True,
)  # fmt: skip
_ERNIE_MOE = ModelFamily(4, 128, 131072, bias="never", layers=experts.ernie, tied=True)
_MIMO_V2 = ModelFamily(
    8, 192, 262144, bias="key", window="always", window_size=128, layers=experts.mimo_v2
)
_STEP_3 = ModelFamily(
    8, 128, 65536, bias="key", qk_norm=True, window="always", layers=experts.step_3
)
_MINIMAX_M3 = ModelFamily(4, 128, 1048576, bias="never", qk_norm=True, layers=experts.minimax_m3)
_EXAONE_MOE = ModelFamily(
    32, 128, 262144, bias="never", qk_norm=True, window="always", layers=windows.exaone_moe
)
_HY_3 = ModelFamily(8, 128, 262144, bias="never", qk_norm=True, layers=experts.bailing)
_MPT = ModelFamily(None, None, 2048, bias="never", layers=windows.mpt, tied=True)
_LFM_2 = ModelFamily(8, None, 128000, bias="never", qk_norm=True, layers=recurrent.lfm2, tied=True)

FAMILIES = {
    "LlamaForCausalLM": ModelFamily(None, None, 2048, bias="key", mlp_bias=True),
    "MistralForCausalLM": ModelFamily(8, None, 131072, bias="never", window="always"),
    "Ministral3ForCausalLM": ModelFamily(
        8, 128, 262144, bias="never", window="always", window_size=None
    ),
    "SmolLM3ForCausalLM": ModelFamily(
        4, None, 32768, bias="key", mlp_bias=True, tied=True, vocabulary=128256
    ),
    "MiMoForCausalLM": ModelFamily(
        32, None, 32768, bias="qkv", window="switch", layers=windows.qwen
    ),
    "Phi3ForCausalLM": ModelFamily(
        None, None, 4096, bias="never", window="always", window_size=None
    ),
    "Qwen2ForCausalLM": ModelFamily(
        32, None, 32768, bias="qkv", window="switch", layers=windows.qwen
    ),
    "Qwen3ForCausalLM": ModelFamily(
        32, 128, 32768, bias="key", qk_norm=True, window="switch", layers=windows.qwen
    ),
    "Gemma2ForCausalLM": ModelFamily(
        4,
        256,
        8192,
        bias="key",
        window="always",
        layers=windows.gemma2,
        tied=True,
        vocabulary=256000,
    ),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "Gemma4ForCausalLM": _GEMMA_4,
    "Gemma4ForConditionalGeneration": _GEMMA_4,
    "MixtralForCausalLM": ModelFamily(
        8, None, 131072, bias="never", window="always", window_size=None, layers=experts.mixtral
    ),
    "Qwen3MoeForCausalLM": ModelFamily(
        4, None, 32768, bias="key", qk_norm=True, window="switch", layers=experts.qwen3
    ),
    "Glm4MoeForCausalLM": ModelFamily(8, None, 131072, bias="key", layers=experts.glm4),
    "SolarOpenForCausalLM": ModelFamily(8, 128, 131072, bias="key", layers=experts.solar_open),
    "MiniMaxM2ForCausalLM": ModelFamily(
        8, 128, 196608, bias="never", qk_norm=True, layers=experts.minimax
    ),
    "GptOssForCausalLM": ModelFamily(
        8,
        64,
        131072,
        bias="key",
        biased=True,
        window="always",
        window_size=128,
        layers=experts.gpt_oss,
    ),
    "Llama4ForConditionalGeneration": ModelFamily(
        8, 128, 131072, bias="key", layers=experts.llama4
    ),
    "Llama4ForCausalLM": ModelFamily(8, 128, 131072, bias="key", layers=experts.llama4),
    "MiniMaxText01ForCausalLM": _MINIMAX_TEXT,
    "MiniMaxM1ForCausalLM": _MINIMAX_TEXT,
    "Qwen3NextForCausalLM": _QWEN_NEXT,
    "Qwen3_5MoeForCausalLM": _QWEN_NEXT,
    "Qwen3_5MoeForConditionalGeneration": _QWEN_NEXT,
    "Qwen3_5ForCausalLM": _QWEN_3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN_3_5,
    "NemotronHForCausalLM": ModelFamily(8, 128, 4096, bias="key", layers=recurrent.nemotron_h),
    "Qwen2MoeForCausalLM": ModelFamily(
        16, None, 32768, bias="qkv", window="switch", layers=experts.qwen2
    ),
    "PhiMoEForCausalLM": _PHI_MOE,
    "PhimoeForCausalLM": _PHI_MOE,
    "OlmoeForCausalLM": ModelFamily(
        None, None, 4096, bias="key", qk_norm=True, layers=experts.olmoe
    ),
    "Olmo2ForCausalLM": ModelFamily(
        None, None, 2048, bias="key", qk_norm=True, layers=windows.olmo
    ),
    "Olmo3ForCausalLM": ModelFamily(
        None, None, 2048, bias="key", qk_norm=True, window="always", layers=windows.olmo
    ),
    "Exaone4ForCausalLM": ModelFamily(
        32, None, 2048, bias="never", qk_norm=True, window="always", layers=windows.every_fourth
    ),
    "CohereForCausalLM": ModelFamily(
        None, None, 8192, bias="key", layers=windows.cohere, tied=True
    ),
    "Cohere2ForCausalLM": ModelFamily(
        None, None, 8192, bias="key", window="always", layers=windows.cohere, tied=True
    ),
    "GlmForCausalLM": ModelFamily(2, 128, 131072, bias="key", biased=True, layers=windows.glm),
    "Glm4ForCausalLM": ModelFamily(2, 128, 131072, bias="key", layers=windows.glm4),
    "SeedOssForCausalLM": ModelFamily(
        8, 128, 524288, bias="key", biased=True, layers=windows.seed_oss
    ),
    "Ernie4_5ForCausalLM": ModelFamily(
        2, 128, 131072, bias="never", layers=windows.ernie, tied=True
    ),
    "Ernie4_5_MoeForCausalLM": _ERNIE_MOE,
    "Ernie4_5_MoEForCausalLM": _ERNIE_MOE,
    "HunYuanDenseV1ForCausalLM": ModelFamily(
        None, None, 2048, bias="key", qk_norm=True, layers=windows.hunyuan
    ),
    "HunYuanMoEV1ForCausalLM": ModelFamily(
        None, None, 2048, bias="key", qk_norm=True, layers=experts.hunyuan
    ),
    "GraniteForCausalLM": ModelFamily(None, None, 2048, bias="key", mlp_bias=True),
    "GraniteMoeForCausalLM": ModelFamily(None, None, 2048, bias="key", layers=experts.granite),
    "GraniteMoeSharedForCausalLM": ModelFamily(
        None, None, 2048, bias="key", layers=experts.granite
    ),
    "GraniteMoeHybridForCausalLM": ModelFamily(
        None, None, 2048, bias="key", layers=recurrent.granite_hybrid
    ),
    "BambaForCausalLM": ModelFamily(8, None, 262144, bias="key", layers=recurrent.granite_hybrid),
    "FalconH1ForCausalLM": ModelFamily(8, None, 8192, bias="key", layers=recurrent.falcon_h1),
    "DeciLMForCausalLM": ModelFamily(None, None, 2048, bias="key", layers=windows.deci),
    "MiMoV2FlashForCausalLM": _MIMO_V2,
    "MiMoV2ForCausalLM": _MIMO_V2,
    "Step3p5ForCausalLM": _STEP_3,
    "Step3p7ForCausalLM": _STEP_3,
    "Step3p7FlashForCausalLM": _STEP_3,
    "DbrxForCausalLM": ModelFamily(8, None, 2048, bias="never", layers=experts.dbrx),
    "Lfm2ForCausalLM": _LFM_2,
    "Lfm2MoeForCausalLM": _LFM_2,
    "Dots1ForCausalLM": ModelFamily(32, None, 2048, bias="key", layers=experts.dots),
    "BailingMoeV2ForCausalLM": ModelFamily(
        4, None, 16384, bias="never", qk_norm=True, layers=experts.bailing
    ),
    "AfmoeForCausalLM": ModelFamily(
        *(None, 128, 131072, "never"),
        qk_norm=True,
        window="always",
        window_size=2048,
        layers=windows.afmoe,
        vocabulary=200192,
    ),
    "HYV3ForCausalLM": _HY_3,
    "HyV3ForCausalLM": _HY_3,
    "ExaoneMoEForCausalLM": _EXAONE_MOE,
    "ExaoneMoeForCausalLM": _EXAONE_MOE,
    "NemotronForCausalLM": ModelFamily(
        None, None, 4096, bias="key", layers=windows.without_gate, norm_bias=True
    ),
    "ArceeForCausalLM": ModelFamily(
        None, None, 4096, bias="key", mlp_bias=True, layers=windows.without_gate
    ),
    "ApertusForCausalLM": ModelFamily(
        None, None, 65536, bias="key", qk_norm=True, layers=windows.without_gate
    ),
    "Starcoder2ForCausalLM": ModelFamily(
        *(2, None, 4096, "never"),
        window="always",
        window_size=None,
        layers=windows.starcoder2,
        tied=True,
        norm_bias=True,
    ),
    "StableLmForCausalLM": ModelFamily(
        None, None, 4096, bias="key", layers=windows.stablelm, norm_bias=True
    ),
    "GemmaForCausalLM": ModelFamily(16, 256, 8192, bias="key", tied=True, vocabulary=256000),
    "InternLM2ForCausalLM": ModelFamily(None, None, 32768, bias="key"),
    "InternLM3ForCausalLM": ModelFamily(None, None, 32768, bias="key", mlp_bias=True),
    "BaichuanForCausalLM": ModelFamily(None, None, 4096, bias="never"),
    "FalconForCausalLM": ModelFamily(
        None, None, 2048, bias="never", layers=windows.falcon, tied=True, norm_bias=True
    ),
    "GPTNeoXForCausalLM": ModelFamily(
        None, None, 2048, bias="key", biased=True, layers=windows.neox, norm_bias=True
    ),
    "BloomForCausalLM": ModelFamily(
        None, None, 2048, bias="never", layers=windows.bloom, tied=True, norm_bias=True
    ),
    "MptForCausalLM": _MPT,
    "MPTForCausalLM": _MPT,
    "MiniMaxM3ForCausalLM": _MINIMAX_M3,
    "MiniMaxM3SparseForCausalLM": _MINIMAX_M3,
}
"""The architectures with keys and values of their own for each KV head, by the name that
``architectures`` gives them."""

LATENT: dict[str, tuple[int, Callable[[Fields], tuple[LayerGroup, ...]]]] = {
    "DeepseekV2ForCausalLM": (2048, latent.deepseek),
    "DeepseekV3ForCausalLM": (4096, latent.deepseek),
    "DeepseekV32ForCausalLM": (4096, latent.indexed),
    "GlmMoeDsaForCausalLM": (202752, latent.indexed),
    "KimiK25ForConditionalGeneration": (4096, latent.deepseek),
    "Glm4MoeLiteForCausalLM": (202752, latent.deepseek),
    "Mistral4ForCausalLM": (1048576, latent.deepseek),
    "MistralLarge3ForCausalLM": (262144, latent.deepseek),
    "DeepseekV4ForCausalLM": (1048576, latent.compressed),
    "KimiLinearForCausalLM": (4096, recurrent.kimi_linear),
    "BailingMoeV3ForCausalLM": (131072, recurrent.bailing_hybrid),
}
"""The architectures with latent attention: ``max_position_embeddings`` where the file is silent,
and what makes the layers."""


MODEL_TYPES = {
    **{"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "phi3": "Phi3ForCausalLM"},
    **{"ministral3": "Ministral3ForCausalLM", "smollm3": "SmolLM3ForCausalLM"},
    **{"mimo": "MiMoForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"},
    **{"qwen2_vl": "Qwen2ForCausalLM", "qwen2_vl_text": "Qwen2ForCausalLM"},
    **{"qwen2_5_vl": "Qwen2ForCausalLM", "qwen2_5_vl_text": "Qwen2ForCausalLM"},
    **{"qwen3_vl_text": "Qwen3ForCausalLM", "qwen3_vl_moe_text": "Qwen3MoeForCausalLM"},
    **{"qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM"},
    **{"qwen3_5": "Qwen3_5ForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM"},
    **{"qwen3_5_moe": "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"},
    **{"gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM"},
    **{"gemma3": "Gemma3ForConditionalGeneration", "gemma4": "Gemma4ForConditionalGeneration"},
    **{"gemma4_text": "Gemma4ForCausalLM", "mixtral": "MixtralForCausalLM"},
    **{"glm4_moe": "Glm4MoeForCausalLM", "minimax_m2": "MiniMaxM2ForCausalLM"},
    **{"solar_open": "SolarOpenForCausalLM"},
    **{"gpt_oss": "GptOssForCausalLM", "llama4_text": "Llama4ForCausalLM"},
    **{"llama4": "Llama4ForConditionalGeneration", "nemotron_h": "NemotronHForCausalLM"},
    **{"deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"},
    **{"deepseek_v32": "DeepseekV32ForCausalLM", "kimi_k2": "DeepseekV3ForCausalLM"},
    **{"deepseek_v4": "DeepseekV4ForCausalLM"},
    **{"glm_moe_dsa": "GlmMoeDsaForCausalLM", "kimi_k25": "KimiK25ForConditionalGeneration"},
    **{"qwen2_moe": "Qwen2MoeForCausalLM", "phimoe": "PhiMoEForCausalLM"},
    **{"olmoe": "OlmoeForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM"},
    **{"exaone4": "Exaone4ForCausalLM", "cohere": "CohereForCausalLM"},
    **{"cohere2": "Cohere2ForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM"},
    **{"glm4v_text": "Glm4ForCausalLM", "glm4v_moe_text": "Glm4MoeForCausalLM"},
    **{"glm4_moe_lite": "Glm4MoeLiteForCausalLM", "seed_oss": "SeedOssForCausalLM"},
    **{"ernie4_5": "Ernie4_5ForCausalLM", "ernie4_5_moe": "Ernie4_5_MoeForCausalLM"},
    **{"hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM"},
    **{"hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM", "granite": "GraniteForCausalLM"},
    **{"granitemoe": "GraniteMoeForCausalLM", "granitemoeshared": "GraniteMoeSharedForCausalLM"},
    **{"granitemoehybrid": "GraniteMoeHybridForCausalLM", "bamba": "BambaForCausalLM"},
    **{"falcon_h1": "FalconH1ForCausalLM", "nemotron-nas": "DeciLMForCausalLM"},
    **{"mimo_v2_flash": "MiMoV2FlashForCausalLM", "step3p5": "Step3p5ForCausalLM"},
    **{"step3p7": "Step3p7ForCausalLM", "step3p7_text": "Step3p7ForCausalLM"},
    **{"afmoe": "AfmoeForCausalLM"},
    **{"mistral4": "Mistral4ForCausalLM", "kimi_linear": "KimiLinearForCausalLM"},
    **{"minimax_m3": "MiniMaxM3ForCausalLM", "dots1": "Dots1ForCausalLM"},
    **{"bailing_moe_v2": "BailingMoeV2ForCausalLM", "exaone_moe": "ExaoneMoeForCausalLM"},
    **{"nemotron": "NemotronForCausalLM", "arcee": "ArceeForCausalLM"},
    **{"apertus": "ApertusForCausalLM", "starcoder2": "Starcoder2ForCausalLM"},
    **{"exaone4_5_text": "Exaone4ForCausalLM"},
    **{"qwen3_omni_moe_text": "Qwen3MoeForCausalLM", "qwen2_5_omni_text": "Qwen2ForCausalLM"},
    **{"gemma4_unified": "Gemma4ForConditionalGeneration", "gemma": "GemmaForCausalLM"},
    **{"gemma4_unified_text": "Gemma4ForCausalLM", "hy_v3": "HYV3ForCausalLM"},
    **{"bailing_moe_v3_vl": "BailingMoeV3ForCausalLM"},
    **{"minimax_m3_vl": "MiniMaxM3ForCausalLM", "minimax_m3_vl_text": "MiniMaxM3ForCausalLM"},
    **{"stablelm": "StableLmForCausalLM", "internlm2": "InternLM2ForCausalLM"},
    **{"internlm3": "InternLM3ForCausalLM", "baichuan": "BaichuanForCausalLM"},
    **{"falcon": "FalconForCausalLM", "gpt_neox": "GPTNeoXForCausalLM"},
    **{"bloom": "BloomForCausalLM", "mpt": "MptForCausalLM"},
    **{"dbrx": "DbrxForCausalLM", "lfm2": "Lfm2ForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM"},
}
"""The architecture by ``model_type``, as transformers registers it; those ending in _text, and
qwen2_vl and qwen2_5_vl as older files have them, are the text parts of models for pictures."""

_MPT_KEYS = {
    **{"hidden_size": "d_model", "num_attention_heads": "n_heads"},
    **{"num_hidden_layers": "n_layers", "max_position_embeddings": "max_seq_len"},
    **{"num_key_value_heads": "attn_config.kv_n_heads"},
}
_STEP_KEYS = {
    **{"num_key_value_heads": "num_attention_groups"},
    **{"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_top_k"},
}

RENAMED: dict[str, dict[str, str]] = {
    "DbrxForCausalLM": {
        **_MPT_KEYS,
        **{"num_local_experts": "ffn_config.moe_num_experts"},
        **{"num_experts_per_tok": "ffn_config.moe_top_k"},
        **{"intermediate_size": "ffn_config.ffn_hidden_size"},
    },
    "Lfm2ForCausalLM": {"tie_word_embeddings": "tie_embedding"},
    "Lfm2MoeForCausalLM": {"tie_word_embeddings": "tie_embedding"},
    "KimiLinearForCausalLM": {
        **{"num_experts_per_tok": "num_experts_per_token"},
        **{"max_position_embeddings": "model_max_length"},
    },
    "Ernie4_5_MoeForCausalLM": {"num_experts_per_tok": "moe_k"},
    "Ernie4_5_MoEForCausalLM": {"num_experts_per_tok": "moe_k"},
    "Step3p5ForCausalLM": _STEP_KEYS,
    "Step3p7ForCausalLM": _STEP_KEYS,
    "AfmoeForCausalLM": {
        **{"first_k_dense_replace": "num_dense_layers"},
        **{"sliding_window_pattern": "global_attn_every_n_layers"},
    },
    "HYV3ForCausalLM": {"moe_intermediate_size": "expert_hidden_dim"},
    "StableLmForCausalLM": {"attention_bias": "use_qkv_bias"},
    "InternLM2ForCausalLM": {"attention_bias": "bias"},
    "InternLM3ForCausalLM": {"attention_bias": "qkv_bias", "mlp_bias": "bias"},
    "BaichuanForCausalLM": {"max_position_embeddings": "model_max_length"},
    "BloomForCausalLM": {
        **{"hidden_size": "n_embed", "num_attention_heads": "n_head"},
        **{"num_hidden_layers": "n_layer", "max_position_embeddings": "seq_length"},
    },
    "MptForCausalLM": _MPT_KEYS,
    "MPTForCausalLM": _MPT_KEYS,
}
"""The names that some classes have for keys: a dotted name is that of a key in a mapping."""

_PER_LAYER = "embeddings for each layer, and layers that share keys and values"
_PICTURE = "layers that attend to a picture"
_REUSED = "rows that layers share, an indexer in two steps, and embeddings of n-grams"
_POOLED = "an indexer over pooled keys, and hyper-connections"
_N_GRAMS = "an indexer, embeddings of n-grams, and hyper-connections"
_TWICE = "two attentions in each layer, and experts without weights"
_SHARED = "attention that layers share"
_DRAFT = "a head that drafts for another model and reads its states"

UNKNOWN = {
    **{"gemma3n": _PER_LAYER, "gemma3n_text": _PER_LAYER},
    **{"mllama": _PICTURE, "mllama_text_model": _PICTURE},
    **{"jamba": "Mamba-1", "mamba": "Mamba-1", "falcon_mamba": "Mamba-1"},
    **{"rwkv": "RWKV", "rwkv7": "RWKV", "recurrent_gemma": "RG-LRU"},
    **{"deepseek_v41": _REUSED, "DeepseekV41ForCausalLM": _REUSED},
    **{"glm5_next": _POOLED, "glm5_next_text": _POOLED},
    **{"qwen3_8_flash_next": _N_GRAMS, "qwen3_8_flash_next_text": _N_GRAMS},
    **{"qwen4_exp": _N_GRAMS, "qwen4_exp_text": _N_GRAMS},
    **{"longcat_flash": _TWICE, "LongcatFlashForCausalLM": _TWICE},
    **{"zamba": _SHARED, "zamba2": _SHARED, "Zamba2ForCausalLM": _SHARED},
    **{"LlamaForCausalLMEagle3": _DRAFT, "LlamaForCausalLMEagle": _DRAFT},
    **{"Eagle3DeepseekV2ForCausalLM": _DRAFT, "Eagle3Speculator": _DRAFT},
    **{"t5": "an encoder", "bart": "an encoder", "whisper": "an encoder", "bert": "an encoder"},
    **{"gpt2": "learned positions", "opt": "learned positions"},
}
"""The kinds of layers that nothing here models, by the ``model_type`` of models that have them."""
