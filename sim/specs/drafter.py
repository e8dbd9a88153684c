"""Makes the model that drafts for a target: one of its own, or a layer trained for it.

A drafter of its own is given; one by ``eagle`` or ``mtp`` is a layer like the target's last.
"""

from __future__ import annotations

from dataclasses import replace

from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.deployment import Deployment, Drafter
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Attention, LayerGroup
from sim.specs.layout import DEFAULT_BACKEND, Layout
from sim.specs.model import ModelSpec
from sim.specs.no_attention import NoAttention
from sim.specs.precision import MULTIPLIES, precision_bytes

EAGLE_VOCABULARY = 32_000
"""Tokens that an EAGLE-3 head chooses from (``draft_vocab_size`` in the config.json of the heads
published for Llama 3.1 8B and 3.3 70B by the authors of EAGLE-3)."""

BORROWED = {"draft_model": (), "eagle": ("embedding",), "mtp": ("embedding", "LM head")}
"""The weights that a drafter has in common with its target."""


def drafter_of(d: Deployment, method: str, model: ModelSpec | None = None) -> Drafter | None:
    """The drafter by ``method`` for the target ``d``: ``model`` where it is one of its own; else a
    layer like the target's last, which ``eagle`` has dense, as wide as what one token goes through,
    and with a head of its own. ValueError if the GPUs cannot share it."""
    if method == "ngram":
        return None
    joins: tuple[tuple[int, int], ...] = ()
    hidden = d.model.hidden_size
    if model is None:
        last = replace(_like(d.model), count=1, places=())
        if method == "mtp":
            last = replace(last, attention=_near(last.attention))
            model, joins = replace(d.model, layers=(last,)), ((2 * hidden, hidden),)
        else:
            last = replace(last, attention=_whole(last), mlp=_dense(last))
            model = replace(
                d.model, layers=(last,), vocab_size=EAGLE_VOCABULARY, tie_word_embeddings=False
            )
            joins = ((3 * hidden, hidden), *_second_input(last, hidden))
    narrow = precision_bytes(d.activations) < 2
    fits = model.has_experts or not narrow or d.weights in MULTIPLIES[d.activations]
    deployment = replace(
        d,
        model=model,
        speculation=None,
        drafter=None,
        sorts=False,  # a draft is the likeliest token
        # without experts, each data rank drafts by itself
        layout=d.layout if model.has_experts else replace(d.layout, data=1, expert=1),
        all2all=d.all2all if model.has_experts else DEFAULT_BACKEND,
        experts=d.experts if model.has_experts else None,
        activations=d.activations if fits else "bf16",
    )
    return Drafter(deployment, joins, BORROWED[method])


def on_layout(d: Deployment, layout: Layout) -> Deployment:
    """``d`` on GPUs in another ``layout``, and what drafts for it on the same; ValueError if they
    cannot share it."""
    moved = replace(d, layout=layout, speculation=None, drafter=None)
    given = d.speculation
    if given is None or d.drafter is None:
        return replace(moved, speculation=given)
    if layout.pipeline > 1:
        raise ValueError("pipelines are not modelled with drafts")
    own = d.drafter.deployment.model if given.method == "draft_model" else None
    return replace(moved, speculation=given, drafter=drafter_of(moved, given.method, own))


def _like(model: ModelSpec) -> LayerGroup:
    """The last kind of layer that has both attention and MLP, or the last."""
    whole = (
        group
        for group in reversed(model.layers)
        if not isinstance(group.mlp, NoMlp) and not isinstance(group.attention, NoAttention)
    )
    return next(whole, model.layers[-1])


def _dense(group: LayerGroup) -> DenseMlp:
    """The MLP of an EAGLE head."""
    mlp = group.mlp
    if isinstance(mlp, MixtureOfExperts):
        active = mlp.experts_per_token * mlp.moe_intermediate_size
        return DenseMlp(active + mlp.shared_intermediate_size)
    assert isinstance(mlp, DenseMlp)
    return mlp


def _near(attention: Attention) -> Attention:
    """The attention of a layer for multi-token prediction: the target's, but without compressed
    rows, which it leaves to the window (``compress_ratios`` of DeepSeek V4 end in 0)."""
    if isinstance(attention, CompressedLatent):
        return replace(attention, compress_ratio=0, index_topk=None)
    return attention


def _whole(group: LayerGroup) -> Attention:
    """The attention of an EAGLE head: it sees the whole context."""
    attention = group.attention
    if isinstance(attention, GroupedQuery) and attention.window is not None:
        return replace(attention, sliding_window=None, attention_chunk=None)
    return attention


def _second_input(group: LayerGroup, hidden: int) -> tuple[tuple[int, int], ...]:
    """Queries, keys and values of an EAGLE-3 head are projected from two hidden states."""
    attention = group.attention
    if not isinstance(attention, GroupedQuery):
        return ()
    return ((hidden, attention.query_size + 2 * attention.kv_size),)
