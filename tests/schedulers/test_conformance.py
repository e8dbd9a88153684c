"""The batches of the continuous scheduler are those that vLLM itself ran, step by step.

The recordings in ``conformance`` were made of vLLM, with its scheduler alone or executing a model.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.observers import lazy_vllm
from sim.errors import UsageError
from tests.conformance.batches import Asked
from tests.conformance.replay import (
    assert_same_steps,
    computed_in,
    release_of,
    replay,
    sorted_step,
)
from tests.conformance.vllm_alone import AloneSettings
from tests.conformance.vllm_batches import VllmRecording, record
from tests.places import ROOT

FOLDER = ROOT / "tests" / "conformance"
NEWER = FOLDER / "vllm-0.33"
RECORDINGS = sorted([*FOLDER.glob("*.json"), *FOLDER.glob("vllm-*/*.json")])
HAVE_VLLM = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not HAVE_VLLM, reason="vLLM is not installed")


def load(path: Path) -> VllmRecording:
    return VllmRecording.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_step_is_that_of_vllm(path: Path) -> None:
    recording = load(path)
    ours = replay(recording.settings, recording.requests, release_of(recording))
    assert_same_steps(ours, recording.steps)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recording_is_of_everything_that_was_asked(path: Path) -> None:
    recording = load(path)
    computed = computed_in(recording)
    for step in recording.steps:
        assert sum(step.tokens.values()) <= recording.settings.max_num_batched_tokens
        assert len(step.tokens) <= recording.settings.max_num_seqs
    for number, asked in enumerate(recording.requests):
        found = asked.prompt + asked.output - 1 - computed[number]
        if recording.settings.drafts:  # those that are rejected are computed, too
            continue
        assert found >= 0
        assert found % recording.settings.block_size == 0
        assert recording.settings.enable_prefix_caching or not found
    assert recording.dumps() == path.read_text(encoding="utf-8")


def test_the_recordings_cover_what_matters() -> None:
    all_of_them = {str(path): load(path) for path in RECORDINGS}
    preempted = {
        name: sum(len(step.preempted) for step in recording.steps)
        for name, recording in all_of_them.items()
    }
    assert sum(count >= 3 for count in preempted.values()) >= 8
    assert sum(recording.executed for recording in all_of_them.values()) >= 3
    assert {r.settings.block_size for r in all_of_them.values()} >= {16, 32}
    assert {r.settings.scheduling_policy for r in all_of_them.values()} == {"fcfs", "priority"}
    assert any(r.requests[-1].before > 0 and preempted[n] for n, r in all_of_them.items())
    for release in ("0.32", "0.33"):
        features = [r.settings for r in all_of_them.values() if release_of(r) == release]
        assert any(each.async_scheduling for each in features)
        assert any(each.drafts and each.enable_prefix_caching for each in features)


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("priority-blocks", "0.32"),
        ("drafts-prefix", "0.32"),
        ("drafts-async-prefix", "0.32"),
        ("windows-agents", "0.28"),
        ("windows-agents-evicted", "0.28"),
    ],
)
def test_the_rule_that_changed_is_that_of_the_release(name: str, before: str) -> None:
    recording = load(NEWER / f"{name}.json")
    older = replay(recording.settings, recording.requests, before)
    assert list(map(sorted_step, older)) != list(map(sorted_step, recording.steps))


@pytest.mark.parametrize("name", ["interval", "interval-async", "interval-prefix"])
def test_an_interval_changes_the_steps_of_an_engine_without_data_ranks(name: str) -> None:
    recording = load(NEWER / f"{name}.json")
    always = replace(recording.settings, prefill_schedule_interval=1)
    steps = replay(always, recording.requests, release_of(recording))
    assert list(map(sorted_step, steps)) != list(map(sorted_step, recording.steps))


def test_recordings_with_a_prefix_cache_find_much_and_lose_much() -> None:
    """So that equal steps say something: blocks are found, evicted, and found again by those that
    were preempted."""
    recordings = [load(path) for path in RECORDINGS if path.stem.startswith("prefix")]
    assert len(recordings) >= 10
    assert all(recording.settings.enable_prefix_caching for recording in recordings)
    for recording in recordings:
        computed = sum(sum(step.tokens.values()) for step in recording.steps)
        asked = sum(each.prompt + each.output - 1 for each in recording.requests)
        lost = any(step.preempted for step in recording.steps)
        assert lost or computed < 0.9 * asked
    assert sum(any(s.preempted for s in recording.steps) for recording in recordings) >= 3
    assert any(text < 0 for r in recordings for asked in r.requests for text, _ in asked.prefix)


def test_a_watermark_saves_preemptions() -> None:
    recording = load(FOLDER / "vllm-0.33" / "watermark-blocks.json")
    without = replace(recording.settings, watermark=0.0)
    steps = replay(without, recording.requests, "0.33")
    kept = sum(len(step.preempted) for step in recording.steps)
    assert kept < sum(len(step.preempted) for step in steps)


@pytest.mark.parametrize(("release", "held_back"), [("0.30", True), ("0.31", False)])
def test_the_threshold_held_back_a_lone_prompt_before_0_31(release: str, held_back: bool) -> None:
    settings = AloneSettings(
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_model_len=256,
        block_size=16,
        num_gpu_blocks=20,
        long_prefill_token_threshold=10,
    )
    first = replay(settings, [Asked(100, 1, 0)], release)[0]
    assert first.tokens == {0: 10 if held_back else 64}


def test_a_lone_prompt_is_not_held_back_by_the_threshold() -> None:
    recording = load(FOLDER / "threshold-late.json")
    cap, budget = recording.settings.long_prefill_token_threshold, recording.settings
    given = [max(step.tokens.values()) for step in recording.steps]
    assert given[0] == budget.max_num_batched_tokens > cap > 0
    assert cap in given


@pytest.mark.skipif(HAVE_VLLM, reason="vLLM is installed")
def test_recording_without_vllm_says_what_is_missing() -> None:
    recording = load(RECORDINGS[0])
    with pytest.raises(UsageError, match=r"needs the package vllm.*infersim\[vllm\]"):
        record(recording.settings, recording.requests)


@needs_vllm
def test_vllm_still_runs_what_was_recorded() -> None:
    ours = [path for path in RECORDINGS if load(path).version == lazy_vllm.version()]
    done = run("tests.conformance.vllm_batches", "--check", *map(str, ours))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@needs_vllm
def test_random_requests_are_batched_as_vllm_batches_them() -> None:
    done = run("tests.conformance.chance", "300")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module in a process of its own: vLLM changes much of the one it is imported into."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
