"""The catalogue says in which format a checkpoint is published, and ``fit`` names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.catalog.published import published_format, published_note
from sim.specs.deployment import Deployment
from sim.specs.precision import precision_bytes


def stored(model, weights, experts=None):
    """A deployment with its matrices in that format."""
    return Deployment(
        model=catalog.model(model),
        gpu=catalog.gpu("h200-sxm"),
        engine=catalog.engine("vllm"),
        weights=weights,
        activations="bf16",
        kv_cache="bf16",
        experts=experts,
    )


@pytest.mark.parametrize("name", catalog.names("models"))
def test_a_published_format_is_one_that_weights_may_have(name):
    found = published_format(name)
    if found is not None:
        assert precision_bytes(found.stored) < precision_bytes("bf16")
        assert len(found.source) > 20
        assert stored(name, found.stored).model.weight_bytes("bf16") > 0


def test_models_in_16_bits_are_not_mentioned():
    assert published_note(stored("llama-3.1-8b", "bf16")) is None
    assert published_format("./config.json") is None


def test_what_is_counted_otherwise_is_named_with_how_to_ask_for_it():
    note = published_note(stored("gpt-oss-20b", "bf16"))
    assert note is not None
    assert "mxfp4 (experts)" in note
    assert "precision.experts: mxfp4" in note
    assert "fp8-block" in (published_note(stored("deepseek-v3", "bf16")) or "")


def test_what_is_counted_as_published_has_no_note():
    assert published_note(stored("gpt-oss-20b", "bf16", experts="mxfp4")) is None
    fp8 = replace(stored("deepseek-v3", "bf16"), weights="fp8-block")
    assert published_note(fp8) is None
