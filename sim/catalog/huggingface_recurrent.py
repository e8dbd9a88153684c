"""Reads the layers of models with recurrent layers from a Hugging Face ``config.json``.

Qwen3-Next and Qwen3.5 (gated delta rule, three layers of four), Nemotron-H (Mamba-2), and MiniMax
Text-01 and M1 (lightning attention, whose states are taken to be in 32 bits). Heads that predict
further tokens and encoders of pictures are left out, as in ``huggingface_experts``. States are kept
in the format that the file names for them; where it names none, in that of the model (16 bits), as
vLLM does by default (``mamba_ssm_cache_dtype: auto``).
"""

from __future__ import annotations

from dataclasses import replace

from sim.catalog import huggingface_experts as experts
from sim.catalog import huggingface_latent as latent
from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2
from sim.specs.short_convolution import ShortConvolution

TYPES = ("linear_attention", "full_attention")

LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Letters of a pattern by the words of newer files (transformers, NemotronHConfig)."""

STATES = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16"}
"""Formats of a state by torch's names; both of 16 bits are one here."""


def qwen3_next(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Attention with an output gate in each ``full_attention_interval``-th layer, or as
    ``layer_types`` says; experts with a gated shared one, in the layers that Qwen3-MoE has them."""
    gated = replace(attention, output_gate=config.flag("attn_output_gate", absent=True))
    return _alternating(config, gated, _qwen_mlps(config))


def qwen3_5(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Layers of Qwen3.5 with a dense MLP in each."""
    gated = replace(attention, output_gate=config.flag("attn_output_gate", absent=True))
    mlp = DenseMlp(config.whole("intermediate_size"))
    return _alternating(config, gated, [mlp] * experts.number_of_layers(config))


def minimax_text(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Attention where ``attn_type_list`` says 1, lightning attention where it says 0; experts in
    every layer."""
    layers = experts.number_of_layers(config)
    kinds = experts.listed(config, "attn_type_list", [1] * layers)
    experts.require_kinds(config, "attn_type_list", kinds, (0, 1), layers)
    lightning = Lightning(attention.num_heads, attention.head_dim)
    key = "shared_intermediate_size"
    mlp = replace(
        experts.gated(config, "num_local_experts", 8, 2, config.whole("intermediate_size")),
        shared_intermediate_size=config.count(key) if experts.given(config, key) else 0,
    )
    found = [attention if kind else lightning for kind in kinds]
    return experts.counted(zip(found, [mlp] * layers, strict=True))


def nemotron_h(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Mamba-2 (M), attention (*), a dense MLP (-) or experts (E), one a layer of the file, by
    ``hybrid_override_pattern`` or the same in words, ``layers_block_type``. An MLP joins the layer
    before it: here that is one layer."""
    key, pattern = _pattern(config)
    if config.has("num_hidden_layers") and len(pattern) != experts.number_of_layers(config):
        raise config.error(
            key,
            f"has {len(pattern)} layers, not the {config.whole('num_hidden_layers')} of "
            "num_hidden_layers",
        )
    mamba = Mamba2(
        mamba_heads=config.whole("mamba_num_heads"),
        mamba_head_dim=config.optional_whole("mamba_head_dim", 64) or 64,
        state_size=config.optional_whole("ssm_state_size", 128) or 128,
        mamba_groups=config.optional_whole("n_groups", 8) or 8,
        conv_kernel=config.optional_whole("conv_kernel", 4) or 4,
        conv_bias=config.flag("use_conv_bias", absent=True),
        state_precision=state_format(config, "mamba_ssm_cache_dtype"),
    )
    mlps: dict[str, Mlp] = {}
    if "E" in pattern:
        mlps["E"] = _nemotron_experts(config)
    if "-" in pattern:
        mlps["-"] = DenseMlp(config.whole("intermediate_size"), mlp_matrices=2)
    try:
        return of_pattern(pattern, mamba, attention, mlps)
    except ValueError as error:
        raise config.error(key, str(error)) from None


def granite_hybrid(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Mamba-2 or attention in each layer, as ``layer_types`` (``attn_layer_indices`` of Bamba)
    says; behind it experts with a shared one, or the shared one alone."""
    layers = experts.number_of_layers(config)
    usual = ["mamba"] * layers
    for at in experts.listed(config, "attn_layer_indices", []):
        if not isinstance(at, int) or not 0 <= at < layers:
            raise config.error("attn_layer_indices", f"expected layers below {layers}")
        usual[at] = "attention"
    key = "layers_block_type" if config.has("layers_block_type") else "layer_types"
    types = experts.kinds(config, key, ("mamba", "attention"), usual)
    mamba, mlp = _mamba(config, 128, 1), experts.granite_mlp(config)
    return experts.counted((mamba if kind == "mamba" else attention, mlp) for kind in types)


def falcon_h1(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Mamba-2 and attention next to each other in each layer: here a layer of Mamba-2 alone, and
    one of attention with the MLP, so that there is a norm too many."""
    layers = experts.number_of_layers(config)
    mlp = DenseMlp(config.whole("intermediate_size"))
    mamba = _mamba(config, 128, 1)
    places = range(2 * layers)
    return (
        LayerGroup(layers, mamba, NoMlp(), parallel_mlp=True, places=tuple(places[::2])),
        LayerGroup(layers, attention, mlp, places=tuple(places[1::2])),
    )


def _mamba(config: Fields, heads: int, groups: int) -> Mamba2:
    """Mamba-2 by the keys that Bamba, Granite 4 and Falcon-H1 have for it."""
    number = config.optional_whole("mamba_n_heads", heads) or heads
    width = (config.optional_whole("mamba_expand", 2) or 2) * config.whole("hidden_size")
    if experts.given(config, "mamba_d_ssm"):
        width = config.whole("mamba_d_ssm")
    given = config.value("mamba_d_head") if config.has("mamba_d_head") else "auto"
    each = width // number if given in ("auto", None) else config.whole("mamba_d_head")
    if each * number != width:
        raise config.error("mamba_d_head", f"{number} heads of {each} are not {width} wide")
    return Mamba2(
        mamba_heads=number,
        mamba_head_dim=each,
        state_size=config.optional_whole("mamba_d_state", 256) or 256,
        mamba_groups=config.optional_whole("mamba_n_groups", groups) or groups,
        conv_kernel=config.optional_whole("mamba_d_conv", 4) or 4,
        conv_bias=config.flag("mamba_conv_bias", absent=True),
        state_precision=state_format(config, "mamba_ssm_cache_dtype"),
    )


def kimi_linear(config: Fields) -> tuple[LayerGroup, ...]:
    """Latent attention in the layers that ``linear_attn_config`` lists as ``full_attn_layers``,
    counted from 1, Kimi Delta Attention in the others; dense layers first, then experts."""
    linear = config.inner("linear_attn_config")
    heads, width = linear.whole("num_heads"), linear.whole("head_dim")
    delta = KimiDelta(
        *(heads, heads, width, width),
        conv_kernel=linear.optional_whole("short_conv_kernel_size", 4) or 4,
        gate_rank=width,
        full_gate=linear.flag("use_full_rank_gate", absent=False),
    )
    full = set(experts.listed(linear, "full_attn_layers", []))
    gate = config.flag("mla_use_output_gate", absent=False)
    attention = replace(latent.latent(config), output_gate=gate)
    layers = experts.number_of_layers(config)
    shared, key = 0, "num_shared_experts"
    width = config.whole("moe_intermediate_size")
    if experts.given(config, key):
        shared = config.count(key) * width
    mlp = replace(
        experts.gated(config, "num_experts", 256, 8, width),
        router_bias=True,
        shared_intermediate_size=shared,
        latent_size=config.optional_whole("routed_expert_hidden_size", None),
    )
    first = config.count("first_k_dense_replace") if config.has("first_k_dense_replace") else 0
    every = config.optional_whole("moe_layer_freq", 1) or 1
    dense = DenseMlp(config.whole("intermediate_size"))
    return experts.counted(
        (
            attention if at + 1 in full else delta,
            mlp if at >= first and at % every == 0 else dense,
        )
        for at in range(layers)
    )


def bailing_hybrid(config: Fields) -> tuple[LayerGroup, ...]:
    """Layers of Ling 3.0: Kimi Delta Attention, and latent attention in the last of each
    ``layer_group_size`` layers and behind the last whole group; dense layers first, then experts.

    With ``no_kda_lora`` one product makes the decays: here two that have as many weights. A gate of
    one number for each head of the latent attention is left out.
    """
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    width, layers = config.whole("head_dim"), experts.number_of_layers(config)
    whole = config.flag("no_kda_lora", absent=False)
    keys = heads * width
    delta = KimiDelta(
        *(heads, heads, width, width),
        conv_kernel=config.optional_whole("short_conv_kernel_size", 4) or 4,
        gate_rank=hidden * keys // (hidden + keys) if whole else width,
        full_gate=whole,
    )
    key = "gated_attention_proj_granularity_type"
    gate = experts.given(config, key) and config.value(key) == "element_wise"
    attention = replace(latent.latent(config), output_gate=gate)
    every = config.whole("layer_group_size")
    grouped = layers // every * every
    attentions = [
        attention if (at + 1) % every == 0 or at >= grouped else delta for at in range(layers)
    ]
    mlps = experts.after_dense(config, "num_experts", "num_shared_experts", 0)
    return experts.counted(zip(attentions, mlps, strict=True))


def lfm2(config: Fields, attention: GroupedQuery) -> tuple[LayerGroup, ...]:
    """Short convolutions, and attention where ``layer_types`` says ``full_attention`` or
    ``full_attn_idxs`` lists it; experts behind the first dense layers where there are any."""
    layers, kinds = experts.number_of_layers(config), ("conv", "full_attention")
    full = experts.listed(config, "full_attn_idxs", [])
    usual = [kinds[not config.has("full_attn_idxs") or at in full] for at in range(layers)]
    types = experts.kinds(config, "layer_types", kinds, usual)
    conv = ShortConvolution(
        config.whole("hidden_size"),
        config.optional_whole("conv_L_cache", 3) or 3,
        config.flag("conv_bias", absent=False),
    )
    mlps: list[Mlp] = [DenseMlp(_lfm_width(config))] * layers
    if experts.given(config, "num_experts"):
        moe = experts.gated(config, "num_experts", 32, 4, config.whole("moe_intermediate_size"))
        biased = config.flag("use_expert_bias", absent=True)
        first = config.count("num_dense_layers") if config.has("num_dense_layers") else 2
        mlps[first:] = [replace(moe, router_bias=biased)] * (layers - first)
    attentions = [conv if kind == kinds[0] else attention for kind in types]
    return experts.counted(zip(attentions, mlps, strict=True))


def _lfm_width(config: Fields) -> int:
    """The width of a dense MLP: two thirds of the stated one, rounded up, unless
    ``block_auto_adjust_ff_dim`` is false (transformers, Lfm2MLP)."""
    key = "block_ff_dim" if config.has("block_ff_dim") else "intermediate_size"
    width = config.whole(key)
    if config.has("num_experts") or not config.flag("block_auto_adjust_ff_dim", absent=True):
        return width
    width = 2 * width // 3
    if experts.given(config, "block_ffn_dim_multiplier"):
        width = int(config.number("block_ffn_dim_multiplier") * width)
    step = config.optional_whole("block_multiple_of", 256) or 256
    return -(-width // step) * step


def _pattern(config: Fields) -> tuple[str, str]:
    """The key that says what each layer is, and that as letters."""
    words = "layers_block_type"
    if config.has("hybrid_override_pattern") or not config.has(words):
        return "hybrid_override_pattern", config.text("hybrid_override_pattern")
    found = experts.listed(config, words, [])
    if not found or any(word not in LETTERS for word in found):
        raise config.error(words, f"expected {', '.join(LETTERS)} for each layer")
    return words, "".join(LETTERS[word] for word in found)


def of_pattern(
    pattern: str, mamba: Mamba2, attention: GroupedQuery, mlps: dict[str, Mlp]
) -> tuple[LayerGroup, ...]:
    """The layers of a ``pattern`` of M, * and the letters of ``mlps``; ValueError for one that
    cannot be, such as two MLPs in a row."""
    kinds: dict[str, Attention] = {"M": mamba, "*": attention}
    found: list[tuple[Attention, Mlp]] = []
    joined = True
    for letter in pattern:
        if letter in kinds:
            found.append((kinds[letter], NoMlp()))
            joined = False
        elif letter not in mlps:
            known = ", ".join((*kinds, *mlps))
            raise ValueError(f"expected letters of {known}, found {letter!r}")
        elif joined:
            raise ValueError(f"{letter!r} has to follow M or *")
        else:
            found[-1] = found[-1][0], mlps[letter]
            joined = True
    if attention not in (kind for kind, _ in found):
        raise ValueError("expected at least one layer of attention (*)")
    return tuple(
        replace(group, parallel_mlp=isinstance(group.mlp, NoMlp))
        for group in experts.counted(found)
    )


def state_format(config: Fields, key: str) -> str:
    """The format of states that the file names under ``key``; that of the model without."""
    if not experts.given(config, key) or config.value(key) == "auto":
        return "bf16"
    name = config.text(key)
    if name not in STATES:
        raise config.error(key, f"expected {' or '.join(STATES)}, found {name}")
    return STATES[name]


def _alternating(
    config: Fields, attention: GroupedQuery, mlps: list[Mlp]
) -> tuple[LayerGroup, ...]:
    """Layers with ``attention``, and linear ones before them."""
    linear = GatedDelta(
        linear_key_heads=config.optional_whole("linear_num_key_heads", 16) or 16,
        linear_value_heads=config.optional_whole("linear_num_value_heads", 32) or 32,
        linear_key_dim=config.optional_whole("linear_key_head_dim", 128) or 128,
        linear_value_dim=config.optional_whole("linear_value_head_dim", 128) or 128,
        conv_kernel=config.optional_whole("linear_conv_kernel_dim", 4) or 4,
        state_precision=state_format(config, "mamba_ssm_dtype"),
    )
    every = config.optional_whole("full_attention_interval", 4) or 4
    usual = [TYPES[(at + 1) % every == 0] for at in range(len(mlps))]
    types = experts.kinds(config, "layer_types", TYPES, usual)
    kinds = [attention if kind == TYPES[1] else linear for kind in types]
    return experts.counted(zip(kinds, mlps, strict=True))


def _qwen_mlps(config: Fields) -> list[Mlp]:
    """Experts where Qwen3-MoE has them, with a shared one behind a gate."""
    width = config.optional_whole("moe_intermediate_size", 512) or 512
    key = "shared_expert_intermediate_size"
    shared = config.count(key) if experts.given(config, key) else 512
    mlp = replace(
        experts.gated(config, "num_experts", 512, 10, width),
        shared_intermediate_size=shared,
        shared_gate=shared > 0,
    )
    return experts.qwen_mlps(config, mlp)


def _nemotron_experts(config: Fields) -> MixtureOfExperts:
    """Experts without a gate, with shared ones."""
    width = config.whole("moe_intermediate_size")
    shared = config.count("n_shared_experts") if experts.given(config, "n_shared_experts") else 1
    key = "moe_shared_expert_intermediate_size"
    whole = config.whole(key) if experts.given(config, key) else width
    return replace(
        experts.gated(config, "n_routed_experts", 8, 2, width),
        mlp_matrices=2,
        router_bias=True,
        shared_intermediate_size=shared * whole,
        latent_size=config.optional_whole("moe_latent_size", None),
    )
