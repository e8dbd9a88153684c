"""Provides small models of each kind that the reference engine runs, named after published ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from calibrate.engine.arithmetic import USUAL, Arithmetic
from sim.catalog import engine, gpu
from sim.memory import Allocator
from sim.memory.groups import kv_groups
from sim.memory.windowed import WindowedAllocator
from sim.schedulers import Limits
from sim.specs.dense_mlp import DenseMlp
from sim.specs.deployment import Deployment
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec

VOCABULARY = 128


class Kind(NamedTuple):
    """A model's shape, and what that leaves open."""

    spec: ModelSpec
    arithmetic: Arithmetic = USUAL


def model(name: str, *layers: LayerGroup, **changes: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "hidden_size": 48,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "source": "made up",
    }
    return ModelSpec(name=name, layers=layers, **fields | changes)


def heads(**changes: Any) -> GroupedQuery:
    fields: dict[str, Any] = {
        **{"num_heads": 4, "num_kv_heads": 2, "head_dim": 12},
        **{"attention_bias": False, "qk_norm": False},
    }
    return GroupedQuery(**fields | changes)


def _oss() -> ModelSpec:
    mlp = MixtureOfExperts(4, 2, 24, mlp_bias=True, router_bias=True)
    biased = {"attention_bias": True, "output_bias": True, "sinks": True}
    local, full = heads(sliding_window=7, **biased), heads(**biased)
    return model("oss", LayerGroup(1, local, mlp), LayerGroup(1, full, mlp))


def _gemma() -> ModelSpec:
    local, full = heads(qk_norm=True, sliding_window=10), heads(qk_norm=True)
    mlp = DenseMlp(64)
    groups = [LayerGroup(n, a, mlp, post_norms=True) for n, a in ((3, local), (1, full))]
    return model("gemma", *groups, tie_word_embeddings=True)


def _chunked() -> ModelSpec:
    mlp = MixtureOfExperts(4, 1, 24, shared_intermediate_size=24)
    local = heads(attention_chunk=12)
    return model("chunked", LayerGroup(2, local, mlp), LayerGroup(1, heads(), DenseMlp(40)))


def _latent() -> ModelSpec:
    attention = Latent(4, 16, 8, 4, 10, q_lora_rank=20)
    mlp = MixtureOfExperts(8, 2, 16, shared_intermediate_size=32, router_bias=True)
    layers = LayerGroup(1, attention, DenseMlp(64)), LayerGroup(1, attention, mlp)
    return model("latent", *layers)


KINDS = {
    "mixtral": Kind(model("mixtral", LayerGroup(2, heads(), MixtureOfExperts(4, 2, 32)))),
    "qwen": Kind(
        model(
            "qwen",
            LayerGroup(
                2,
                heads(qk_norm=True),
                MixtureOfExperts(8, 3, 16, shared_intermediate_size=24, shared_gate=True),
            ),
        ),
        Arithmetic(renormalise=False),
    ),
    "gemma": Kind(
        _gemma(), Arithmetic(activation="gelu", local_base=10_000.0, embedding_scale=48**0.5)
    ),
    "oss": Kind(_oss(), Arithmetic(activation="cut")),
    "chunked": Kind(_chunked(), Arithmetic(scores="sigmoid", renormalise=False)),
    "windows-only": Kind(
        model("windows-only", LayerGroup(2, heads(sliding_window=8), DenseMlp(64)))
    ),
    "latent": Kind(_latent(), Arithmetic(scores="sigmoid", bias_chooses=True, scale=2.5)),
    "latent-lite": Kind(
        model("latent-lite", LayerGroup(2, Latent(3, 12, 6, 4, 6, None, True), DenseMlp(40)))
    ),
}


def memory(spec: ModelSpec, blocks: int, block_size: int, limits: Limits) -> Allocator | None:
    """The allocator of a model with windows, as the simulator makes it; None without windows."""
    if not spec.windows:
        return None
    d = Deployment(spec, gpu("h100-sxm"), engine("reference"), "bf16", "bf16", "bf16")
    groups = kv_groups(d, block_size).groups
    most = [group.most(limits.max_model_len, limits.max_num_batched_tokens) for group in groups]
    return WindowedAllocator(blocks, block_size, groups, most)
