"""Presets by release of an engine: one mechanism, stated by the presets themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sim import catalog
from sim.catalog.releases import preset_of, presets_of
from sim.scenario.schema import Scenario


@pytest.mark.parametrize(
    ("engine", "version", "preset", "covers"),
    [
        ("vllm", "0.6.3.post1", "vllm-0.13", False),
        ("vllm", "0.8.0", "vllm-0.13", True),
        ("vllm", "0.13.0", "vllm-0.13", True),
        ("vllm", "0.14.0", "vllm", True),
        ("vllm", "0.17.1", "vllm", True),
        ("vllm", "0.19.0", "vllm-0.18", True),
        ("vllm", "1.2", "vllm-0.18", True),
        ("vllm", None, "vllm", True),
        ("vllm", "main", "vllm", True),
        ("sglang", "0.4.0", "sglang", False),
        ("sglang", "0.5.6.post2", "sglang", True),
        ("tensorrt-llm", "0.20.0", "tensorrt-llm", False),
        ("tensorrt-llm", "1.1.0rc3", "tensorrt-llm", True),
    ],
)
def test_a_release_has_the_preset_that_names_it(
    engine: str, version: str | None, preset: str, covers: bool
) -> None:
    found = preset_of(engine, version)
    assert found is not None
    assert (found.preset, found.covers) == (preset, covers)
    assert catalog.engine(preset).title in found.note
    assert ("is not known" in found.note) == (not covers)


def test_an_engine_without_presets_has_none() -> None:
    assert preset_of("lmdeploy", "0.6") is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_releases_of_presets_neither_overlap_nor_leave_gaps(engine: str) -> None:
    stated = [each.releases for each in presets_of(engine)]
    for one, other in pairwise(stated):
        assert one is not None
        assert other is not None
        assert one.before == other.since
    assert stated[-1] is not None
    assert stated[-1].before == ""


def test_what_the_schema_says_of_releases_is_what_presets_say() -> None:
    told = Scenario.model_fields["engine"].description or ""
    for spec in presets_of("vllm"):
        assert spec.releases is not None
        assert spec.name in told
        assert spec.releases.since in told or spec == presets_of("vllm")[0]
