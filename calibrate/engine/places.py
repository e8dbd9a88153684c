"""Lays the layers of a model out over the groups that share one pool of KV blocks.

As ``sim.memory.groups`` counts them: a block holds tokens of one group of layers, so that the
blocks of any group can become those of another one. Layers at the same place of their groups share
a tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.errors import UsageError
from sim.memory import Allocator
from sim.memory.groups import KvGroup, group_size
from sim.memory.windowed import WindowedAllocator
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import Attention
from sim.specs.model import ModelSpec
from sim.specs.stages import kinds_of_layers
from sim.specs.window import Window


class LayerPlace(NamedTuple):
    """The group of a layer, and which of its layers it is."""

    group: int
    at: int


@dataclass(frozen=True, slots=True)
class KvPlaces:
    """``windows`` has an entry for each group, None where nothing is given back; ``layers`` one for
    each layer of the model. A group has ``size`` layers, or fewer. A token keeps ``parts`` in a
    layer: heads x size of keys and of values, or one latent vector."""

    windows: tuple[Window | None, ...]
    layers: tuple[LayerPlace, ...]
    size: int
    parts: tuple[tuple[int, int], ...]

    @property
    def token(self) -> int:
        """Numbers that a token keeps in one group."""
        return self.size * sum(heads * size for heads, size in self.parts)


def groups_of(kv: Allocator) -> tuple[KvGroup, ...]:
    """The kinds of groups that ``kv`` hands out blocks to."""
    if isinstance(kv, WindowedAllocator):
        return kv.groups
    return (KvGroup(1, None, kv.block_size),)


def kv_places(spec: ModelSpec, groups: Sequence[KvGroup] | None = None) -> KvPlaces:
    """Where the layers of ``spec`` keep their tokens; without ``groups``, all in one that gives
    nothing back. UsageError for layers that keep tokens of different sizes."""
    attentions = [spec.layers[kind].attention for kind in kinds_of_layers(spec)]
    parts = {_parts(spec, attention) for attention in attentions}
    if len(parts) > 1:
        raise UsageError(
            f"{spec.name} has layers that keep different amounts of a token: the engine runs only "
            "models whose layers all keep the same"
        )
    kinds = list(groups or [KvGroup(1, None, 1)])
    windows = [kind.window for kind in kinds for _ in range(kind.number)]
    if len(windows) == 1:
        layers = [LayerPlace(0, at) for at in range(len(attentions))]
        return KvPlaces(tuple(windows), tuple(layers), len(layers), parts.pop())
    size = group_size(Counter(attention.window for attention in attentions).values())
    met: Counter[Window | None] = Counter()
    layers = []
    for attention in attentions:
        number, at = divmod(met[attention.window], size)
        layers.append(LayerPlace(windows.index(attention.window) + number, at))
        met[attention.window] += 1
    return KvPlaces(tuple(windows), tuple(layers), size, parts.pop())


def _parts(spec: ModelSpec, attention: Attention) -> tuple[tuple[int, int], ...]:
    if isinstance(attention, GroupedQuery):
        heads = (attention.num_kv_heads, attention.head_dim)
        return heads, heads
    if type(attention) is Latent:
        return ((1, attention.latent_size),)
    raise UsageError(
        f"{spec.name} has layers of a kind that the engine does not run; choose a model whose "
        "layers have grouped-query or latent attention"
    )
