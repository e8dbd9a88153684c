"""Provides the layer of a model whose layers are all alike: dense, and without windows."""

from __future__ import annotations

from typing import NamedTuple

from sim import catalog
from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.model import ModelSpec


class DenseLayer(NamedTuple):
    """One layer: its attention, its MLP, and whether both read the same normed input."""

    attention: GroupedQuery
    mlp: DenseMlp
    parallel_mlp: bool


def dense_layer(model: ModelSpec) -> DenseLayer:
    """The layer that ``model`` repeats; UsageError for a model with layers of another kind."""
    found = _dense(model)
    if found is None:
        raise UsageError(
            f"model: {model.name} has layers of a kind that is not measured; choose a model whose "
            "layers all have grouped-query attention to the whole context and a dense MLP"
        )
    return found


def is_dense(model: ModelSpec) -> bool:
    """Whether all layers are alike, dense, and see the whole context."""
    return _dense(model) is not None


def dense_models() -> list[ModelSpec]:
    """The models of the catalogue whose layers are all alike and dense."""
    models = [catalog.model(name) for name in catalog.names("models")]
    return [model for model in models if is_dense(model)]


def _dense(model: ModelSpec) -> DenseLayer | None:
    group = model.layers[0]
    attention, mlp = group.attention, group.mlp
    alike = len(model.layers) == 1
    if not (alike and isinstance(attention, GroupedQuery) and isinstance(mlp, DenseMlp)):
        return None
    if attention.window is not None or attention.sinks or attention.softcap or group.post_norms:
        return None
    if attention.output_gate:
        return None
    return DenseLayer(attention, mlp, group.parallel_mlp)
