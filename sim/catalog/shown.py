"""Provides what infersim takes from an entry of the catalogue or a user's file, as plain data.

A file is read as a run reads it, so that a mistake in it is refused here too. What it leaves out
stands next to what it says, with the source of the value that is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sim import catalog
from sim.catalog.entries import Kind, names, shipped
from sim.catalog.gpu_file import assumptions
from sim.catalog.lookup import find
from sim.catalog.relatives import ASSUMED
from sim.catalog.releases import spelled
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec


def shown(kind: Kind, name: str) -> dict[str, object]:
    """The entry or the file ``name`` with what is taken where it is silent; UsageError as for a
    run."""
    path = find(kind, spelled(name).name if kind == "engines" else name, None)
    if kind == "models":
        if name in names(kind):
            return catalog.written(kind, name)
        return _model(catalog.model(name))
    if kind == "engines":
        if not shipped(kind, path):
            catalog.engine(path)
        return catalog.written(kind, name)
    spec = catalog.gpu(name)
    relative = spec.relative
    document = catalog.written(kind, name)
    assumed = assumptions(None if relative is None else catalog.gpu(relative, path.parent))
    taken: dict[str, object] = {
        key: {"value": value, "source": source}
        for key, (value, source) in assumed.items()
        if key not in document and "extends" not in document
    }
    if relative is not None and spec.sources.get("relative", "").startswith(ASSUMED):
        taken = {"relative": {"value": relative, "source": ASSUMED}} | taken
    return {**document, **taken}


def _model(model: ModelSpec) -> dict[str, object]:
    """The facts read of a model that has no entry of its own."""
    context: object = model.max_position_embeddings
    if model.assumed_context:
        context = {"value": context, "source": "default of transformers for the class; not stated"}
    found: dict[str, object] = {
        "source": model.source,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tie_word_embeddings,
        "max_position_embeddings": context,
        "mtp_layers": model.mtp_layers,
        **({"hyper_connections": model.hyper_connections} if model.mixes else {}),
        "layers": [_layers(group) for group in model.layers],
        "published_format": _format(model),
    }
    return {**found, **({"read_as": list(model.remarks)} if model.remarks else {})}


def _layers(group: LayerGroup) -> dict[str, object]:
    return {
        "count": group.count,
        "attention": {"kind": type(group.attention).__name__, **_fields(group.attention)},
        "mlp": {"kind": type(group.mlp).__name__, **_fields(group.mlp)},
    }


def _fields(part: object) -> dict[str, object]:
    """The fields of a part of a layer that are not off."""
    found: Mapping[str, object] = asdict(part)  # type: ignore[call-overload]
    return {key: value for key, value in found.items() if value not in (None, False)}


def _format(model: ModelSpec) -> object:
    """How its checkpoint is stored."""
    stored = model.published
    if stored is None:
        return "16 bits: its files state no other"
    if stored.problem is not None:
        return {"problem": stored.problem}
    found = {"weights": stored.weights, "experts": stored.experts, "kv_cache": stored.kv_cache}
    told = {"activations": stored.activations, "source": stored.source, "note": stored.note}
    return {key: value for key, value in (found | told).items() if value is not None}


def kind_of_file(path: Path) -> Kind:
    """The kind of a file or folder: a folder and JSON describe a model, as on Hugging Face."""
    if path.is_dir() or path.suffix == ".json":
        return "models"
    return catalog.kind_of(path)
