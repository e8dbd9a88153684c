"""Reads the layers of a model file that describes any model made of known kinds of layers.

``parts`` names attentions and MLPs once, each of a ``kind`` with its numbers, and ``layers`` says
in which order they stand: a list of layers, each with the names of its ``attention`` and its
``mlp``, so many (``count``) in a row, or of ``{repeat: N, of: [...]}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from sim.catalog.fields import Fields, keys
from sim.errors import did_you_mean
from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.latent import Latent
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2
from sim.specs.no_attention import NoAttention
from sim.specs.short_convolution import ShortConvolution
from sim.specs.sparse import SparseLatent
from sim.specs.sparse_grouped import SparseGrouped

ATTENTIONS: dict[str, type] = {
    "grouped_query": GroupedQuery,
    "sparse_grouped": SparseGrouped,
    "latent": Latent,
    "sparse_latent": SparseLatent,
    "compressed_latent": CompressedLatent,
    "gated_delta": GatedDelta,
    "kimi_delta": KimiDelta,
    "mamba2": Mamba2,
    "lightning": Lightning,
    "short_convolution": ShortConvolution,
}
"""What may stand in the place of attention, by the names that files have for it."""

MLPS: dict[str, type] = {"dense": DenseMlp, "experts": MixtureOfExperts}

OFF = {"attention_bias": False, "qk_norm": False}
"""Keys that catalogue files have to state, and others may leave out."""

SCENARIO = ("skew",)
"""Fields that a scenario sets, not a model."""

MOST_LAYERS = 10_000


class _Layer(NamedTuple):
    """One layer, whatever its place."""

    attention: Attention
    mlp: Mlp
    parallel_mlp: bool
    post_norms: bool


def own_layers(shape: Fields) -> tuple[LayerGroup, ...]:
    """The groups of layers of ``shape``; UsageError, naming the key, for a shape that cannot be."""
    parts = shape.inner("parts")
    found = {name: _part(parts.inner(name)) for name in parts}
    places: dict[_Layer, list[int]] = {}
    for place, layer in enumerate(_expanded(shape, "layers", found)):
        if place >= MOST_LAYERS:
            raise shape.error("layers", f"expected at most {MOST_LAYERS:,} layers")
        places.setdefault(layer, []).append(place)
    if not any(
        isinstance(layer.attention, GroupedQuery | Latent | CompressedLatent) for layer in places
    ):
        raise shape.error(
            "layers", "expected at least one layer with attention to tokens, such as grouped_query"
        )
    return tuple(LayerGroup(len(at), *layer, places=tuple(at)) for layer, at in places.items())


def _part(part: Fields) -> Attention | Mlp:
    """One attention or MLP."""
    known = {**ATTENTIONS, **MLPS}
    kind = part.text("kind")
    if kind not in known:
        hint = did_you_mean(kind, list(known))
        raise part.error("kind", f"unknown kind {kind}{hint}; known: {', '.join(known)}")
    rest, record = part.without("kind"), known[kind]
    fields = keys(record, *SCENARIO)
    rest.only(fields)
    absent = {k: v for k, v in OFF.items() if k in fields and not rest.has(k)}
    try:
        given = {name: 0.0 for name in SCENARIO if name in keys(record)}
        return cast("Attention | Mlp", rest.with_values(absent).record(record, **given))
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        raise rest.error(key, problem) from None


def _expanded(place: Fields, key: str, parts: dict[str, Attention | Mlp]) -> Iterator[_Layer]:
    """The layers of a list, one by one."""
    for item in place.mappings(key):
        if item.has("repeat") or item.has("of"):
            item.only(["repeat", "of"])
            times = item.whole("repeat")
            layers = list(_expanded(item, "of", parts))
            if times * len(layers) > MOST_LAYERS:
                raise item.error("repeat", f"expected at most {MOST_LAYERS:,} layers")
            yield from layers * times
            continue
        item.only(["attention", "mlp", "count", "parallel_mlp", "post_norms"])
        attention = _named(item, "attention", parts, ATTENTIONS)
        mlp = _named(item, "mlp", parts, MLPS)
        if attention is None and mlp is None:
            raise item.error("attention", "a layer has an attention, an mlp, or both")
        layer = _Layer(
            cast("Attention", attention or NoAttention()),
            cast("Mlp", mlp or NoMlp()),
            item.flag("parallel_mlp", absent=attention is None or mlp is None),
            item.flag("post_norms", absent=False),
        )
        count = item.whole("count") if item.has("count") else 1
        if count > MOST_LAYERS:
            raise item.error("count", f"expected at most {MOST_LAYERS:,} layers")
        yield from [layer] * count


def _named(
    item: Fields, key: str, parts: dict[str, Attention | Mlp], kinds: dict[str, type]
) -> Attention | Mlp | None:
    """The part that a layer names under ``key``; None where it names none."""
    if not item.has(key) or item.value(key) is None:
        return None
    name = item.text(key)
    fitting = [each for each, part in parts.items() if type(part) in kinds.values()]
    if name not in fitting:
        hint = did_you_mean(name, fitting)
        raise item.error(
            key, f"no {key} of `parts` is called {name}{hint}; there are {', '.join(fitting)}"
        )
    return parts[name]
