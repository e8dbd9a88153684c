"""Provides a transformer over a flat list of tokens, with random weights.

RMS norms, rotary positions, grouped-query attention (through windows and with sinks, where layers
have them) or latent attention, and gated MLPs or mixtures of experts. How tokens attend is passed
in, so that the model does not know which sequence a token belongs to.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

from calibrate.engine.arithmetic import USUAL, Arithmetic
from calibrate.engine.attend import Attend
from calibrate.engine.batch import EngineStep
from calibrate.engine.cache import Cache
from calibrate.engine.heads_block import HeadsBlock
from calibrate.engine.latent_block import LatentBlock
from calibrate.engine.layer_pass import LayerPass, PassPart
from calibrate.engine.mlps import DenseBlock, ExpertsBlock
from calibrate.engine.weights import Angles, EngineWeights, rms_norm
from calibrate.lazy_torch import Tensor, torch
from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec
from sim.specs.stages import kinds_of_layers


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """The parts of one layer, the norms of their inputs, and those of their results where the
    model has such."""

    first_norm: Tensor
    attention: HeadsBlock | LatentBlock
    second_norm: Tensor
    mlp: DenseBlock | ExpertsBlock
    attention_norm: Tensor | None
    mlp_norm: Tensor | None


def unheard(part: str) -> None:
    """The default listener, which does nothing."""


class Transformer:
    """Weights on a device, and the pass over them.

    The same ``seed`` gives the same weights on the same kind of device. ``max_positions`` is the
    longest sequence. ``arithmetic`` is what the spec leaves open. ``parameters`` counts the weights
    that there are. UsageError for layers of other kinds than the engine runs.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        dtype: Any,
        device: str,
        seed: int,
        max_positions: int,
        arithmetic: Arithmetic = USUAL,
    ) -> None:
        _check(spec)
        self.spec = spec
        self.dtype = dtype
        self.device = device
        self.max_positions = max_positions
        self.arithmetic = arithmetic
        draw = EngineWeights(spec, dtype, device, seed)
        # a tied embedding is also the head, whose outputs must be of order one
        scale = None if spec.tie_word_embeddings else 1.0
        self.embedding = draw.matrix(spec.vocab_size, spec.hidden_size, scale=scale)
        self.layers = [
            _layer(spec.layers[kind], arithmetic, draw) for kind in kinds_of_layers(spec)
        ]
        self.last_norm = draw.norm(spec.hidden_size)
        tied = spec.tie_word_embeddings
        self.head = self.embedding if tied else draw.matrix(spec.vocab_size, spec.hidden_size)
        assert not draw.left, (spec.name, draw.left)
        self.parameters = draw.drawn
        turnings = {layer.attention.turning for layer in self.layers}
        self._angles = {
            (size, base): Angles(max_positions, size, base, dtype, device)
            for size, base in turnings
        }

    def first_layers(self, spec: ModelSpec) -> Transformer:
        """The model ``spec``, which has this one's sizes and fewer layers: the first of these, with
        the same embedding and head. No weight is copied."""
        short = copy(self)
        short.spec = spec
        short.layers = self.layers[: spec.num_layers]
        return short

    def forward(
        self, step: EngineStep, cache: Cache, attend: Attend, part: PassPart = unheard
    ) -> Tensor:
        """Compute the tokens of ``step``, leave their keys and values in ``cache``, and return the
        logits of the rows that sample (row x vocabulary)."""
        part("embedding")
        x = torch.nn.functional.embedding(step.tokens, self.embedding)
        if self.arithmetic.embedding_scale != 1.0:
            x = x * self.arithmetic.embedding_scale
        angles = {turning: made.at(step.positions) for turning, made in self._angles.items()}
        run = LayerPass(step, cache, attend, angles, part)
        for run.number, layer in enumerate(self.layers):
            part("norm")
            seen = rms_norm(x, layer.first_norm)
            mixed = layer.attention.forward(seen, run, cache.places.layers[run.number])
            x = _add(x, mixed, layer.attention_norm, part)
            part("norm")
            seen = rms_norm(x, layer.second_norm)
            x = _add(x, layer.mlp.forward(seen, part), layer.mlp_norm, part)
        part("norm")
        seen = rms_norm(x[step.sampling], self.last_norm)
        part("head")
        return torch.nn.functional.linear(seen, self.head)


def _add(x: Tensor, result: Tensor, norm: Tensor | None, part: PassPart) -> Tensor:
    """The hidden state with the result of a part of a layer, normed where there is a norm."""
    if norm is not None:
        part("norm")
        result = rms_norm(result, norm)
    return x + result


def _layer(group: LayerGroup, arithmetic: Arithmetic, draw: EngineWeights) -> EngineLayer:
    first = draw.norm(draw.hidden)
    attention: HeadsBlock | LatentBlock
    if isinstance(group.attention, GroupedQuery):
        attention = HeadsBlock(group.attention, arithmetic, draw)
    else:
        assert isinstance(group.attention, Latent)
        attention = LatentBlock(group.attention, arithmetic, draw)
    second = draw.norm(draw.hidden)
    mlp: DenseBlock | ExpertsBlock
    if isinstance(group.mlp, DenseMlp):
        mlp = DenseBlock(group.mlp, arithmetic, draw)
    else:
        assert isinstance(group.mlp, MixtureOfExperts)
        mlp = ExpertsBlock(group.mlp, arithmetic, draw)
    return EngineLayer(
        first_norm=first,
        attention=attention,
        second_norm=second,
        mlp=mlp,
        attention_norm=draw.norm(draw.hidden) if group.post_norms else None,
        mlp_norm=draw.norm(draw.hidden) if group.post_norms else None,
    )


def _check(spec: ModelSpec) -> None:
    found = list(dict.fromkeys(odd for group in spec.layers for odd in _odd(group)))
    if spec.norm_bias:
        found.append("biases on norms")
    if spec.head_bias:
        found.append("a bias on the LM head")
    if found:
        raise UsageError(f"{spec.name} has {' and '.join(found)}, which the engine does not run")


def _odd(group: LayerGroup) -> list[str]:
    """The features of such layers that the engine does not run."""
    attention, mlp = group.attention, group.mlp
    odd = {"parallel attention and MLP": group.parallel_mlp}
    if isinstance(attention, GroupedQuery):
        odd["a soft cap on scores"] = attention.softcap
        odd["one projection of keys and values"] = attention.shared_kv
        odd["gates on attention's results"] = attention.output_gate
        odd["an odd head size"] = bool(attention.head_dim % 2)
    elif type(attention) is Latent:
        odd["an odd head size"] = bool(attention.qk_rope_head_dim % 2)
    else:
        odd["attention other than grouped-query and latent"] = True
    if isinstance(mlp, DenseMlp | MixtureOfExperts):
        odd["MLPs of two matrices"] = mlp.mlp_matrices != 3
    else:
        odd["layers without an MLP"] = True
    return [name for name, has in odd.items() if has]
