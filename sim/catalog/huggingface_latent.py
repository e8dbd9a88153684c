"""Reads the layers of models with latent attention from a Hugging Face ``config.json``.

DeepSeek V2 and V3, those with an indexer (V3.2, GLM-5), and Kimi K2, which are DeepSeek V3 in other
sizes; and DeepSeek V4, whose cache is compressed. Heads that predict further tokens (MTP) are left
out, as in ``huggingface_experts``; how experts are grouped for routing changes no time.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from sim.catalog import huggingface_experts as experts
from sim.catalog.fields import Fields
from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup, Mlp
from sim.specs.sparse import SparseLatent

INDEXERS = ("full", "shared")
"""Kinds of a layer's indexer: one of its own, or that of an earlier layer."""

MLPS = ("dense", "sparse")

CHOSEN = 4
"""The ratio at which an indexer chooses rows (vLLM 0.33, models/deepseek_v4/attention.py)."""

RATIOS = (0, 1, CHOSEN, 128)
"""Tokens of a row as files give them for each layer; 0 and 1 stand for a window without rows."""


def deepseek(config: Fields) -> tuple[LayerGroup, ...]:
    """Dense layers first, then experts with shared ones; the same attention in all of them."""
    attention = latent(config)
    return experts.counted((attention, mlp) for mlp in _mlps(config))


def indexed(config: Fields) -> tuple[LayerGroup, ...]:
    """Latent layers with an indexer in each layer whose entry in ``indexer_types`` is ``full``, or
    in all of them."""
    plain = latent(config)
    if plain.q_lora_rank is None:
        raise config.error("q_lora_rank", "is null; the indexer needs it")
    attention = SparseLatent(
        **asdict(plain),
        index_n_heads=config.optional_whole("index_n_heads", 64) or 64,
        index_head_dim=config.optional_whole("index_head_dim", 128) or 128,
        index_topk=config.optional_whole("index_topk", 2048) or 2048,
    )
    mlps = _mlps(config)
    kinds = experts.kinds(config, "indexer_types", INDEXERS, [INDEXERS[0]] * len(mlps))
    if kinds[0] != INDEXERS[0]:
        raise config.error("indexer_types", "the first layer has to have an indexer of its own")
    shared = replace(attention, index_shared=True)
    attentions = [attention if kind == INDEXERS[0] else shared for kind in kinds]
    return experts.counted(zip(attentions, mlps, strict=True))


def compressed(config: Fields) -> tuple[LayerGroup, ...]:
    """Layers of DeepSeek V4, with experts in all of them: rows by ``compress_ratios``, which may go
    on with layers for multi-token prediction. The first ``num_hash_layers`` choose experts by a
    table of tokens: their routers have no bias, which is counted all the same."""
    layers, key = experts.number_of_layers(config), "compress_ratios"
    ratios: object = config.value(key)
    if not isinstance(ratios, list) or len(ratios) < layers:
        raise config.error(key, f"expected a list of at least {layers} numbers, one for each layer")
    if any(ratio not in RATIOS for ratio in ratios):
        raise config.error(key, f"expected {', '.join(map(str, RATIOS))} for each layer")
    plain = CompressedLatent(
        num_heads=config.whole("num_attention_heads"),
        head_dim=config.optional_whole("head_dim", 512) or 512,
        qk_rope_head_dim=config.optional_whole("qk_rope_head_dim", 64) or 64,
        q_lora_rank=config.optional_whole("q_lora_rank", 1024) or 1024,
        o_groups=config.optional_whole("o_groups", 8) or 8,
        o_lora_rank=config.optional_whole("o_lora_rank", 1024) or 1024,
        sliding_window=config.optional_whole("sliding_window", 128) or 128,
        index_n_heads=config.optional_whole("index_n_heads", 64) or 64,
        index_head_dim=config.optional_whole("index_head_dim", 128) or 128,
    )
    topk = config.optional_whole("index_topk", 512)
    kinds = {
        ratio: replace(
            plain,
            compress_ratio=ratio if ratio > 1 else 0,
            index_topk=topk if ratio == CHOSEN else None,
        )
        for ratio in RATIOS
    }
    width = config.whole("moe_intermediate_size")
    shared = config.count("n_shared_experts") if experts.given(config, "n_shared_experts") else 1
    found = experts.gated(config, "n_routed_experts", 256, 6, width)
    mlp = replace(found, router_bias=True, shared_intermediate_size=shared * width)
    return experts.counted((kinds[ratio], mlp) for ratio in ratios[:layers])


def latent(config: Fields) -> Latent:
    """The attention, without an indexer."""
    return Latent(
        num_heads=config.whole("num_attention_heads"),
        kv_lora_rank=config.optional_whole("kv_lora_rank", 512) or 512,
        qk_nope_head_dim=config.optional_whole("qk_nope_head_dim", 128) or 128,
        qk_rope_head_dim=config.optional_whole("qk_rope_head_dim", 64) or 64,
        v_head_dim=config.optional_whole("v_head_dim", 128) or 128,
        q_lora_rank=config.optional_whole("q_lora_rank", 1536),
        attention_bias=config.flag("attention_bias", absent=False),
    )


def _mlps(config: Fields) -> list[Mlp]:
    """The MLP of each layer."""
    layers = experts.number_of_layers(config)
    dense = DenseMlp(config.whole("intermediate_size"))
    if not experts.given(config, "n_routed_experts"):
        return [dense] * layers
    width = config.whole("moe_intermediate_size")
    shared = config.count("n_shared_experts") if experts.given(config, "n_shared_experts") else 0
    found = experts.gated(config, "n_routed_experts", 256, 8, width)
    # only this way of choosing has a bias for each expert
    biased = config.has("topk_method") and config.value("topk_method") == "noaux_tc"
    mlp: MixtureOfExperts = replace(
        found, router_bias=biased, shared_intermediate_size=shared * width
    )
    first = 0
    if experts.given(config, "first_k_dense_replace"):
        first = config.count("first_k_dense_replace")
    every = config.optional_whole("moe_layer_freq", 1) or 1
    usual = [MLPS[at >= first and at % every == 0] for at in range(layers)]
    kinds = experts.kinds(config, "mlp_layer_types", MLPS, usual)
    return [mlp if kind == MLPS[1] else dense for kind in kinds]
