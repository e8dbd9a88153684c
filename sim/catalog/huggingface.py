"""Reads a Hugging Face ``config.json`` as a ModelSpec.

Dense architectures are understood, those with experts (``huggingface_experts``), with latent
attention (``huggingface_latent``) and others, and the text part of models for pictures and sound
that is one of these. Where the file is silent, the value is the one that the transformers
configuration class of that architecture assumes, so that the model described is the one an engine
would load. How its checkpoint is stored comes with it (``huggingface_quantisation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sim.catalog import huggingface_experts as experts
from sim.catalog import huggingface_windows as windows
from sim.catalog.fields import Fields
from sim.catalog.files import read_json
from sim.catalog.gguf import read_gguf
from sim.catalog.huggingface_families import (
    FAMILIES,
    LATENT,
    MODEL_TYPES,
    RENAMED,
    UNKNOWN,
    ModelFamily,
)
from sim.catalog.huggingface_quantisation import quantisation
from sim.catalog.published import published_as
from sim.catalog.wrong_files import of_content, of_keys
from sim.errors import UsageError, printable, shorten
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec
from sim.specs.published import PublishedFormat

PICTURES = "ForConditionalGeneration"
"""With which the classes of models end that also read pictures or sound, and whose text part is a
model of its own."""

LEFT_OUT = {
    "attn_res_block_size": "Attention over the results of earlier layers (attention residuals) is "
    "not timed, and its few weights are not counted.",
}
"""What a key asks for that predictions leave out."""

ROPE = ("rope_scaling", "rope_parameters")
"""Keys under which files say how positions are turned."""

TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which files have the text part of a model."""

MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Configuration keys for the number of layers for multi-token prediction: DeepSeek's and GLM's,
Qwen 3.5's, MiniMax's."""


def read_config(path: Path) -> ModelSpec:
    """The model that the ``config.json`` at ``path`` describes, named after its folder, or the
    header of a GGUF file.

    Raises UsageError, naming file and key, for text that is not JSON, an architecture that is not
    supported, a key that is missing or of the wrong kind, and a shape that cannot be.
    """
    gguf = read_gguf(path)
    outer = config = Fields(str(path), _document(path) if gguf is None else gguf.config)
    architecture = _architecture(config)
    config = _renamed([*_parts(config)][-1], RENAMED.get(architecture, {}))
    try:
        spec = _model(config, outer, architecture, path)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    stored = _published(outer, path, spec) if gguf is None else gguf.published(spec)
    return replace(spec, published=stored)


def _model(config: Fields, outer: Fields, architecture: str, path: Path) -> ModelSpec:
    """The model of the text part ``config`` of a file."""
    family = None
    if architecture in LATENT:
        usual, layers_of = LATENT[architecture]
        layers, tied = layers_of(config), False
    else:
        family = FAMILIES[architecture]
        usual, layers = family.max_positions, _layers(config, family, _attention(config, family))
        tied = family.tied
    at = config if config.has("tie_word_embeddings") else outer
    context = _scaled(config, config.optional_whole("max_position_embeddings", None))
    return ModelSpec(
        name=path.resolve().parent.name if path.name == "config.json" else path.stem,
        hidden_size=config.whole("hidden_size"),
        layers=layers,
        vocab_size=_vocabulary(config, architecture),
        max_position_embeddings=context or usual,
        tie_word_embeddings=at.flag("tie_word_embeddings", absent=tied),
        source=f"{path} ({architecture})",
        mtp_layers=_mtp_layers(config),
        hyper_connections=config.optional_whole("hc_mult", 1) or 1,
        assumed_context=context is None,
        norm_bias=family is not None and family.norm_bias,
        head_bias=config.flag("lm_head_bias", absent=False),
        remarks=tuple(word for key, word in LEFT_OUT.items() if experts.given(config, key)),
    )


def _parts(config: Fields) -> Iterator[Fields]:
    """The file and the text part of it, if it has one, and of that, if it has one."""
    yield config
    for key in TEXT:
        if config.has(key) and config.value(key):
            yield from _parts(config.inner(key))
            return


def _renamed(config: Fields, names: Mapping[str, str]) -> Fields:
    """The file with the keys that it has under other ``names`` under their usual ones, too."""
    more = {}
    for usual, name in names.items():
        place, *rest = name.split(".")
        if config.has(usual) or not config.has(place):
            continue
        value = config.value(place)
        if rest:
            inner = config.inner(place)
            if not inner.has(rest[0]):
                continue
            value = inner.value(rest[0])
        more[usual] = value
    return config.with_values(more) if more else config


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


def _scaled(config: Fields, context: int | None) -> int | None:
    """The longest context with YaRN, where the file asks for it: so many times that of training, as
    engines take it (vLLM, ``_get_and_verify_max_len``)."""
    for key in ROPE:
        if not experts.given(config, key):
            continue
        rope = config.inner(key)
        kind = next((rope.value(k) for k in ("rope_type", "type") if rope.has(k)), None)
        trained = "original_max_position_embeddings"
        if kind == "yarn" and rope.has("factor") and experts.given(rope, trained):
            return round(rope.whole(trained) * rope.number("factor"))
    return context


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


def _attention(config: Fields, family: ModelFamily) -> GroupedQuery:
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


def _layers(config: Fields, family: ModelFamily, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """The groups of layers with this attention."""
    if family.layers is not None:
        return family.layers(config, attention)
    bias = family.mlp_bias and config.flag("mlp_bias", absent=False)
    mlp = DenseMlp(config.whole("intermediate_size"), mlp_bias=bias)
    return (LayerGroup(config.whole("num_hidden_layers"), attention, mlp),)


def _architecture(config: Fields) -> str:
    """The first supported name in ``architectures``; where there is none, that of the text part, or
    that of the ``model_type`` of a file without ``architectures``."""
    parts = list(_parts(config))
    listed = _classes(config)
    by_type = next((_by_type(part) for part in reversed(parts) if part.has("model_type")), None)
    inner = [name for part in parts[1:] for name in _classes(part) or []]
    for name in (*(listed or ()), *inner):
        if isinstance(name, str) and (name in FAMILIES or name in LATENT):
            return name
    if by_type is not None and (listed is None or len(parts) > 1):
        return by_type
    if listed is None:
        _refuse_kinds(parts, config.error)
        raise config.error("architectures", "is missing, and `model_type` decides no class")
    if by_type is not None and all(str(name).endswith(PICTURES) for name in listed):
        return by_type
    _refuse_kinds(parts, config.error)
    found = shorten(printable(", ".join(map(str, listed))))
    hint = "" if by_type is None else (
        f"; if its layers are those of its model_type, {by_type} in `architectures` reads it"
    )  # fmt: skip
    raise config.error(
        "architectures",
        f"found {found}, which is not supported{hint}; supported are the text models "
        f"{', '.join((*FAMILIES, *LATENT))}, and any other that is made of their kinds of layers "
        "by a model file of your own (sim/catalog/README.md)",
    )


def _classes(config: Fields) -> list[object] | None:
    """The names in ``architectures``; None without."""
    listed = config.value("architectures") if config.has("architectures") else None
    if listed is not None and (not isinstance(listed, list) or not listed):
        raise config.error("architectures", "expected a list with the model's class, such as "
                           "[LlamaForCausalLM]")  # fmt: skip
    return listed


def _refuse_kinds(parts: list[Fields], error: Callable[[str, str], UsageError]) -> None:
    """UsageError that names the kind of layer that nothing models, for a ``model_type`` that is
    known to have one."""
    for part in parts:
        kind = part.value("model_type") if part.has("model_type") else None
        for key, name in (
            ("model_type", kind),
            *(("architectures", n) for n in _classes(part) or ()),
        ):
            if isinstance(name, str) and name in UNKNOWN:
                raise error(
                    key,
                    f"found {name}, which has {UNKNOWN[name]}: not modelled; it would need a "
                    "record in sim/specs and its time in sim/cost/parts (sim/cost/README.md)",
                )


def _by_type(config: Fields) -> str | None:
    """The class of the model by its ``model_type``."""
    kind = config.value("model_type") if config.has("model_type") else None
    return MODEL_TYPES.get(kind) if isinstance(kind, str) else None


def _head_dim(config: Fields, family: ModelFamily, heads: int) -> int:
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


def _sliding_window(config: Fields, family: ModelFamily) -> int | None:
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
