"""The catalogue says in which format a checkpoint is published, and ``fit`` names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.catalog.entries import FOLDER
from sim.catalog.published import origin_notes, published_note, wider_than_published
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
    found = catalog.model(name).published
    if found is not None:
        assert precision_bytes(found.stored) < precision_bytes("bf16")
        assert len(found.source) > 20
        assert stored(name, found.stored).model.weight_bytes("bf16") > 0


def test_kimi_k2_5_takes_what_its_publisher_states():
    """595 GB on Hugging Face, encoder of pictures (0.9 GB) included; groups of 32 make it 8 %."""
    found = catalog.model("kimi-k2.5")
    assert found.published[:2] == ("bf16", "int4-group32")
    size = found.weight_bytes(found.published.weights, experts=found.published.experts)
    assert size == pytest.approx(594.2e9, rel=0.01)


def test_models_in_16_bits_are_not_mentioned():
    assert published_note(stored("llama-3.1-8b", "bf16")) is None
    assert origin_notes(stored("llama-3.1-8b", "bf16")) == []
    assert wider_than_published(stored("llama-3.1-8b", "bf16")) is None


def test_what_is_counted_otherwise_is_named_with_how_to_ask_for_it():
    note = published_note(stored("gpt-oss-20b", "bf16"))
    assert note is not None
    assert "mxfp4 (experts)" in note
    assert "`--weights bf16 --experts mxfp4`" in note.replace("` `", " ")
    assert "precision.experts: mxfp4" in note
    assert "fp8-block" in (published_note(stored("deepseek-v3", "bf16")) or "")


def test_what_is_counted_as_published_says_whose_word_that_is():
    gpt = stored("gpt-oss-20b", "bf16", experts="mxfp4")
    assert published_note(gpt) is None
    assert origin_notes(gpt) == [
        "Formats as published, mxfp4 (experts) and bf16 (the rest): quantization_config of "
        "openai/gpt-oss-20b on Hugging Face, mxfp4 except for attention, router and embeddings."
    ]
    fp8 = replace(stored("deepseek-v3", "bf16"), weights="fp8-block")
    assert published_note(fp8) is None


@pytest.mark.parametrize("name", catalog.names("models"))
def test_a_model_has_a_checkpoint_which_is_read_as_that_model(name):
    """So that launch commands name something that exists, and its id is understood."""
    repository = catalog.checkpoint(name)
    assert repository.count("/") == 1
    assert catalog.model(repository).layers == catalog.model(name).layers
    assert catalog.model(repository).name == name
    text = (FOLDER / "models" / f"{name}.yaml").read_text()
    assert f"{repository} on" in " ".join(text.split())  # a source names the same
