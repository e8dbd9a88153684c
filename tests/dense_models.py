"""Provides models whose layers are all alike and dense, and the same with other values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec

LLAMA_2_7B = ModelSpec(
    name="llama-2-7b",
    hidden_size=4096,
    layers=(
        LayerGroup(
            count=32,
            attention=GroupedQuery(
                num_heads=32, num_kv_heads=32, head_dim=128, attention_bias=False, qk_norm=False
            ),
            mlp=DenseMlp(intermediate_size=11008),
        ),
    ),
    vocab_size=32000,
    max_position_embeddings=4096,
    tie_word_embeddings=False,
    source="test",
)


def attention_of(model: ModelSpec) -> GroupedQuery:
    attention = model.layers[0].attention
    assert isinstance(attention, GroupedQuery)
    return attention


def mlp_of(model: ModelSpec) -> DenseMlp:
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    return mlp


def changed(model: ModelSpec, **changes: Any) -> ModelSpec:
    """``model`` with other values of its own, its attention's, its MLP's or its layers' fields;
    ``num_layers`` is how many of these there are."""

    def mine(record: Any) -> Any:
        own = {field.name for field in fields(record)} & set(changes)
        return replace(record, **{name: changes.pop(name) for name in own})

    if "num_layers" in changes:
        changes["count"] = changes.pop("num_layers")
    (group,) = model.layers
    group = replace(mine(group), attention=mine(group.attention), mlp=mine(group.mlp))
    return replace(model, layers=(group,), **changes)
