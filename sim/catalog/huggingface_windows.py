"""Reads the layers of models that alternate windows with full attention from a ``config.json``.

One function for each family, named after it, as in ``huggingface_experts``. Encoders of pictures
and of sound are left out: requests here are text.
"""

from __future__ import annotations

from dataclasses import replace

from sim.catalog import huggingface_experts as experts
from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.no_attention import NoAttention

WINDOW_LAYERS = 28
"""``max_window_layers`` of the Qwen classes where the file does not say."""

KINDS = ("sliding_attention", "full_attention")

DECI_STEP = 256
"""The width of an MLP of DeciLM is a multiple of it."""


def qwen(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers; where there is a window, the first ``max_window_layers`` see everything."""
    mlp = DenseMlp(config.whole("intermediate_size"))
    layers = experts.number_of_layers(config)
    if attention.sliding_window is None:
        return (LayerGroup(layers, attention, mlp),)
    full = config.optional_whole("max_window_layers", WINDOW_LAYERS) or 0
    return _alternating(config, [KINDS[at < full] for at in range(layers)], attention, mlp)


def gemma2(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """A window in every other layer, the first one included; norms after attention and MLP, and
    scores squashed before the softmax."""
    key = "attn_logit_softcapping"
    attention = replace(attention, softcap=experts.given(config, key) or not config.has(key))
    usual = [KINDS[at % 2] for at in range(experts.number_of_layers(config))]
    mlp = DenseMlp(config.whole("intermediate_size"))
    return _normed(_alternating(config, usual, attention, mlp))


def gemma3(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Every sixth layer sees everything, or as ``sliding_window_pattern`` or ``layer_types``
    says."""
    mlp = DenseMlp(config.whole("intermediate_size"))
    return _normed(_alternating(config, _every_sixth(config), attention, mlp))


def gemma4(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Gemma 4: those of Gemma 3, but layers that see everything have heads of their own
    number and width, and their keys may be their values. Experts stand next to an MLP that every
    token goes through."""
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if experts.given(config, key) and config.count(key):
            raise config.error(key, "embeddings for each layer and shared KV are not supported")
    heads = config.optional_whole("num_global_key_value_heads", None) or attention.num_kv_heads
    whole = replace(
        attention,
        sliding_window=None,
        num_kv_heads=heads,
        head_dim=config.optional_whole("global_head_dim", 512) or 512,
        shared_kv=config.flag("attention_k_eq_v", absent=False),
    )
    width = config.whole("intermediate_size")
    mlp: Mlp = DenseMlp(width)
    if config.flag("enable_moe_block", absent=False):
        mlp = MixtureOfExperts(
            config.whole("num_experts"),
            config.whole("top_k_experts"),
            config.whole("moe_intermediate_size"),
            shared_intermediate_size=width,
        )
    return _normed(_alternating(config, _every_sixth(config), attention, mlp, whole))


def olmo(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of OLMo 2 and 3: norms of queries and keys over all heads, and norms behind attention
    and MLP in the place of those before."""
    return every_fourth(config, replace(attention, norm_across_heads=True))


def every_fourth(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers of which every fourth sees everything, or those that ``layer_types`` or
    ``sliding_window_pattern`` says: a number, or letters such as LLLG, which repeat."""
    mlp = DenseMlp(config.whole("intermediate_size"))
    return _alternating(config, _by_pattern(config), attention, mlp)


def _by_pattern(config: Fields) -> list[str]:
    """The kinds of layers by ``sliding_window_pattern``."""
    layers, key = experts.number_of_layers(config), "sliding_window_pattern"
    given = config.value(key) if config.has(key) else None
    pattern = given if isinstance(given, str) and given else None
    if pattern is None:
        pattern = "L" * ((config.optional_whole(key, 4) or 4) - 1) + "G"
    if set(pattern) - {"L", "G"}:
        raise config.error(key, f"expected a number, or L and G, found {pattern}")
    usual = [KINDS[pattern[at % len(pattern)] == "G"] for at in range(layers)]
    if isinstance(given, str):
        usual[-1] = KINDS[1]
    return usual


def cohere(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Attention and MLP next to each other, behind one norm; a window in three layers of four
    where the class has one."""
    attention = replace(attention, qk_norm=config.flag("use_qk_norm", absent=False))
    groups = every_fourth(config, attention)
    return tuple(replace(group, parallel_mlp=True) for group in groups)


def glm(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers without a bias on the output projection."""
    mlp = DenseMlp(config.whole("intermediate_size"))
    layers = experts.number_of_layers(config)
    return (LayerGroup(layers, replace(attention, output_bias=False), mlp),)


def glm4(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of ``glm`` with norms after attention and MLP, too."""
    return _normed(glm(config, attention))


def seed_oss(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers with a key of its own for the bias of the output projection."""
    bias = config.flag("attention_out_bias", absent=False)
    mlp = DenseMlp(config.whole("intermediate_size"), config.flag("mlp_bias", absent=False))
    layers = experts.number_of_layers(config)
    return (LayerGroup(layers, replace(attention, output_bias=bias), mlp),)


def ernie(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers with biases everywhere if ``use_bias`` says so."""
    bias = config.flag("use_bias", absent=False)
    mlp = DenseMlp(config.whole("intermediate_size"), bias)
    return (LayerGroup(experts.number_of_layers(config), _biased(attention, bias), mlp),)


def without_gate(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers of two matrices, up and down."""
    width = config.whole("intermediate_size")
    return _two_matrices(config, attention, width, config.flag("mlp_bias", absent=False))


def starcoder2(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers of two matrices, with biases everywhere unless ``use_bias`` says otherwise."""
    bias = config.flag("use_bias", absent=True)
    return _two_matrices(config, _biased(attention, bias), config.whole("intermediate_size"), bias)


def neox(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of GPT-NeoX and Pythia: two matrices with biases, next to attention unless
    ``use_parallel_residual`` says otherwise."""
    beside = config.flag("use_parallel_residual", absent=True)
    return _two_matrices(config, attention, config.whole("intermediate_size"), True, beside=beside)


def falcon(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Falcon: two matrices next to attention; one KV head where ``multi_query`` says so,
    and ``num_kv_heads`` in the ``new_decoder_architecture``."""
    new = config.flag("new_decoder_architecture", absent=False)
    single = config.flag("multi_query", absent=True)
    heads = attention.num_heads
    kv = config.optional_whole("num_kv_heads", heads) if new else 1 if single else heads
    bias = config.flag("bias", absent=False)
    return _two_matrices(
        *(config, _biased(replace(attention, num_kv_heads=kv or heads), bias)),
        *(config.optional_whole("ffn_hidden_size", None) or 4 * config.whole("hidden_size"), bias),
        beside=new or config.flag("parallel_attn", absent=True),
    )


def bloom(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of BLOOM: two matrices four times as wide as the model, with biases everywhere."""
    return _two_matrices(config, _biased(attention, True), 4 * config.whole("hidden_size"), True)


def mpt(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of MPT: two matrices ``expansion_ratio`` times as wide as the model, with biases
    everywhere unless ``no_bias`` says otherwise."""
    bias = not config.flag("no_bias", absent=True)
    width = (config.optional_whole("expansion_ratio", 4) or 4) * config.whole("hidden_size")
    return _two_matrices(config, _biased(attention, bias), width, bias)


def stablelm(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of ``glm``, next to attention where ``use_parallel_residual`` says so."""
    attention = replace(attention, qk_norm=config.flag("qk_layernorm", absent=False))
    beside = config.flag("use_parallel_residual", absent=False)
    return tuple(replace(group, parallel_mlp=beside) for group in glm(config, attention))


def _two_matrices(
    config: Fields, attention: GroupedQuery, width: int, bias: bool, *, beside: bool = False
) -> tuple[LayerGroup, ...]:
    """Equal layers with an MLP of up and down, ``beside`` attention or behind it."""
    mlp = DenseMlp(width, bias, mlp_matrices=2)
    layers = experts.number_of_layers(config)
    return (LayerGroup(layers, attention, mlp, parallel_mlp=beside),)


def _biased(attention: GroupedQuery, bias: bool) -> GroupedQuery:
    """The attention with biases on all four projections, or on none."""
    return replace(attention, attention_bias=bias, output_bias=bias)


def exaone_moe(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Windows as in ``every_fourth``; dense layers first, then experts with shared ones."""
    types = experts.kinds(config, "layer_types", KINDS, _by_pattern(config))
    whole = replace(attention, sliding_window=None)
    attentions = [attention if kind == KINDS[0] else whole for kind in types]
    mlps = experts.after_dense(config, "num_experts", "num_shared_experts", 1)
    return experts.counted(zip(attentions, mlps, strict=True))


def afmoe(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of ``exaone_moe`` with gates on attention's results, and norms after attention and
    MLP (Arcee Trinity)."""
    return _normed(exaone_moe(config, replace(attention, output_gate=True)))


def hunyuan(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Dense layers; norms of queries and keys unless ``use_qk_norm`` says otherwise."""
    experts.refuse(config, "use_cla", "layers that share keys and values")
    attention = replace(attention, qk_norm=config.flag("use_qk_norm", absent=True))
    mlp = DenseMlp(config.whole("intermediate_size"))
    return (LayerGroup(experts.number_of_layers(config), attention, mlp),)


def deci(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers one by one by ``block_configs``: some have no attention or no MLP, the others MLPs and
    KV heads of their own number."""
    blocks = config.mappings("block_configs")
    if len(blocks) != experts.number_of_layers(config):
        raise config.error("block_configs", f"has {len(blocks)} layers, not num_hidden_layers")
    found = [(_deci_attention(block, attention), _deci_mlp(config, block)) for block in blocks]
    return tuple(
        replace(group, parallel_mlp=group.mlp == NoMlp() or group.attention == NoAttention())
        for group in experts.counted(found)
    )


def _deci_attention(block: Fields, attention: GroupedQuery) -> Attention:
    """The attention of one layer of ``deci``."""
    own = block.inner("attention")
    experts.refuse(own, "replace_with_linear", "one product in the place of attention")
    experts.refuse(own, "num_sink_tokens", "attention to the first tokens and a window")
    if own.flag("no_op", absent=False):
        return NoAttention()
    shared = own.whole("n_heads_in_group")
    if attention.num_heads % shared:
        raise own.error("n_heads_in_group", f"does not divide {attention.num_heads} heads")
    window = own.optional_whole("window_length", None)
    return replace(attention, num_kv_heads=attention.num_heads // shared, sliding_window=window)


def _deci_mlp(config: Fields, block: Fields) -> Mlp:
    """The MLP of one layer of ``deci``: two thirds of a multiple of twice the hidden size, rounded
    up to whole ``DECI_STEP`` (modeling_decilm.py of the checkpoints)."""
    own = block.inner("ffn")
    experts.refuse(own, "replace_with_linear", "one product in the place of an MLP")
    if own.flag("no_op", absent=False):
        return NoMlp()
    width = int(2 * own.number("ffn_mult") * config.whole("hidden_size") / 3)
    return DenseMlp(-(-width // DECI_STEP) * DECI_STEP)


def _every_sixth(config: Fields) -> list[str]:
    """The kinds of layers of Gemma 3 and 4."""
    pattern = config.optional_whole("sliding_window_pattern", 6) or 6
    return [KINDS[(at + 1) % pattern == 0] for at in range(experts.number_of_layers(config))]


def _alternating(
    config: Fields,
    usual: list[str],
    attention: GroupedQuery,
    mlp: Mlp,
    whole: GroupedQuery | None = None,
) -> tuple[LayerGroup, ...]:
    """Layers of the kinds in ``layer_types``, or the ``usual`` ones; ``whole`` is the attention of
    those that see everything, where it differs by more than the window."""
    types = experts.kinds(config, "layer_types", KINDS, usual)
    full = replace(attention, sliding_window=None) if whole is None else whole
    return experts.counted((attention if kind == KINDS[0] else full, mlp) for kind in types)


def _normed(groups: tuple[LayerGroup, ...]) -> tuple[LayerGroup, ...]:
    """The groups with norms after attention and MLP."""
    return tuple(replace(group, post_norms=True) for group in groups)
