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
from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2

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
    if experts.given(config, "moe_latent_size"):
        raise config.error("moe_latent_size", "experts on a smaller hidden state are not supported")
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
    )
