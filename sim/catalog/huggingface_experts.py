"""Reads the layers of models with experts from a Hugging Face ``config.json``.

One function for each family, named after it: from the file and the attention that it describes to
groups of equal layers. Heads that predict further tokens (MTP) and encoders of pictures are left
out: engines do not load the first unless asked to, and requests here are text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.sparse_grouped import SparseGrouped

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


def minimax_m3(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers and layers with experts and shared ones, by ``moe_layer_freq``; attention to
    chosen blocks where ``sparse_attention_freq`` says 1."""
    layers = number_of_layers(config)
    first = config.count("first_k_dense_replace") if given(config, "first_k_dense_replace") else 3
    usual = [int(at >= first) for at in range(layers)]
    sparse = listed(config, "moe_layer_freq", usual)
    require_kinds(config, "moe_layer_freq", sparse, (0, 1), layers)
    width = config.whole("intermediate_size")
    shared = config.count("n_shared_experts") if given(config, "n_shared_experts") else 0
    key = "shared_intermediate_size"
    each = config.count(key) if given(config, key) else width
    mlp = replace(
        gated(config, "num_local_experts", 128, 4, width),
        router_bias=config.flag("use_routing_bias", absent=True),
        router_fp32=True,
        shared_intermediate_size=shared * each,
    )
    mlps = _mlps(config, [bool(one) for one in sparse], mlp, "dense_intermediate_size")
    chosen = [0] * layers
    attentions = [attention, attention]
    if given(config, "sparse_attention_config"):
        own = config.inner("sparse_attention_config")
        if own.flag("use_sparse_attention", absent=True):
            chosen = listed(own, "sparse_attention_freq", usual)
            require_kinds(own, "sparse_attention_freq", chosen, (0, 1), layers)
            blocks = own.optional_whole("sparse_topk_blocks", 16) or 16
            attentions[1] = SparseGrouped(
                **asdict(attention),
                index_n_heads=own.optional_whole("sparse_num_index_heads", 4) or 4,
                index_head_dim=own.optional_whole("sparse_index_dim", 128) or 128,
                index_topk=blocks * (own.optional_whole("sparse_block_size", 128) or 128),
            )
    return counted(zip([attentions[one] for one in chosen], mlps, strict=True))


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


def dots(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of dots.llm1: those of ``glm4`` with norms of queries and keys."""
    mlps = after_dense(config, "n_routed_experts", "n_shared_experts", 0)
    return _groups(replace(attention, qk_norm=True), mlps)


def bailing(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Ling and Ring 2.0 and of Hy3: dense ones first, then experts with shared ones."""
    norm = config.flag("use_qk_norm", absent=True)
    bias = config.flag("use_qkv_bias", absent=False)
    mlps = after_dense(config, "num_experts", "num_shared_experts", 0)
    return _groups(replace(attention, qk_norm=norm, attention_bias=bias), mlps)


def solar_open(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Solar Open: experts with shared ones, after dense layers if the file has any."""
    norm = config.flag("use_qk_norm", absent=False)
    mlps = after_dense(config, "n_routed_experts", "n_shared_experts", 0)
    return _groups(replace(attention, qk_norm=norm, output_bias=False), mlps)


def after_dense(config: Fields, number: str, shared: str, first: int) -> list[Mlp]:
    """``first_k_dense_replace`` dense layers, ``first`` where the file does not say, then experts,
    that many by the key ``number``, with as many ``shared`` ones and a bias of the router."""
    width = config.whole("moe_intermediate_size")
    mlp = replace(
        gated(config, number, 128, 8, width),
        router_bias=True,
        shared_intermediate_size=width * (config.count(shared) if given(config, shared) else 0),
    )
    key = "first_k_dense_replace"
    dense = config.count(key) if given(config, key) else first
    sparse = [at >= dense for at in range(number_of_layers(config))]
    return _mlps(config, sparse, mlp, "intermediate_size")


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


def qwen2(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Qwen2-MoE: those of ``qwen3`` with a shared expert behind a gate."""
    width = config.optional_whole("moe_intermediate_size", 1408) or 1408
    shared = config.optional_whole("shared_expert_intermediate_size", 5632) or 5632
    mlp = replace(
        gated(config, "num_experts", 60, 4, width), shared_intermediate_size=shared,
        shared_gate=True,
    )  # fmt: skip
    return _groups(attention, qwen_mlps(config, mlp))


def phi(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer, as wide as the file's ``intermediate_size``."""
    mlp = gated(config, "num_local_experts", 16, 2, config.whole("intermediate_size"))
    return (LayerGroup(number_of_layers(config), attention, mlp),)


def dbrx(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer, as wide as ``ffn_config.ffn_hidden_size``."""
    mlp = gated(config, "num_local_experts", 4, 1, config.whole("intermediate_size"))
    return (LayerGroup(number_of_layers(config), attention, mlp),)


def olmoe(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer; norms of queries and keys over all heads."""
    mlp = gated(config, "num_experts", 64, 8, config.whole("intermediate_size"))
    attention = replace(attention, norm_across_heads=True)
    return (LayerGroup(number_of_layers(config), attention, mlp),)


def granite(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts in every layer, and a shared one if the file gives its width."""
    return (LayerGroup(number_of_layers(config), attention, granite_mlp(config)),)


def granite_mlp(config: Fields) -> Mlp:
    """Experts and a shared one; the shared one alone where there are no experts."""
    key = "shared_intermediate_size"
    shared = config.count(key) if given(config, key) else 0
    if given(config, "num_local_experts") and config.count("num_local_experts"):
        mlp = gated(config, "num_local_experts", 8, 2, config.whole("intermediate_size"))
        return replace(mlp, shared_intermediate_size=shared)
    return DenseMlp(shared or config.whole("intermediate_size"))


def ernie(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts with a bias of the router in each ``moe_layer_interval``-th layer from
    ``moe_layer_start_index`` to ``moe_layer_end_index``."""
    refuse(config, "use_bias", "biases of experts and attention")
    layers = number_of_layers(config)
    width = config.optional_whole("moe_intermediate_size", 1536) or 1536
    key = "moe_num_shared_experts"
    shared = config.count(key) if given(config, key) else (0 if config.has(key) else 2)
    mlp = replace(
        gated(config, "moe_num_experts", 64, 6, width),
        router_bias=True,
        shared_intermediate_size=shared * width,
    )
    start = config.count("moe_layer_start_index") if config.has("moe_layer_start_index") else 1
    key = "moe_layer_end_index"
    to_end = not given(config, key) or config.value(key) == -1
    last = layers - 1 if to_end else config.count(key)
    every = config.optional_whole("moe_layer_interval", 1) or 1
    sparse = [start <= at <= last and (at + 1) % every == 0 for at in range(layers)]
    return _groups(attention, _mlps(config, sparse, mlp, "intermediate_size"))


def hunyuan(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Experts with shared ones, whose numbers are those of all layers or stand in lists."""
    refuse(config, "use_cla", "layers that share keys and values")
    layers = number_of_layers(config)

    def each(key: str, absent: int) -> list[int]:
        value: Any = config.value(key) if given(config, key) else absent
        found: list[Any] = value if isinstance(value, list) else [value] * layers
        if len(found) != layers or any(type(one) is not int or one < 0 for one in found):
            raise config.error(key, f"expected a whole number, or one for each of {layers} layers")
        return found

    width = config.whole("intermediate_size")
    columns = (
        each("num_experts", 1), each("moe_topk", 1),
        each("moe_intermediate_size", width), each("num_shared_expert", 1),
    )  # fmt: skip
    mlps: list[Mlp] = [
        MixtureOfExperts(number, chosen, wide, shared_intermediate_size=shared * width)
        if number > 1
        else DenseMlp(width)
        for number, chosen, wide, shared in zip(*columns, strict=True)
    ]
    norm = config.flag("use_qk_norm", absent=True)
    return _groups(replace(attention, qk_norm=norm), mlps)


def mimo_v2(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """A window where ``hybrid_layer_pattern`` says 1, with heads of its own number and width;
    experts where ``moe_layer_freq`` says 1."""
    layers = number_of_layers(config)
    whole = replace(
        attention, sliding_window=None, v_head_dim=config.optional_whole("v_head_dim", None),
        sinks=config.flag("add_full_attention_sink_bias", absent=False),
    )  # fmt: skip
    near = replace(
        whole,
        num_heads=config.optional_whole("swa_num_attention_heads", None) or whole.num_heads,
        num_kv_heads=config.optional_whole("swa_num_key_value_heads", None) or whole.num_kv_heads,
        head_dim=config.optional_whole("swa_head_dim", None) or whole.head_dim,
        v_head_dim=config.optional_whole("swa_v_head_dim", whole.v_head_dim),
        sliding_window=attention.sliding_window,
        sinks=config.flag("add_swa_attention_sink_bias", absent=False),
    )
    pattern = listed(config, "hybrid_layer_pattern", [0] * layers)
    require_kinds(config, "hybrid_layer_pattern", pattern, (0, 1), layers)
    sparse = listed(config, "moe_layer_freq", [1] * layers)
    require_kinds(config, "moe_layer_freq", sparse, (0, 1), layers)
    width = config.whole("moe_intermediate_size")
    shared = config.count("n_shared_experts") if given(config, "n_shared_experts") else 0
    mlp = replace(
        gated(config, "n_routed_experts", 256, 8, width),
        router_bias=True,
        shared_intermediate_size=shared * width,
    )
    mlps = _mlps(config, [bool(each) for each in sparse], mlp, "intermediate_size")
    kinds_of = [near if each else whole for each in pattern]
    return counted(zip(kinds_of, mlps, strict=True))


def step_3(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """A window in the layers that ``layer_types`` says, with heads of its own number; experts with
    a shared one where ``moe_layers_enum`` says, or behind the first dense layers. The gate of each
    head is left out."""
    layers = number_of_layers(config)
    kinds = ("sliding_attention", "full_attention")
    types = listed(config, "layer_types", [kinds[1]] * layers)[:layers]
    require_kinds(config, "layer_types", types, kinds, layers)
    near = attention
    if given(config, "attention_other_setting"):
        other = config.inner("attention_other_setting")
        near = replace(
            attention,
            num_heads=other.whole("num_attention_heads"),
            num_kv_heads=other.optional_whole("num_attention_groups", None)
            or attention.num_kv_heads,
            head_dim=other.optional_whole("head_dim", None) or attention.head_dim,
        )
    whole = replace(attention, sliding_window=None)
    first = config.count("first_k_dense_replace") if given(config, "first_k_dense_replace") else 1
    sparse_layers = set(range(first, layers))
    if given(config, "moe_layers_enum"):
        written: Any = config.value("moe_layers_enum")
        words = written.split(",") if isinstance(written, str) else list(written)
        if not all(str(word).strip().isdecimal() for word in words):
            raise config.error("moe_layers_enum", "expected numbers of layers")
        sparse_layers = {int(word) for word in words}
    key = "share_expert_dim" if config.has("share_expert_dim") else "share_expert_dims"
    mlp = replace(
        gated(config, "num_experts", 288, 8, config.whole("moe_intermediate_size")),
        router_bias=config.flag("use_moe_router_bias", absent=False),
        shared_intermediate_size=config.count(key) if given(config, key) else 0,
    )
    sparse = [at in sparse_layers for at in range(layers)]
    mlps = _mlps(config, sparse, mlp, "intermediate_size")
    return counted(zip([near if kind == kinds[0] else whole for kind in types], mlps, strict=True))


def refuse(config: Fields, key: str, kind: str) -> None:
    """UsageError for a file whose ``key`` asks for a ``kind`` of layer that nothing models."""
    if given(config, key) and config.value(key) not in (False, 0):
        raise config.error(key, f"{kind} are not supported")


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
    names = " or ".join(map(str, known))
    if len(found) != layers:
        given = f"got {len(found)}"
    else:
        unknown = [f"{kind!r} in layer {at}" for at, kind in enumerate(found) if kind not in known]
        if not unknown:
            return
        given = f"got {unknown[0]}"
    raise config.error(key, f"expected {names} for each of the {layers} layers, {given}")
