"""Engines at a release: what changed, and what stands in for releases that are not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import sim
from sim import catalog
from sim.catalog.engine_release import preset_of
from sim.errors import ScenarioError, UsageError

CHAT = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 512},
        "output_tokens": {"kind": "fixed", "value": 128},
    },
}


@pytest.mark.parametrize(
    ("engine", "version", "preset", "covers"),
    [
        ("vllm", "0.6.3.post1", "vllm@0.8", False),
        ("vllm", "0.8.0", "vllm@0.8.0", True),
        ("vllm", "0.19.0", "vllm@0.19.0", True),
        ("vllm", "0.33.1", "vllm@0.33.1", True),
        ("vllm", "1.2", "vllm@0.33", False),
        ("vllm", None, "vllm@0.33", True),
        ("vllm", "main", "vllm@0.33", True),
        ("sglang", "0.4.0", "sglang@0.5.6", False),
        ("sglang", "0.5.10.post2", "sglang@0.5.10", True),
        ("tensorrt-llm", "0.20.0", "tensorrt-llm@1.0", False),
        ("tensorrt-llm", "1.1.0rc3", "tensorrt-llm@1.1.0", True),
    ],
)
def test_a_recorded_release_has_a_preset(
    engine: str, version: str | None, preset: str, covers: bool
) -> None:
    found = preset_of(engine, version)
    assert found is not None
    assert (found.preset, found.covers) == (preset, covers)
    assert catalog.engine(preset).title in found.note
    assert ("is not known" in found.note) == (not covers)


def test_an_engine_without_releases_has_none() -> None:
    assert preset_of("lmdeploy", "0.6") is None
    assert preset_of("ideal", "1.0") is None


def test_the_bare_name_is_the_newest_release() -> None:
    for name in catalog.names("engines"):
        engine = catalog.engine(name)
        if engine.releases is not None:
            asked = catalog.engine(f"{name}@{engine.releases.newest}")
            assert engine == replace(asked, sources=engine.sources)
            assert engine.label == f"{name}@{engine.releases.newest}"
            assert engine.title.endswith(engine.releases.newest)


def test_what_a_release_changed_holds_from_it_on() -> None:
    ahead = {at: catalog.engine(f"vllm@{at}").plans_ahead for at in ("0.13", "0.14", "0.33")}
    assert ahead == {"0.13": False, "0.14": True, "0.33": True}
    padded = [at for at in ("0.11", "0.12", "0.14.1", "0.15") if _aligns(f"vllm@{at}")]
    assert padded == ["0.12", "0.14.1"]


def _aligns(engine: str) -> bool:
    return bool(catalog.engine(engine).aligns_experts_on)


def test_a_release_that_is_too_old_or_malformed_is_refused_where_it_stands() -> None:
    for engine, said in (
        ("vllm@0.6", "release 0.6 is older than 0.8, the first that is known"),
        ("ideal@1.0", "this engine has no releases; leave out @1.0"),
        ("vlm@0.18", "no engine is called 'vlm' (did you mean 'vllm'?)"),
    ):
        with pytest.raises(ScenarioError) as found:
            sim.load_scenario({**CHAT, "engine": engine})
        assert "engine" in str(found.value)
        assert said in str(found.value)


def test_a_newer_release_is_taken_for_the_newest_and_says_so() -> None:
    scenario = sim.load_scenario({**CHAT, "engine": "vllm@0.99", "run": {"requests": 20}})
    notes = sim.simulate(scenario).summary["infersim"]["notes"]
    assert any("vLLM 0.99 is newer than 0.33, the newest release" in note for note in notes)


MINE = """
title: Mine
extends: vllm@0.13
per_sequence: 1us
"""


def test_a_file_may_extend_an_engine_at_a_release(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    mine = catalog.engine(tmp_path / "mine.yaml")
    assert (mine.title, mine.release, mine.per_sequence) == ("Mine", "0.13", 1e-6)
    assert not mine.plans_ahead
    assert mine.sources["plans_ahead"] == catalog.engine("vllm@0.13").sources["plans_ahead"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("[{since: '0.3', launch: 1us}, {since: '0.2', launch: 2us}]", "changes are in order"),
        ("[{since: new, launch: 1us}]", "expected a release such as '0.14'"),
    ],
)
def test_changes_are_checked(tmp_path: Path, changes: str, said: str) -> None:
    text = (catalog.entries.FOLDER / "engines" / "ideal.yaml").read_text()
    span = "releases: {value: {first: '0.1', newest: '0.4'}, source: mine}"
    (tmp_path / "mine.yaml").write_text(f"{text}\n{span}\nchanges: {changes}\n")
    with pytest.raises(UsageError, match=said):
        catalog.engine(tmp_path / "mine.yaml")


def test_an_engine_that_is_shown_stays_of_its_release(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump(dict(catalog.written("engines", "vllm@0.13"))))
    old = catalog.engine(path)
    assert (old.title, old.release) == ("vLLM 0.13", "0.13")
    assert replace(old, name="vllm") == catalog.engine("vllm@0.13")
    (tmp_path / "mine.yaml").write_text("extends: old.yaml@0.14\n")
    with pytest.raises(UsageError, match=r"this engine is of one release; leave out @0\.14"):
        catalog.engine(tmp_path / "mine.yaml")


def test_choices_of_a_release_go_before_those_of_older_ones(tmp_path: Path) -> None:
    """A release states what is new: the rest holds as it did, with the sources of both."""
    text = (catalog.entries.FOLDER / "engines" / "ideal.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(
        f"""{text}
releases: {{value: {{first: '0.1', newest: '0.2'}}, source: mine}}
defaults:
  value: [{{set: {{scheduler.max_num_seqs: 8, kv_cache.block_size: 32}}}}]
  source: the first.
changes:
  - since: '0.2'
    defaults:
      value: [{{memory: 60GiB, set: {{scheduler.max_num_seqs: 9}}}}]
      source: the second.
"""
    )
    mine = catalog.engine(tmp_path / "mine.yaml")
    small, large = (mine.defaults_on("H100", size * 2.0**30) for size in (40, 80))
    assert small == {"scheduler.max_num_seqs": 8, "kv_cache.block_size": 32}
    assert large == small | {"scheduler.max_num_seqs": 9}
    assert mine.sources["defaults"] == "the second. Before: the first."
