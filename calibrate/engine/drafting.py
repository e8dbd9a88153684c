"""Puts together what drafts in the engine, and refuses what it does not draft with."""

from __future__ import annotations

from dataclasses import replace

from calibrate.engine.asked import Refusal
from calibrate.engine.attention_cuda import choose
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.drafters import DraftModel, SearchedText, TokenDrafter
from calibrate.engine.executor import Drafting
from calibrate.engine.model import Transformer
from calibrate.engine.places import kv_places
from sim.schedulers import Scheduler
from sim.setup import Setup
from sim.specs.deployment import Deployment
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec
from sim.specs.stages import kinds_of_layers

METHODS = ("ngram", "draft_model")
"""The engine's methods of drafting."""


def undraftable(setup: Setup, sampling: str) -> list[Refusal]:
    """Refuses drafts that the engine has no model for, or would check against chance."""
    given = setup.only.deployment.speculation if len(setup.pools) == 1 else None
    if given is None:
        return []
    return [
        (
            given.method not in METHODS,
            f"speculative.method: {given.method} needs a layer that was trained to follow the "
            "target, and weights are random here; the engine drafts with ngram or a draft_model",
        ),
        (
            sampling != "greedy",
            f"--sampling {sampling}: drafts are compared with the target's most likely tokens; use "
            "greedy",
        ),
        (
            bool(setup.only.deployment.model.windows),
            "speculative: blocks behind windows are not given back where tokens are drafted, so "
            "the engine drafts only for models without windows",
        ),
    ]


def drafting_of(
    deployment: Deployment, scheduler: Scheduler, target: Transformer, seed: int
) -> Drafting | None:
    """The drafting for ``target`` by ``deployment``; None where nothing is drafted.

    A draft model of the target's own sizes and kinds of layers consists of the target's first
    layers, so that it is right more often than chance; any other one has random weights.
    """
    given = deployment.speculation
    if given is None:
        return None
    if deployment.drafter is None:
        return lambda tables: SearchedText(given.num_tokens)
    spec = deployment.drafter.deployment.model
    model = (
        target.first_layers(spec)
        if begins(spec, target.spec)
        else Transformer(
            spec,
            dtype=target.dtype,
            device=target.device,
            seed=seed + 1,
            max_positions=target.max_positions,
        )
    )
    kv = scheduler.kv
    cache = Cache(
        kv_places(spec), kv.num_blocks, kv.block_size, dtype=model.dtype, device=model.device
    )
    attention = choose(spec, model.dtype, model.device)

    def make(tables: BlockTables) -> TokenDrafter:
        return DraftModel(model, cache, attention, tables, given.num_tokens)

    return make


def begins(draft: ModelSpec, target: ModelSpec) -> bool:
    """Whether ``target`` begins with the layers of ``draft`` between an embedding and a head of the
    same sizes."""

    def outside(spec: ModelSpec) -> tuple[int, int, bool]:
        return spec.hidden_size, spec.vocab_size, spec.tie_word_embeddings

    ours, theirs = _layers(draft), _layers(target)
    return outside(draft) == outside(target) and ours == theirs[: len(ours)]


def _layers(spec: ModelSpec) -> list[LayerGroup]:
    """Each layer by itself."""
    return [replace(spec.layers[kind], count=1, places=()) for kind in kinds_of_layers(spec)]
