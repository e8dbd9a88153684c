"""Which models are measured and run here: those whose layers are all alike and see everything."""

from __future__ import annotations

import pytest

from calibrate.dense import dense_layer, dense_models
from sim import catalog
from sim.errors import UsageError


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gemma-2-9b", "gpt-oss-20b", "mixtral-8x7b"])
def test_layers_of_another_kind_are_refused(name: str) -> None:
    assert name not in {model.name for model in dense_models()}
    with pytest.raises(UsageError, match=f"model: {name} has layers of a kind that is not"):
        dense_layer(catalog.model(name))


def test_dense_layers_are_found() -> None:
    names = {model.name for model in dense_models()}
    assert {"llama-3.1-8b", "gpt-j-6b", "mistral-7b", "qwen3-8b"} <= names
    assert dense_layer(catalog.model("mistral-7b")).attention.sliding_window is None
