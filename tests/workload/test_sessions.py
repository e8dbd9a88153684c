"""Sessions are drawn as wholes, each property from a stream of its own."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import ScenarioError
from sim.workload import SessionTraffic, build
from sim.workload.sessions import Between, Conversation, Delay, GeometricLaw
from sim.workload.shared import Groups
from tests.golden_scenarios import changed
from tests.places import VLLM

BASE: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "a10g"},
    "engine": VLLM,
    "max_model_len": 1000,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 2},
        "prompt_tokens": {"kind": "uniform", "low": 5, "high": 60},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
        "sessions": {
            "turns": {"kind": "geometric", "mean": 4},
            "think_time": {"kind": "lognormal", "mean": "20s", "cv": 1},
        },
    },
    "run": {"requests": 200},
}


def drawn(count: int, changes: dict[str, Any] | None = None, seed: int = 1) -> list[Conversation]:
    traffic = build(sim.load_scenario(changed(BASE, changes or {})), seed)
    assert isinstance(traffic, SessionTraffic)
    return list(islice(traffic.sessions(), count))


def texts(session: Conversation) -> list[list[tuple[int, int]]]:
    """What is new in each prompt, and its answer: what was drawn."""
    found, said = [], 0
    for turn in session.turns:
        found.append([(prompt - turn.history - said, out) for prompt, out in turn.requests])
        said = sum(out for _, out in turn.requests[1:])
    return found


def delays(session: Conversation) -> list[float]:
    return [turn.delay for turn in session.turns]


def test_a_prompt_is_what_was_said_before_and_something_new() -> None:
    session = next(s for s in drawn(20) if len(s.turns) >= 3)
    spoken = 0
    for turn, ((new, answer),) in zip(session.turns, texts(session), strict=True):
        assert turn.history == spoken
        assert turn.requests == [(spoken + new, answer)]
        assert 5 <= new <= 60
        spoken += new + answer
    assert session.turns[0].delay == 0
    assert all(turn.delay > 0 for turn in session.turns[1:])


def test_without_answers_only_prompts_are_sent_again() -> None:
    for session in drawn(20, {"workload.sessions.keep_answer": False}):
        spoken = 0
        for turn in session.turns:
            assert turn.history == spoken
            spoken = turn.requests[0][0]


def test_the_first_branch_goes_on_and_the_answers_of_the_others_are_new() -> None:
    sessions = drawn(40, {"workload.sessions.branches": {"kind": "fixed", "value": 3}})
    for session in sessions:
        history = said = 0
        for turn in session.turns:
            assert turn.history == history
            assert len(turn.requests) == 3
            assert all(5 <= prompt - history - said <= 60 for prompt, _ in turn.requests)
            history = sum(turn.requests[0])
            said = sum(output for _, output in turn.requests[1:])


def test_a_session_ends_before_a_turn_that_is_too_long() -> None:
    long = drawn(60, {"workload.sessions.turns": {"kind": "fixed", "value": 10}})
    short = drawn(60, {"workload.sessions.turns": {"kind": "fixed", "value": 10},
                       "max_model_len": 300})  # fmt: skip
    assert {session.ending for session in short} == {"outgrown"}
    assert {session.ending for session in long} == {"whole"}
    for cut, whole in zip(short, long, strict=True):  # those after it do not depend on it
        kept = len(cut.turns)
        assert texts(cut) == texts(whole)[:kept]
        assert all(sum(turn.requests[0]) <= 300 for turn in cut.turns)
        assert sum(whole.turns[kept].requests[0]) > 300


def test_a_first_turn_that_is_too_long_is_sent_and_rejected() -> None:
    result = sim.simulate(sim.load_scenario(changed(BASE, {"max_model_len": 40})))
    own = result.summary["infersim"]
    assert own["requests"]["rejected_reasons"]["longer than max_model_len"] > 0
    assert own["sessions"]["refused"] == own["requests"]["rejected"]


@pytest.mark.parametrize(
    "changes",
    [
        {"workload.sessions.think_time.mean": "5s"},
        {"workload.sessions.tool_delay": {"kind": "exponential", "mean": "1s"},
         "workload.sessions.tool_share": 0.5},
        {"workload.shared_prefix": {"tokens": 100, "groups": 3}},
        {"workload.arrivals.rate": 7},
        {"workload.arrivals": {"kind": "closed", "concurrency": 3}},
        {"workload.classes": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]},
    ],
)  # fmt: skip
def test_lengths_and_turns_do_not_depend_on_the_rest(changes: dict[str, Any]) -> None:
    before = 100 if "workload.shared_prefix" in changes else 0
    for one, other in zip(drawn(300), drawn(300, changes), strict=True):
        mine, theirs = texts(one), texts(other)
        assert (mine[0][0][0], mine[0][0][1]) == theirs[0][0]
        assert other.turns[0].history == before
        assert mine[: len(theirs)] == theirs  # a prefix may outgrow the model sooner


def test_delays_are_of_a_person_or_of_a_tool() -> None:
    both = {
        "think_time": {"kind": "fixed", "value": 20},
        "tool_delay": {"kind": "fixed", "value": 2},
        "tool_share": 0.8,
    }
    mixed = drawn(2000, {f"workload.sessions.{key}": value for key, value in both.items()})
    found = [delay for session in mixed for delay in delays(session)[1:]]
    assert set(found) == {2.0, 20.0}
    assert found.count(2.0) / len(found) == pytest.approx(0.8, abs=0.02)
    tools = drawn(50, {"workload.sessions.think_time": None,
                       "workload.sessions.tool_delay": {"kind": "fixed", "value": 3}})  # fmt: skip
    assert {delay for session in tools for delay in delays(session)[1:]} == {3.0}
    at_once = drawn(50, {"workload.sessions.think_time": None})
    assert {delay for session in at_once for delay in delays(session)} == {0.0}


def test_laws_have_their_means() -> None:
    rng = np.random.default_rng(1)
    counts = GeometricLaw(4).draw(rng, 100_000)
    assert counts.min() == 1
    assert counts.mean() == pytest.approx(4, rel=0.02)
    assert (counts > 4).mean() == pytest.approx(0.75**4, rel=0.03)
    assert set(GeometricLaw(1).draw(rng, 100)) == {1}
    assert np.bincount(Between(2, 4).draw(rng, 30_000))[2:] == pytest.approx(10_000, rel=0.05)
    for law, cv in ((Delay(20, "lognormal", 0.5), 0.5), (Delay(20, "exponential"), 1.0)):
        times = law.draw(rng, 200_000)
        assert times.mean() == pytest.approx(20, rel=0.01)
        assert times.std() / times.mean() == pytest.approx(cv, rel=0.02)


def test_popular_documents_follow_the_law_of_zipf() -> None:
    numbers = Groups(100, 50, 1.0).numbers(np.random.default_rng(1), 200_000)
    found = np.bincount(numbers, minlength=50) / len(numbers)
    weights = 1 / np.arange(1, 51)
    assert found == pytest.approx(weights / weights.sum(), rel=0.1)
    assert max(Groups(1, 3, 10.0).numbers(np.random.default_rng(1), 1000)) <= 2


def test_classes_are_of_whole_sessions() -> None:
    classes = [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]
    result = sim.simulate(sim.load_scenario(changed(BASE, {"workload.classes": classes})))
    named = result.requests.groupby("session")["class"].nunique()
    assert set(named) == {1}
    assert result.requests["class"].nunique() == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"workload.sessions.turns": {"kind": "geometric", "mean": 0.5}}, "from 1 to 10000"),
        ({"workload.sessions.turns": {"kind": "poisson"}}, "geometric"),
        ({"workload.sessions": {"think_time": None}}, "turns"),
        ({"workload.sessions.tool_share": 0.5}, "give both"),
        ({"workload.sessions.tool_delay": {"kind": "fixed", "value": 1}}, "tool_share: 0.8"),
        ({"workload.sessions.branches": {"kind": "uniform", "low": 3, "high": 2}}, "more than"),
        ({"workload.sessions.keep_answers": True}, "keep_answer"),
        ({"workload.arrivals": {"kind": "ramp", "rate": 1, "final_rate": 2, "duration": 9}},
         "ramp arrivals with sessions are not simulated"),
        ({"workload.shared_prefix": {"tokens": 9, "groups": 2, "zipf": -1}}, "0 or more"),
    ],
)  # fmt: skip
def test_bad_sessions_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        sim.load_scenario(changed(BASE, changes))
