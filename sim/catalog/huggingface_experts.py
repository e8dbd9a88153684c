"""Reads the layers of models with experts from a Hugging Face ``config.json``.

One function for each family, named after it: from the file and the attention that it describes to
groups of equal layers. Heads that predict further tokens (MTP) and encoders of pictures are left
out: engines do not load the first unless asked to, and requests here are text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Attention, LayerGroup, Mlp

MOST_LAYERS = 10_000
"""No model has nearly as many."""


def mixtral(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer, as wide as the file's ``intermediate_size``."""
    mlp = gated(config, "num_local_experts", 8, 2, config.whole("intermediate_size"))
    return (LayerGroup(config.whole("num_hidden_layers"), attention, mlp),)


def minimax(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer, with a bias of the router, which engines multiply in fp32; weights of
    one norm for all queries of a layer are counted as those of one for each head size. Refuses
    layers of linear attention."""
    layers = number_of_layers(config)
    if any(kind != 1 for kind in listed(config, "attn_type_list", [1] * layers)):
        raise config.error(
            "attn_type_list", "a layer is of another type than 1 (softmax attention); such layers "
            "are not supported"
        )  # fmt: skip
    key = "shared_intermediate_size"
    shared = config.count(key) if given(config, key) else 0
    mlp = replace(
        gated(config, "num_local_experts", 256, 8, config.whole("intermediate_size")),
        router_bias=True,
        router_fp32=True,
        shared_intermediate_size=shared,
    )
    return (LayerGroup(layers, replace(attention, norm_across_heads=True), mlp),)


def qwen3(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in each ``decoder_sparse_step``-th layer that ``mlp_only_layers`` does not name."""
    width = config.optional_whole("moe_intermediate_size", 768) or 768
    return _groups(attention, qwen_mlps(config, gated(config, "num_experts", 128, 8, width)))


def qwen_mlps(config: Fields, mlp: MixtureOfExperts) -> list[Mlp]:
    """``mlp`` in the layers that ``qwen3`` says, dense ones in the others."""
    step = config.optional_whole("decoder_sparse_step", 1) or 1
    dense = set(listed(config, "mlp_only_layers", []))
    sparse = [at not in dense and (at + 1) % step == 0 for at in range(number_of_layers(config))]
    return _mlps(config, sparse, mlp, "intermediate_size")


def glm4(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers first, then experts with shared ones; no bias on the output projection."""
    width = config.optional_whole("moe_intermediate_size", 1408) or 1408
    shared = config.count("n_shared_experts") if given(config, "n_shared_experts") else 1
    first = config.count("first_k_dense_replace") if given(config, "first_k_dense_replace") else 1
    mlp = replace(
        gated(config, "n_routed_experts", 128, 8, width),
        router_bias=True,
        shared_intermediate_size=shared * width,
    )
    norm = config.flag("use_qk_norm", absent=False)
    attention = replace(attention, qk_norm=norm, output_bias=False)
    sparse = [at >= first for at in range(number_of_layers(config))]
    return _groups(attention, _mlps(config, sparse, mlp, "intermediate_size"))


def gpt_oss(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts with biases in every layer; a window in every other layer, or as ``layer_types``
    says. Each head has a number of its own in the softmax, the attention sink."""
    mlp = replace(
        gated(config, "num_local_experts", 128, 4, config.whole("intermediate_size")),
        mlp_bias=True,
        router_bias=True,
    )
    layers = number_of_layers(config)
    kinds = ("sliding_attention", "full_attention")
    types = listed(config, "layer_types", [kinds[at % 2] for at in range(layers)])
    require_kinds(config, "layer_types", types, kinds, layers)
    attention = replace(attention, sinks=True)
    whole = replace(attention, sliding_window=None)
    attentions = [attention if kind == kinds[0] else whole for kind in types]
    return counted(zip(attentions, [mlp] * layers, strict=True))


def llama4(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts with a shared one in each ``interleave_moe_layer_step``-th layer; three layers of
    four attend within chunks of ``attention_chunk_size``."""
    width, layers = config.whole("intermediate_size"), number_of_layers(config)
    mlp = replace(gated(config, "num_local_experts", 16, 1, width), shared_intermediate_size=width)
    step = config.optional_whole("interleave_moe_layer_step", 1) or 1
    sparse_layers = set(listed(config, "moe_layers", list(range(step - 1, layers, step))))
    sparse = [at in sparse_layers for at in range(layers)]
    every = config.optional_whole("no_rope_layer_interval", 4) or 4
    turned = [int((at + 1) % every != 0) for at in range(layers)]
    turned = listed(config, "no_rope_layers", turned) or turned
    require_kinds(config, "no_rope_layers", turned, (0, 1), layers)
    local = replace(attention, attention_chunk=config.optional_whole("attention_chunk_size", 8192))
    attentions = [local if chunked else attention for chunked in turned]
    mlps = _mlps(config, sparse, mlp, "intermediate_size_mlp")
    return counted(zip(attentions, mlps, strict=True))


def gated(
    config: Fields, number: str, experts: int, per_token: int, width: int
) -> MixtureOfExperts:
    """Gated experts, that many by the key ``number``; ``experts`` and ``per_token`` where the file
    does not say."""
    found = config.optional_whole(number, experts) or experts
    chosen = config.optional_whole("num_experts_per_tok", per_token) or per_token
    if chosen > found:
        raise config.error(
            "num_experts_per_tok",
            f"{chosen} is more than the {found} experts of {number}",
        )
    return MixtureOfExperts(found, chosen, width)


def _mlps(config: Fields, sparse: list[bool], mlp: Mlp, width: str) -> list[Mlp]:
    """``mlp`` in the layers that are ``sparse``, in the others a dense one as wide as the key
    ``width`` says."""
    if all(sparse):
        return [mlp] * len(sparse)
    dense = DenseMlp(config.whole(width))
    return [mlp if expert else dense for expert in sparse]


def _groups(attention: Attention, mlps: list[Mlp]) -> tuple[LayerGroup, ...]:
    return counted((attention, mlp) for mlp in mlps)


def counted(layers: Iterable[tuple[Attention, Mlp]]) -> tuple[LayerGroup, ...]:
    """Equal layers as one group, wherever in the model they are; the first layer's comes first."""
    places: dict[tuple[Attention, Mlp], list[int]] = {}
    for place, layer in enumerate(layers):
        places.setdefault(layer, []).append(place)
    return tuple(LayerGroup(len(at), *layer, places=tuple(at)) for layer, at in places.items())


def number_of_layers(config: Fields) -> int:
    """Layers of the model; UsageError for more than any model has."""
    layers = config.whole("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise config.error("num_hidden_layers", f"expected at most {MOST_LAYERS:,}, found {layers}")
    return layers


def given(config: Fields, key: str) -> bool:
    """Whether ``key`` is there and not null."""
    return config.has(key) and config.value(key) is not None


def listed(config: Fields, key: str, absent: list[Any]) -> list[Any]:
    """The list under ``key``; ``absent`` where it is missing or null."""
    if not given(config, key):
        return absent
    value = config.value(key)
    if not isinstance(value, list):
        raise config.error(key, "expected a list with an entry for each layer, or of layers")
    return value


def kinds(config: Fields, key: str, known: tuple[str, ...], absent: list[str]) -> list[str]:
    """One of the ``known`` kinds for each layer, by the list under ``key``; ``absent`` without
    it."""
    found = listed(config, key, absent)
    require_kinds(config, key, found, known, len(absent))
    return found


def require_kinds(
    config: Fields, key: str, found: list[Any], known: tuple[object, ...], layers: int
) -> None:
    """UsageError unless the list has a known entry for each layer."""
    if len(found) != layers or any(kind not in known for kind in found):
        names = " or ".join(map(str, known))
        raise config.error(key, f"expected {names} for each of the {layers} layers")
