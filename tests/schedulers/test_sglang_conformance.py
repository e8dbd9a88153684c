"""The batches of ``policy: sglang`` are those that SGLang's own scheduler makes, step by step.

The recordings in ``conformance/sglang`` were made by driving it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import UsageError
from tests.conformance.batches import Asked, BatchStep
from tests.conformance.replay import assert_same_steps, computed_in
from tests.conformance.sglang_batches import SglangRecording, record
from tests.conformance.sglang_chance import draw
from tests.conformance.sglang_replay import replay_sglang
from tests.places import ROOT

FOLDER = ROOT / "tests" / "conformance" / "sglang"
RECORDINGS = sorted(FOLDER.glob("*.json"))
HAVE_SGLANG = importlib.util.find_spec("sglang") is not None


def load(path: Path) -> SglangRecording:
    return SglangRecording.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_step_is_that_of_sglang(path: Path) -> None:
    recording = load(path)
    ours = replay_sglang(recording.settings, recording.requests)
    assert_same_steps(ours, recording.steps)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_of_everything_that_was_asked(path: Path) -> None:
    recording = load(path)
    computed = computed_in(recording)
    for step in recording.steps:
        assert len(step.tokens) <= recording.settings.max_running_requests
    for number, asked in enumerate(recording.requests):
        if recording.settings.disable_radix_cache or not asked.prefix:
            assert computed[number] == asked.prompt + asked.output - 1
        else:
            assert asked.output <= computed[number] < asked.prompt + asked.output
    assert recording.dumps() == path.read_text(encoding="utf-8")


def test_the_recordings_cover_what_matters() -> None:
    all_of_them = {path.stem: load(path) for path in RECORDINGS}
    retracted = {
        name: sum(len(step.preempted) for step in recording.steps)
        for name, recording in all_of_them.items()
    }
    settings = [recording.settings for recording in all_of_them.values()]
    assert sum(count >= 3 for count in retracted.values()) >= 2
    assert {1, 16} <= {s.page_size for s in settings}
    for key in ("disable_overlap_schedule", "ignore_eos", "disable_radix_cache"):
        assert {getattr(s, key) for s in settings} == {True, False}
    assert any(s.chunked_prefill_size < 0 for s in settings)
    assert any(s.max_new_tokens > 4096 for s in settings)
    assert all_of_them["radix"].requests == all_of_them["lengths"].requests
    assert all_of_them["radix"].steps != all_of_them["lengths"].steps


def test_the_recordings_with_hits_cover_what_matters() -> None:
    cached = {path.stem: load(path) for path in RECORDINGS if path.stem.startswith("radix-")}
    assert len(cached) >= 10
    assert all(found(recording.requests, recording.steps) for recording in cached.values())
    settings = [recording.settings for recording in cached.values()]
    assert {s.schedule_policy for s in settings} == {"fcfs", "lpm"}
    for key in ("disable_overlap_schedule", "ignore_eos", "enable_mixed_chunk"):
        assert {getattr(s, key) for s in settings} == {True, False}
    assert {1, 16, 32} <= {s.page_size for s in settings}
    reordered = {name for name, recording in cached.items() if is_reordered(recording)}
    assert reordered
    assert all(cached[name].settings.schedule_policy == "lpm" for name in reordered)
    for name in ("radix-retracted", "radix-lpm-retracted"):
        assert sum(len(step.preempted) for step in cached[name].steps) >= 3
    starved = 0
    for recording in cached.values():
        ample = replace(recording.settings, max_total_num_tokens=64_000)
        more = found(recording.requests, replay_sglang(ample, recording.requests))
        starved += more > found(recording.requests, recording.steps)
    assert starved >= 5  # what was evicted would have been found


@pytest.mark.parametrize("seed", range(40))
def test_no_page_or_lock_is_lost_on_random_requests(seed: int) -> None:
    settings, requests = draw(seed)
    steps = replay_sglang(settings, requests)  # which checks the tree and the pages in each step
    assert sorted(n for step in steps for n in step.finished) == list(range(len(requests)))
    if not any(step.preempted for step in steps):
        assert found(requests, steps) >= 0


def found(requests: Sequence[Asked], steps: Sequence[BatchStep]) -> int:
    """Tokens that were not computed, less those that were computed again."""
    asked = sum(request.prompt + request.output - 1 for request in requests)
    return asked - sum(sum(step.tokens.values()) for step in steps)


def is_reordered(recording: SglangRecording) -> bool:
    """Whether a request began before one that came before it."""
    began = list(dict.fromkeys(number for step in recording.steps for number in step.tokens))
    return began != sorted(began)


@pytest.mark.skipif(HAVE_SGLANG, reason="SGLang is installed")
def test_recording_without_sglang_says_what_is_missing() -> None:
    recording = load(RECORDINGS[0])
    with pytest.raises(UsageError, match="needs the package sglang"):
        record(recording.settings, recording.requests)
