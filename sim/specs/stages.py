"""Cuts a model into the stages of a pipeline: consecutive layers, each on GPUs of its own.

The embedding is on the first stage; the final norm, the LM head and sampling are on the last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sim.specs.model import ModelSpec


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """How many consecutive layers each stage has, as vLLM deals them out: equally many, and one
    more on the stages before the last where some are left over (0.32, ``get_pp_indices``).

    >>> layers_of_stages(32, 4), layers_of_stages(61, 2), layers_of_stages(62, 4)
    ((8, 8, 8, 8), (31, 30), (15, 16, 16, 15))
    """
    each, over = divmod(layers, stages)
    return tuple(each + (stages - 1 - over <= at < stages - 1) for at in range(stages))


def stages_of(model: ModelSpec, stages: int) -> tuple[ModelSpec, ...]:
    """The part of ``model`` that each of that many stages has; ValueError if there are more of them
    than layers."""
    if stages > model.num_layers:
        raise ValueError(
            f"pipeline_parallel: {stages} stages cannot share the {model.num_layers} layers of "
            f"{model.name}"
        )
    if stages == 1:
        return (model,)
    kinds, found, first = kinds_of_layers(model), [], 0
    for number, count in enumerate(layers_of_stages(model.num_layers, stages)):
        own = Counter(kinds[first : first + count])
        first += count
        groups = tuple(
            replace(group, count=own[kind], places=())
            for kind, group in enumerate(model.layers)
            if own[kind]
        )
        found.append(replace(model, layers=groups, part=(number, stages)))
    return tuple(found)


def kinds_of_layers(model: ModelSpec) -> list[int]:
    """The group of each layer, by its number among those of the model."""
    kinds = [-1] * model.num_layers
    for kind, group in enumerate(model.layers):
        for place in group.places:
            kinds[place] = kind
    free = iter([place for place, kind in enumerate(kinds) if kind < 0])
    for kind, group in enumerate(model.layers):
        if not group.places:
            for _ in range(group.count):
                kinds[next(free)] = kind
    return kinds
