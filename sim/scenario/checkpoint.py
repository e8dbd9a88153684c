"""Fills in the number formats in which the model of a scenario is published.

Engines load a checkpoint in its own format unless they are asked for another one. Works on plain
data as written; what is malformed is left to validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog.published import PublishedFormat, published_format
from sim.errors import UsageError
from sim.specs.precision import WIDE_ACTIVATIONS

Plain = Mapping[str, Any]

STATED = ("weights", "experts")
"""Keys of which one suffices: the scenario then says itself how the model is stored."""


def as_published(data: Plain, base: Path | None) -> Plain:
    """``data``, a scenario, with the formats of its model's checkpoint in ``precision``, where the
    catalogue knows them and the scenario states none. ``base`` is the folder of the files that it
    names."""
    given = data.get("precision")
    given = {} if given is None else given
    if not isinstance(given, Mapping) or any(given.get(key) is not None for key in STATED):
        return data
    model = data.get("model")
    name = model.get("path") if isinstance(model, Mapping) else model
    found = published_format(name) if isinstance(name, str) else None
    if found is None:
        return data
    computes = all(_computes(gpu, found, base) for gpu in _gpus(data.get("fleet")))
    stated = {key: value for key, value in given.items() if value is not None}
    return {**data, "precision": {**formats(found, computes=computes), **stated}}


def formats(found: PublishedFormat, *, computes: bool) -> dict[str, str]:
    """``found`` as keys of ``precision``; with the activations that go with it, where the GPUs have
    units for them (``computes``)."""
    usual = {"weights": found.weights}
    if found.experts is not None:
        usual["experts"] = found.experts
    return usual | ({"activations": activations(found)} if computes else {})


def activations(found: PublishedFormat) -> str:
    """The activations that usually go with the weights of ``found``."""
    return WIDE_ACTIVATIONS.get(found.weights, found.weights)


def _gpus(fleet: Any) -> Iterator[Any]:
    pools = fleet if isinstance(fleet, list) else [fleet]
    return (pool.get("gpu") for pool in pools if isinstance(pool, Mapping))


def _computes(gpu: Any, found: PublishedFormat, base: Path | None) -> bool:
    """Whether ``gpu`` has units for them; what is no GPU is said of the key itself."""
    try:
        return catalog.gpu(gpu, base).computes(activations(found))
    except (UsageError, TypeError, ValueError):
        return False
