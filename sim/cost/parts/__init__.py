"""Predicts the parts of a layer: one file for each kind of attention and of MLP.

A new kind is a record in a file of ``sim.specs`` (or anywhere else: it only has to satisfy the
protocol), a file here with a class that satisfies ``AttentionPart`` or ``MlpPart``, and its line in
``ATTENTION`` or ``MLP``. What all kinds share (norms, quantisation, all-reduce, embedding, LM head,
sampling) is in ``shared``; the kernels that they are made of are in ``sim.cost.rooflines``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.cost.parts.compressed import CompressedPart
from sim.cost.parts.dense_mlp import DenseMlpPart, NoMlpPart
from sim.cost.parts.grouped_query import GroupedQueryPart
from sim.cost.parts.latent import LatentPart
from sim.cost.parts.mixture_of_experts import MixtureOfExpertsPart
from sim.cost.parts.no_attention import NoAttentionPart
from sim.cost.parts.part import AttentionPart, MlpPart
from sim.cost.parts.recurrent import RecurrentPart
from sim.cost.parts.sparse import SparseLatentPart
from sim.cost.parts.sparse_grouped import SparseGroupedPart
from sim.cost.rooflines import Rooflines
from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.deployment import Deployment
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2
from sim.specs.no_attention import NoAttention
from sim.specs.short_convolution import ShortConvolution
from sim.specs.sparse import SparseLatent
from sim.specs.sparse_grouped import SparseGrouped

__all__ = ["ATTENTION", "MLP", "AttentionPart", "MlpPart", "attention_part", "mlp_part"]

ATTENTION: dict[type, Callable[[Any, int, Deployment, Rooflines], AttentionPart]] = {
    GroupedQuery: GroupedQueryPart,
    SparseGrouped: SparseGroupedPart,
    Latent: LatentPart,
    SparseLatent: SparseLatentPart,
    CompressedLatent: CompressedPart,
    GatedDelta: RecurrentPart,
    Mamba2: RecurrentPart,
    Lightning: RecurrentPart,
    KimiDelta: RecurrentPart,
    ShortConvolution: RecurrentPart,
    NoAttention: NoAttentionPart,
}
"""The predictor of each kind of attention, made from the record, the number of layers, the
deployment and its kernels."""

MLP: dict[type, Callable[[Any, int, Deployment, Rooflines], MlpPart]] = {
    DenseMlp: DenseMlpPart,
    NoMlp: NoMlpPart,
    MixtureOfExperts: MixtureOfExpertsPart,
}
"""The predictor of each kind of MLP, with the same arguments."""


def attention_part(group: LayerGroup, d: Deployment, kernels: Rooflines) -> AttentionPart:
    """The predictor of a layer group's attention."""
    return ATTENTION[type(group.attention)](group.attention, group.count, d, kernels)


def mlp_part(group: LayerGroup, d: Deployment, kernels: Rooflines) -> MlpPart:
    """The predictor of a layer group's MLP."""
    return MLP[type(group.mlp)](group.mlp, group.count, d, kernels)
