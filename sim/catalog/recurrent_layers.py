"""Reads the layers of a catalogue file of a model that has recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable

from sim.catalog.fields import Fields, keys
from sim.catalog.huggingface_recurrent import of_pattern
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup, Mlp, spread
from sim.specs.mamba2 import Mamba2


def recurrent_layers(shape: Fields, architecture: Iterable[str]) -> tuple[LayerGroup, ...]:
    """The layers of ``shape``, which has the keys of grouped-query attention, of a recurrent layer
    and of an MLP besides those of every ``architecture``.

    Linear attention in all but ``full_layers``; Mamba-2 by a ``pattern`` of M (Mamba-2), * (the
    other attention), and E or - (experts or a dense MLP, in the layer before). ValueError for a
    shape that cannot be.
    """
    kind: type[MixtureOfExperts | DenseMlp]
    kind = MixtureOfExperts if shape.has("num_experts") else DenseMlp
    recurrent = Mamba2 if shape.has("mamba_heads") else GatedDelta
    known = [*architecture, *keys(GroupedQuery), *keys(recurrent), *keys(kind)]
    shape.only([*known, *(["pattern"] if recurrent is Mamba2 else [])])
    attention, count = shape.record(GroupedQuery), shape.whole("num_layers")
    mlp: Mlp = shape.record(kind)
    if recurrent is Mamba2:
        layers = of_pattern(
            shape.text("pattern"),
            shape.record(Mamba2),
            attention,
            {"E" if kind is MixtureOfExperts else "-": mlp},
        )
        found = sum(group.count for group in layers)
        if found != count:
            raise shape.error("num_layers", f"the pattern makes {found} layers, found {count}")
        return layers
    full = shape.whole("full_layers")
    if full >= count:
        raise shape.error("full_layers", f"expected fewer than the {count} layers, found {full}")
    linear = LayerGroup(count - full, shape.record(GatedDelta), mlp)
    return spread(linear, LayerGroup(full, attention, mlp))
