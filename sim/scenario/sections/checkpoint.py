"""Fills in the number formats in which the model of a scenario is published.

Engines load a checkpoint in its own format unless they are asked for another one: that of the
catalogue, of the files of a checkpoint, or that its name states. Works on plain data as written;
what is malformed is left to validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog.published import INSTEAD
from sim.errors import UsageError
from sim.scenario.values.fields import trouble
from sim.specs.precision import WIDE_ACTIVATIONS
from sim.specs.published import PublishedFormat

Plain = Mapping[str, Any]

STATED = ("weights", "experts")
"""Keys of which one suffices: the scenario then says itself how the model is stored."""


def as_published(data: Plain, base: Path | None) -> Plain:
    """``data``, a scenario, with the formats of its model's checkpoint in ``precision``, where they
    are known and the scenario states none. ``base`` is the folder of the files that it names.
    Raises the error of a checkpoint whose formats cannot be represented."""
    given = data.get("precision")
    given = {} if given is None else given
    if not isinstance(given, Mapping) or any(given.get(key) is not None for key in STATED):
        return data
    model = data.get("model")
    name = model.get("path") if isinstance(model, Mapping) else model
    found = _published(name, base)
    if found is None:
        return data
    if found.problem is not None:
        raise trouble(f"{found.problem}; {INSTEAD}", ("model",))
    computes = all(_computes(gpu, found, base) for gpu in _gpus(data.get("fleet")))
    stated = {key: value for key, value in given.items() if value is not None}
    usual = formats(found, computes=computes)
    if "activations" in stated:
        usual.pop("quantisation", None)
    return {**data, "precision": {**usual, **stated}}


def formats(found: PublishedFormat, *, computes: bool) -> dict[str, str]:
    """``found`` as keys of ``precision``; with the activations that go with it, where the GPUs have
    units for them (``computes``)."""
    usual = {"weights": found.weights}
    if found.experts is not None:
        usual["experts"] = found.experts
    if found.kv_cache is not None:
        usual["kv_cache"] = found.kv_cache
    if computes:
        usual["activations"] = activations(found)
        usual |= {"quantisation": "static"} if found.static else {}
    return usual


def activations(found: PublishedFormat) -> str:
    """The activations of ``found``, or those that usually go with its weights."""
    return found.activations or WIDE_ACTIVATIONS.get(found.weights, found.weights)


def _published(name: Any, base: Path | None) -> PublishedFormat | None:
    """The formats of the model's checkpoint; what is no model is said of the key itself."""
    try:
        return catalog.model(name, base).published if isinstance(name, str) else None
    except (UsageError, TypeError, ValueError):
        return None


def _gpus(fleet: Any) -> Iterator[Any]:
    pools = fleet if isinstance(fleet, list) else [fleet]
    return (pool.get("gpu") for pool in pools if isinstance(pool, Mapping))


def _computes(gpu: Any, found: PublishedFormat, base: Path | None) -> bool:
    """Whether ``gpu`` has units for them; what is no GPU is said of the key itself."""
    try:
        return catalog.gpu(gpu, base).computes(activations(found))
    except (UsageError, TypeError, ValueError):
        return False
