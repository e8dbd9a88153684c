"""Lists the matrices of a model by the names that checkpoints give them, and matches such names.

A checkpoint's files say of modules by name how they are stored: ``model.layers.3.self_attn.q_proj``
in full, a part of it such as ``self_attn``, with ``*``, or as a regular expression after ``re:``.
Families name the same matrix differently; a matrix here has all the names that it may have.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from typing import NamedTuple

from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.latent import Latent
from sim.specs.layers import Attention, LayerGroup, Mlp, Role
from sim.specs.layout import ONE_GPU
from sim.specs.mamba2 import Mamba2
from sim.specs.model import ModelSpec
from sim.specs.recurrent import Recurrent
from sim.specs.sparse import SparseLatent
from sim.specs.stages import kinds_of_layers

ROOTS = ("model", "model.language_model", "language_model.model", "backbone", "language_model")
"""The prefixes of ``layers`` in the names of modules, by family."""

_ROOT = re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(ROOTS, key=len, reverse=True)))})\.")
_LAYER = re.compile(r"layers\.(\d+)\.")

MATRICES = (("gate_proj", "w1", "gate_up_proj"), ("up_proj", "w3", "gate_up_proj"),
            ("down_proj", "w2"))  # fmt: skip
"""The matrices of an MLP with a gate, by the names that families have for them."""


class Module(NamedTuple):
    """One matrix of one layer, or the same matrix of all its experts: names it may have, from
    ``layers`` on, its parameters, and its role."""

    names: tuple[str, ...]
    parameters: float
    role: Role


def modules(model: ModelSpec) -> list[Module]:
    """Every matrix of ``model`` that a checkpoint may store in fewer bits, layer by layer, and its
    LM head. Norms, biases, routers, gates and the embedding stay at 16 bits and are left out."""
    kinds = kinds_of_layers(model)
    widths = [_width(model.layers[kind], _counts(model)) for kind in kinds]
    firsts = [0, *accumulate(widths)]
    found: list[Module] = []
    for first, width, kind in zip(firsts, widths, kinds, strict=False):
        group, h = model.layers[kind], model.hidden_size
        found += (_placed(first, each) for each in _attention(group.attention, h))
        found += (_placed(first + max(width, 1) - 1, each) for each in _mlp(group, h))
    head = model.head_parameters()
    return [*found, Module(("lm_head",), head, "vocabulary")] if head else found


def _counts(model: ModelSpec) -> str:
    """How checkpoints count layers: Nemotron-H has a Mamba-2 or an attention as one layer and the
    MLP behind it, which has no gate, as another; Falcon-H1 Mamba-2 and the attention behind it as
    one."""
    if not any(isinstance(group.attention, Mamba2) for group in model.layers):
        return "each"
    mlps = [group.mlp for group in model.layers if not isinstance(group.mlp, NoMlp)]
    apart = any(getattr(mlp, "mlp_matrices", 3) == 2 for mlp in mlps)
    return "apart" if apart else "together"


def _width(group: LayerGroup, counts: str) -> int:
    """Layers of a checkpoint that one of the group is."""
    alone = isinstance(group.mlp, NoMlp)
    if counts == "apart":
        return 1 if alone else 2
    return 0 if counts == "together" and alone else 1


def _placed(layer: int, module: Module) -> Module:
    """The matrix with its layer in its names."""
    return module._replace(names=tuple(f"layers.{layer}.{name}" for name in module.names))


def _attention(kind: Attention, h: int) -> Iterator[Module]:
    """The projections of one layer's attention."""
    sizes: dict[tuple[str, ...], float] = {}
    if isinstance(kind, GroupedQuery):
        values = 0 if kind.shared_kv else kind.values_size
        queries = kind.projected - kind.kv_size - values
        sizes = {
            ("q_proj", "qkv_proj"): h * queries,
            ("k_proj", "qkv_proj"): h * kind.kv_size,
            ("v_proj", "qkv_proj"): h * values,
            ("o_proj", "out_proj"): h * kind.result_size,
        }
    elif isinstance(kind, Latent):
        low = kind.q_lora_rank
        sizes = {
            ("q_a_proj", "fused_qkv_a_proj_with_mqa"): h * (low or 0),
            ("q_b_proj", "q_proj"): kind.num_heads * kind.key_size * (low or h),
            ("kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa"): h * kind.latent_size,
            ("kv_b_proj",): kind.num_heads * kind.kv_lora_rank * kind.up_size,
            ("g_proj",): kind.num_heads * kind.v_head_dim * h if kind.output_gate else 0,
            ("o_proj",): kind.num_heads * kind.v_head_dim * h,
        }
        if isinstance(kind, SparseLatent) and not kind.index_shared:
            sizes["indexer.wq_b",] = (low or 0) * kind.index_size
    elif isinstance(kind, CompressedLatent):
        sizes = {
            ("wq_a", "q_a_proj"): h * kind.q_lora_rank,
            ("wq_b", "q_b_proj"): kind.q_lora_rank * kind.query_size,
            ("wkv", "kv_proj"): h * kind.head_dim,
            ("wo_a", "o_a_proj"): kind.query_size * kind.o_lora_rank,
            ("wo_b", "o_b_proj"): kind.grouped_size * h,
            ("indexer.wq_b", "indexer.q_b_proj"): kind.q_lora_rank * kind.index_size,
        }
    elif isinstance(kind, KimiDelta):
        sizes = {
            ("q_proj",): h * kind.key_size,
            ("k_proj",): h * kind.key_size,
            ("v_proj",): h * kind.inner_size,
            ("g_proj",): h * kind.inner_size if kind.full_gate else 0,
            ("o_proj",): h * kind.inner_size,
        }
    elif isinstance(kind, GatedDelta):
        sizes = {
            ("in_proj_qkv", "in_proj_qkvz"): h * kind.channels,
            ("in_proj_z", "in_proj_qkvz"): h * kind.inner_size,
            ("out_proj",): h * kind.inner_size,
        }
    elif isinstance(kind, Recurrent):
        sizes = {
            ("in_proj", "qkv_proj"): h * kind.into(ONE_GPU),
            ("out_proj",): h * kind.inner_size,
        }
    parents: tuple[str, ...] = ("self_attn", "mixer", "attn", "mamba", "conv", "attention")
    if isinstance(kind, GatedDelta) and not isinstance(kind, KimiDelta):
        parents = ("linear_attn",)
    for leaves, parameters in sizes.items():
        if parameters:
            yield Module(_below(parents, leaves), parameters, "projections")


def _mlp(group: LayerGroup, h: int) -> Iterator[Module]:
    """The matrices of one layer's MLP: dense, or experts and shared ones."""
    mlp: Mlp = group.mlp
    if isinstance(mlp, DenseMlp):
        parents = ("mlp", "feed_forward", "mixer")
        yield from _matrices(parents, mlp.mlp_matrices, h * mlp.intermediate_size, "projections")
    if not isinstance(mlp, MixtureOfExperts):
        return
    # Gemma 4, whose layers norm behind MLPs, calls the MLP of every token mlp, as its dense layers,
    # and the experts experts; Trinity has such norms, too, and the usual names.
    gemma = group.post_norms
    usual = ("mlp.", "block_sparse_moe.", "mixer.", "feed_forward.", "ffn.")
    routed = (*(("",) if gemma else ()), *usual)
    shared = (*(("mlp",) if gemma else ()), *(
        f"{parent}{name}" for parent, name in product(usual, ("shared_experts", "shared_expert",
                                                               "shared_mlp"))
    ))  # fmt: skip
    each = ("experts", "experts.0", *(("moe.experts", "moe.experts.0") if gemma else ()))
    inside = tuple(f"{parent}{name}" for parent, name in product(routed, each))
    experts = mlp.num_experts * mlp.expert_hidden(h) * mlp.moe_intermediate_size
    yield from _matrices(inside, mlp.mlp_matrices, experts, "experts")
    for leaf in ("fc1_latent_proj", "fc2_latent_proj") if mlp.latent_size else ():
        yield Module(_below(("mixer", "mlp"), (leaf,)), h * (mlp.latent_size or 0), "projections")
    width = mlp.shared_intermediate_size
    yield from _matrices(shared, mlp.mlp_matrices, h * width, "projections")


def _matrices(
    parents: tuple[str, ...], count: int, parameters: float, role: Role
) -> Iterator[Module]:
    """The matrices of an MLP, of which those without a gate have two."""
    for leaves in MATRICES[3 - count :] if parameters else ():
        yield Module(_below(parents, leaves), parameters, role)


def _below(parents: Iterable[str], leaves: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{parent}.{leaf}" for parent, leaf in product(parents, leaves))


@dataclass(frozen=True)
class Patterns:
    """Names of modules as a checkpoint's files write them: ``plain`` ones, and those with ``*``, by
    the number of the layer that they name, without what stands before ``layers``; and regular
    expressions, which see names in full."""

    plain: frozenset[str]
    globs: Mapping[str, re.Pattern[str]]
    expression: re.Pattern[str] | None

    @classmethod
    def of(cls, written: Iterable[str]) -> Patterns:
        """The modules that a list names; re.error for a regular expression that is none."""
        plain, expressions = set(), []
        globs: dict[str, list[str]] = {}
        for text in written:
            if text.startswith("re:"):
                expressions.append(text.removeprefix("re:"))
                continue
            name = _ROOT.sub("", text.strip("."))
            if "*" in name or "?" in name:
                globs.setdefault(_layer(name), []).append(fnmatch.translate(name))
            else:
                plain.add(name)
        joined = {layer: _any(found) for layer, found in globs.items()}
        return cls(frozenset(plain), joined, _any(expressions) if expressions else None)

    def match(self, module: Module) -> bool:
        """Whether ``module``, or a module that contains it, is named."""
        return any(self._named(name) for name in module.names)

    def _named(self, name: str) -> bool:
        for layer in (_layer(name), ""):
            if layer in self.globs and self.globs[layer].match(name):
                return True
        if self.expression is not None:
            rooted = (name, *(f"{root}.{name}" for root in ROOTS))
            if any(self.expression.match(each) for each in rooted):
                return True
        if not self.plain:
            return False
        parts = name.split(".")
        ends = range(1, len(parts) + 1)
        return any(".".join(parts[start:end]) in self.plain for end in ends for start in range(end))


def _layer(name: str) -> str:
    """The number of the layer that a name names in full; empty where it may be of several."""
    found = _LAYER.match(name)
    return found[1] if found else ""


def _any(expressions: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in expressions))
