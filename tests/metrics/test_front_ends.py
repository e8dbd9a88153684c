"""Front ends that are nearly as busy as they can be."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.metrics.record.run_record import RunRecord
from sim.metrics.words.front_end_words import front_end_busy


def served(rate: float, **changes: Any) -> RunRecord:
    """Answers of 40 tokens on an H100 that could give many more than its front end can."""
    scenario = sim.load_scenario(
        {
            "model": "llama-3.2-1b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": "tensorrt-llm",
            "max_model_len": 512,
            "workload": {
                "arrivals": {"kind": "constant", "rate": rate},
                "prompt_tokens": {"kind": "fixed", "value": 16},
                "output_tokens": {"kind": "fixed", "value": 40},
            },
            "run": {"requests": 200, "warmup": 0},
        }
    )
    return sim.simulate(scenario.override(changes)).record


def test_a_front_end_is_busy_with_requests_and_tokens() -> None:
    """20 ms for each of 20 requests a second, and 60 us for each of their 40 tokens."""
    assert front_end_busy(served(20)) == pytest.approx(20 * (0.02 + 40 * 60e-6), rel=0.02)


def test_two_replicas_share_the_work() -> None:
    assert front_end_busy(served(20, **{"fleet.replicas": 2})) == pytest.approx(
        front_end_busy(served(20)) / 2, rel=0.02
    )


def test_an_engine_without_such_a_thread_is_not_busy() -> None:
    run = served(20, engine="vllm")
    assert front_end_busy(run) == 0.0


def test_a_user_is_told_where_it_limits() -> None:
    def told(rate: float) -> bool:
        scenario = served(rate).scenario
        notes = sim.simulate(scenario).summary["infersim"]["notes"]
        return any(note.startswith("The front end") for note in notes)

    assert told(44)
    assert not told(20)


def front_end_notes(summary: dict[str, Any]) -> list[str]:
    return [note for note in summary["infersim"]["notes"] if note.startswith("The front end")]


def test_more_than_one_thread_can_do_is_an_overload() -> None:
    """A request takes 22.4 ms of the thread, so that 46 a second take 1.03 of it."""
    summary = sim.simulate(served(46).scenario).summary
    verdict = summary["infersim"]["verdict"]
    assert verdict["utilisation"] == pytest.approx(46 * (0.02 + 40 * 60e-6), rel=0.08)
    assert "limits the rate" in front_end_notes(summary)[0]
    near = sim.simulate(served(43).scenario).summary
    assert "near the most" in front_end_notes(near)[0]
    double = sim.simulate(served(46, **{"fleet.replicas": 2}).scenario).summary
    assert double["infersim"]["verdict"]["utilisation"] == pytest.approx(
        verdict["utilisation"] / 2, rel=0.08
    )


def test_a_front_end_before_workers_apart_is_said_to_be_left_out() -> None:
    one = {"gpu": "h100-sxm"}
    fleet = [{"role": role, "name": role, **one} for role in ("prefill", "decode")]
    summary = sim.simulate(served(20, fleet=fleet).scenario).summary
    (told,) = front_end_notes(summary)
    assert "not simulated" in told
    assert "50 requests/s" in told
    other = sim.simulate(served(20, fleet=fleet, engine="vllm").scenario).summary
    assert not front_end_notes(other)


def test_servers_that_do_not_exist_are_said_to() -> None:
    """An engine of NVIDIA's on another's GPU, and a cache that one engine leaves to another."""
    amd = sim.simulate(served(20, **{"fleet.gpu": "mi300x"}).scenario).summary
    assert any("does not run on AMD" in note for note in amd["infersim"]["notes"])
    one = {"gpu": "h100-sxm"}
    fleet = [
        {"role": "prefill", "name": "prefill", "engine": "sglang", **one},
        {"role": "decode", "name": "decode", **one},
    ]
    for engine, expected in (("vllm", True), ("sglang", False)):
        summary = sim.simulate(served(20, fleet=fleet, engine=engine).scenario).summary
        told = any("each other's KV caches" in note for note in summary["infersim"]["notes"])
        assert told is expected
