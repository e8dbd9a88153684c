"""Lists the matrices and widths of a model's layers, of whatever kind that has benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec


def products(model: ModelSpec) -> list[tuple[int, int]]:
    """(n, k) of each different matrix of the layers, experts left out. UsageError for layers that
    have no benchmark."""
    check_measured(model)
    found = [shape for group in model.layers for shape in _of_layer(model.hidden_size, group)]
    return list(dict.fromkeys(found))


def check_measured(model: ModelSpec) -> None:
    """UsageError for a model with layers that have no benchmark."""
    for group in model.layers:
        attention = isinstance(group.attention, GroupedQuery) or type(group.attention) is Latent
        if attention and isinstance(group.mlp, DenseMlp | MixtureOfExperts):
            continue
        what = "an MLP" if attention else "attention"
        raise UsageError(
            f"model: {model.name} has layers with {what} of a kind that is not measured; choose a "
            "model with grouped-query or latent attention and dense or mixed MLPs"
        )


def _of_layer(hidden: int, group: LayerGroup) -> Iterator[tuple[int, int]]:
    attention, mlp = group.attention, group.mlp
    if isinstance(attention, GroupedQuery):
        yield attention.projected, hidden
        yield hidden, attention.query_size
    elif isinstance(attention, Latent):
        yield attention.down_size, hidden
        yield attention.num_heads * attention.key_size, attention.q_lora_rank or hidden
        yield attention.num_heads * attention.up_size, attention.kv_lora_rank
        yield hidden, attention.num_heads * attention.v_head_dim
    if isinstance(mlp, DenseMlp):
        yield from _dense(hidden, mlp.intermediate_size, mlp.mlp_matrices)
    elif isinstance(mlp, MixtureOfExperts):
        yield mlp.num_experts, hidden
        if mlp.shared_intermediate_size:
            yield from _dense(hidden, mlp.shared_intermediate_size, mlp.mlp_matrices)


def _dense(hidden: int, inner: int, matrices: int) -> Iterator[tuple[int, int]]:
    yield (matrices - 1) * inner, hidden
    yield hidden, inner


def widths(model: ModelSpec) -> Iterator[tuple[str, int]]:
    """Operators that move data, and their widths."""
    yield "norm", model.hidden_size
    yield "embedding", model.hidden_size
    for group in model.layers:
        attention, mlp = group.attention, group.mlp
        if isinstance(attention, GroupedQuery):
            yield "rotary", attention.query_size + attention.kv_size
            yield "kv_write", 2 * attention.kv_size
        if isinstance(mlp, DenseMlp):
            yield "activation", mlp.intermediate_size
        elif isinstance(mlp, MixtureOfExperts) and mlp.shared_intermediate_size:
            yield "activation", mlp.shared_intermediate_size
