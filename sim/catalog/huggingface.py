"""Reads a Hugging Face ``config.json`` as a ModelSpec.

Dense architectures are understood, those with experts (``huggingface_experts``), with latent
attention (``huggingface_latent``) and others, and the text part of models for pictures and sound
that is one of these. Where the file is silent, the value is the one that the transformers
configuration class of that architecture assumes, so that the model described is the one an engine
would load. How its checkpoint is stored comes with it (``huggingface_quantisation``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sim.catalog import huggingface_experts as experts
from sim.catalog import huggingface_latent as latent
from sim.catalog import huggingface_recurrent as recurrent
from sim.catalog import huggingface_windows as windows
from sim.catalog.fields import Fields
from sim.catalog.files import read_json
from sim.catalog.huggingface_quantisation import quantisation
from sim.catalog.published import published_as
from sim.catalog.wrong_files import of_content, of_keys
from sim.errors import UsageError, printable, shorten
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec
from sim.specs.published import PublishedFormat


@dataclass(frozen=True, slots=True)
class _Family:
    """The assumptions of one configuration class, and the make-up of its layers.

    ``kv_heads`` None means as many as attention heads; ``head_dim`` None means hidden size over
    heads. ``bias`` is where attention has biases: "never", "qkv" (always, on those three) or "key"
    (on all four projections when the key ``attention_bias`` says so, which ``biased`` stands in
    for). ``window`` is when attention looks back ``window_size`` tokens, or as many as the file
    says: "never", "always", or by the "switch" that Qwen classes have. ``layers`` turns the
    attention into groups of layers where they are not all alike and dense. ``tied`` is whether the
    LM head is the embedding, of ``vocabulary`` tokens, where the file does not say.
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


_GEMMA_3 = _Family(
    4, 256, 131072, bias="key", qk_norm=True, window="always", layers=windows.gemma3, tied=True,
    vocabulary=262208,
)  # fmt: skip
_GEMMA_4 = _Family(
    4, 256, 131072, bias="key", qk_norm=True, window="always", window_size=512,
    layers=windows.gemma4, tied=True, vocabulary=262144,
)  # fmt: skip
_QWEN_NEXT = _Family(2, 256, 32768, bias="key", qk_norm=True, layers=recurrent.qwen3_next)
_QWEN_3_5 = _Family(4, 256, 32768, bias="key", qk_norm=True, layers=recurrent.qwen3_5)

_MINIMAX_TEXT = _Family(8, 128, 10240000, bias="never", layers=recurrent.minimax_text)

FAMILIES = {
    "LlamaForCausalLM": _Family(None, None, 2048, bias="key", mlp_bias=True),
    "MistralForCausalLM": _Family(8, None, 131072, bias="never", window="always"),
    "Ministral3ForCausalLM": _Family(
        8, 128, 262144, bias="never", window="always", window_size=None
    ),
    "SmolLM3ForCausalLM": _Family(
        4, None, 32768, bias="key", mlp_bias=True, tied=True, vocabulary=128256
    ),
    "MiMoForCausalLM": _Family(32, None, 32768, bias="qkv", window="switch", layers=windows.qwen),
    "Phi3ForCausalLM": _Family(None, None, 4096, bias="never", window="always", window_size=None),
    "Qwen2ForCausalLM": _Family(32, None, 32768, bias="qkv", window="switch", layers=windows.qwen),
    "Qwen3ForCausalLM": _Family(
        32, 128, 32768, bias="key", qk_norm=True, window="switch", layers=windows.qwen
    ),
    "Gemma2ForCausalLM": _Family(
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
    "MixtralForCausalLM": _Family(
        8, None, 131072, bias="never", window="always", window_size=None, layers=experts.mixtral
    ),
    "Qwen3MoeForCausalLM": _Family(
        4, None, 32768, bias="key", qk_norm=True, window="switch", layers=experts.qwen3
    ),
    "Glm4MoeForCausalLM": _Family(8, None, 131072, bias="key", layers=experts.glm4),
    "MiniMaxM2ForCausalLM": _Family(
        8, 128, 196608, bias="never", qk_norm=True, layers=experts.minimax
    ),
    "GptOssForCausalLM": _Family(
        8,
        64,
        131072,
        bias="key",
        biased=True,
        window="always",
        window_size=128,
        layers=experts.gpt_oss,
    ),
    "Llama4ForConditionalGeneration": _Family(8, 128, 131072, bias="key", layers=experts.llama4),
    "Llama4ForCausalLM": _Family(8, 128, 131072, bias="key", layers=experts.llama4),
    "MiniMaxText01ForCausalLM": _MINIMAX_TEXT,
    "MiniMaxM1ForCausalLM": _MINIMAX_TEXT,
    "Qwen3NextForCausalLM": _QWEN_NEXT,
    "Qwen3_5MoeForCausalLM": _QWEN_NEXT,
    "Qwen3_5MoeForConditionalGeneration": _QWEN_NEXT,
    "Qwen3_5ForCausalLM": _QWEN_3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN_3_5,
    "NemotronHForCausalLM": _Family(8, 128, 4096, bias="key", layers=recurrent.nemotron_h),
}
"""The architectures with keys and values of their own for each KV head, by the name that
``architectures`` gives them."""

LATENT: dict[str, tuple[int, Callable[[Fields], tuple[LayerGroup, ...]]]] = {
    "DeepseekV2ForCausalLM": (2048, latent.deepseek),
    "DeepseekV3ForCausalLM": (4096, latent.deepseek),
    "DeepseekV32ForCausalLM": (4096, latent.indexed),
    "GlmMoeDsaForCausalLM": (202752, latent.indexed),
    "KimiK25ForConditionalGeneration": (4096, latent.deepseek),
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
    **{"gpt_oss": "GptOssForCausalLM", "llama4_text": "Llama4ForCausalLM"},
    **{"llama4": "Llama4ForConditionalGeneration", "nemotron_h": "NemotronHForCausalLM"},
    **{"deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"},
    **{"deepseek_v32": "DeepseekV32ForCausalLM", "kimi_k2": "DeepseekV3ForCausalLM"},
    **{"glm_moe_dsa": "GlmMoeDsaForCausalLM", "kimi_k25": "KimiK25ForConditionalGeneration"},
}
"""The architecture by ``model_type``, as transformers registers it; those ending in _text, and
qwen2_vl and qwen2_5_vl as older files have them, are the text parts of models for pictures."""

PICTURES = "ForConditionalGeneration"
"""With which the classes of models end that also read pictures or sound, and whose text part is a
model of its own."""

MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Configuration keys for the number of layers for multi-token prediction: DeepSeek's and GLM's,
Qwen 3.5's, MiniMax's."""


def read_config(path: Path) -> ModelSpec:
    """The model that the ``config.json`` at ``path`` describes, named after its folder.

    Raises UsageError, naming file and key, for text that is not JSON, an architecture that is not
    supported, a key that is missing or of the wrong kind, and a shape that cannot be.
    """
    outer = config = Fields(str(path), _document(path))
    architecture = _architecture(config)
    if config.has("text_config"):
        config = config.inner("text_config")
    if architecture in LATENT:
        usual, layers_of = LATENT[architecture]
        layers, tied = layers_of(config), False
    else:
        family = FAMILIES[architecture]
        usual, layers = family.max_positions, _layers(config, family, _attention(config, family))
        tied = family.tied
    at = config if config.has("tie_word_embeddings") else outer
    context = config.optional_whole("max_position_embeddings", None)
    spec = ModelSpec(
        name=path.resolve().parent.name if path.name == "config.json" else path.stem,
        hidden_size=config.whole("hidden_size"),
        layers=layers,
        vocab_size=_vocabulary(config, architecture),
        max_position_embeddings=context or usual,
        tie_word_embeddings=at.flag("tie_word_embeddings", absent=tied),
        source=f"{path} ({architecture})",
        mtp_layers=_mtp_layers(config),
        assumed_context=context is None,
    )
    return replace(spec, published=_published(outer, path, spec))


def _document(path: Path) -> object:
    """The file's content; UsageError that names its kind if it is another file."""
    try:
        document = read_json(path)
    except UsageError:
        kind = of_content(path)
        if kind is None:
            raise
        raise UsageError(f"{path}: {kind}") from None
    kind = of_keys(document)
    if kind is not None:
        raise UsageError(f"{path}: {kind}")
    return document


def _published(config: Fields, path: Path, spec: ModelSpec) -> PublishedFormat | None:
    """The formats of the checkpoint; one with a problem where they are not modelled."""
    try:
        stated = quantisation(config, path)
        return None if stated is None else published_as(spec, stated)
    except UsageError as error:
        return PublishedFormat("bf16", None, str(path), problem=str(error))


def _mtp_layers(config: Fields) -> int:
    """Layers for multi-token prediction, by whichever key the family has for them."""
    given = [key for key in MTP_KEYS if config.has(key) and config.value(key) is not None]
    return max((config.count(key) for key in given), default=0)


def _vocabulary(config: Fields, architecture: str) -> int:
    """Tokens of the vocabulary: what the file says, or for some classes their usual number."""
    usual = FAMILIES[architecture].vocabulary if architecture in FAMILIES else None
    if usual is not None and not config.has("vocab_size"):
        return usual
    return config.whole("vocab_size")


def _attention(config: Fields, family: _Family) -> GroupedQuery:
    """The attention of all layers, or of those that ``layers`` of the family starts from."""
    heads = config.whole("num_attention_heads")
    kv_heads = config.optional_whole("num_key_value_heads", family.kv_heads) or heads
    if heads % kv_heads:
        raise config.error(
            "num_key_value_heads", f"{kv_heads} does not divide num_attention_heads = {heads}"
        )
    attention_bias = family.bias == "key" and config.flag("attention_bias", absent=family.biased)
    return GroupedQuery(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_head_dim(config, family, heads),
        attention_bias=attention_bias or family.bias == "qkv",
        qk_norm=family.qk_norm,
        sliding_window=_sliding_window(config, family),
        output_bias=attention_bias,
    )


def _layers(config: Fields, family: _Family, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """The groups of layers with this attention."""
    if family.layers is not None:
        return family.layers(config, attention)
    bias = family.mlp_bias and config.flag("mlp_bias", absent=False)
    mlp = DenseMlp(config.whole("intermediate_size"), mlp_bias=bias)
    return (LayerGroup(config.whole("num_hidden_layers"), attention, mlp),)


def _architecture(config: Fields) -> str:
    """The first supported name in ``architectures``; where there is none, that of the text part, or
    that of the ``model_type`` of a file without ``architectures``."""
    listed = config.value("architectures") if config.has("architectures") else None
    if listed is not None and (not isinstance(listed, list) or not listed):
        raise config.error("architectures", "expected a list with the model's class, such as "
                           "[LlamaForCausalLM]")  # fmt: skip
    by_type = _by_type(config)
    if listed is None:
        if by_type is None:
            raise config.error("architectures", "is missing, and `model_type` decides no class")
        return by_type
    for name in listed:
        if isinstance(name, str) and (name in FAMILIES or name in LATENT):
            return name
    found = shorten(printable(", ".join(map(str, listed))))
    if by_type is not None and all(str(name).endswith(PICTURES) for name in listed):
        return by_type
    hint = "" if by_type is None else (
        f"; if its layers are those of its model_type, {by_type} in `architectures` reads it"
    )  # fmt: skip
    raise config.error(
        "architectures",
        f"found {found}, which is not supported{hint}; supported are the text models "
        f"{', '.join((*FAMILIES, *LATENT))}",
    )


def _by_type(config: Fields) -> str | None:
    """The class of the text part, or of the model, by the ``model_type`` of either."""
    places = [config.inner("text_config")] if config.has("text_config") else []
    for place in (*places, *(() if places else (config,))):
        kind = place.value("model_type") if place.has("model_type") else None
        if isinstance(kind, str):
            return MODEL_TYPES.get(kind)
    return None


def _head_dim(config: Fields, family: _Family, heads: int) -> int:
    """``head_dim``, or the hidden size divided among the heads where the file leaves it out."""
    head_dim = config.optional_whole("head_dim", family.head_dim)
    if head_dim is not None:
        return head_dim
    hidden_size = config.whole("hidden_size")
    if hidden_size % heads:
        raise config.error(
            "hidden_size",
            f"{hidden_size} is not divisible by num_attention_heads = {heads}, and there is no "
            "head_dim",
        )
    return hidden_size // heads


def _sliding_window(config: Fields, family: _Family) -> int | None:
    """Tokens that attention looks back, None where every layer sees the whole context."""
    if family.window == "never":
        return None
    if family.window == "always":
        return config.optional_whole("sliding_window", family.window_size)
    if not config.flag("use_sliding_window", absent=False):
        return None
    # Qwen layers below max_window_layers attend to everything.
    full_layers = config.optional_whole("max_window_layers", windows.WINDOW_LAYERS)
    if full_layers is not None and full_layers >= config.whole("num_hidden_layers"):
        return None
    return config.optional_whole("sliding_window", family.window_size)
