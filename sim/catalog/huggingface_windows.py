"""Reads the layers of models that alternate windows with full attention from a ``config.json``.

One function for each family, named after it, as in ``huggingface_experts``. Encoders of pictures
and of sound are left out: requests here are text.
"""

from __future__ import annotations

from dataclasses import replace

from sim.catalog import huggingface_experts as experts
from sim.catalog.fields import Fields
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup, Mlp

WINDOW_LAYERS = 28
"""``max_window_layers`` of the Qwen classes where the file does not say."""

KINDS = ("sliding_attention", "full_attention")


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
