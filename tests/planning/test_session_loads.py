"""The load of sessions is the rate of their requests, wherever a load is looked for or judged."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import sim
from sim.loop.session_rows import SessionRecorder
from sim.metrics.load.full_batch import full_batch
from sim.metrics.load.usual_sessions import usual_shares
from sim.metrics.record.run_record import RunRecord
from sim.planning.contrast.compare import traffic_digest
from sim.planning.load.finder import Finder
from sim.planning.load.loads import axis_of, traffic_of
from sim.setup import prepare
from sim.workload.sessions import SessionTurn
from tests.golden_scenarios import changed
from tests.workload.test_sessions import BASE

SHORT: dict[str, Any] = {
    "workload.arrivals.rate": 3,
    "workload.sessions.turns": {"kind": "fixed", "value": 4},
    "workload.sessions.think_time": {"kind": "fixed", "value": 10},
    "workload.prompt_tokens": {"kind": "fixed", "value": 20},
    "workload.output_tokens": {"kind": "fixed", "value": 30},
}


def test_a_rate_of_sessions_is_one_of_their_requests() -> None:
    scenario = sim.load_scenario(changed(BASE, SHORT))
    traffic = traffic_of(scenario)
    assert traffic.per_session == 4
    assert traffic.pauses == 30
    assert traffic.rate == 12
    assert traffic.prompts[:5].tolist() == [20, 70, 120, 170, 20]
    assert not traffic.found.any()
    axis = axis_of(scenario, "rate", traffic)
    assert axis.own == 12
    assert axis.settings(6.0) == {"workload.arrivals.rate": 1.5}
    assert "6 requests/s are 1.5 sessions/s" in axis.session_note(6.0)[0]


def test_a_cache_that_never_fills_has_the_history() -> None:
    caching = {"kv_cache": {"enable_prefix_caching": True}}
    traffic = traffic_of(sim.load_scenario(changed(BASE, {**SHORT, **caching})))
    assert traffic.found[:5].tolist() == [0, 50, 100, 150, 0]


def test_runs_of_a_search_outlast_sessions() -> None:
    """40 s for 4 requests with hardly any work: five sessions at 12 requests/s are 1,800."""
    scenario = sim.load_scenario(changed(BASE, SHORT))
    probe = Finder(scenario, "rate", ()).probe(12.0, 1, most=1)
    assert 5 * 30 * 12 <= probe.requests <= 5 * 45 * 12


@pytest.mark.parametrize(
    "changes",
    [
        {"workload.sessions.turns.value": 3},
        {"workload.sessions.think_time.value": 5},
        {"workload.sessions.keep_answer": False},
        {"workload.sessions": None},
    ],
)
def test_other_sessions_are_other_traffic(changes: dict[str, Any]) -> None:
    one, other = (
        traffic_digest(sim.load_scenario(changed(BASE, {**SHORT, **each})))
        for each in ({}, changes)
    )
    assert one != other
    again = sim.load_scenario(changed(BASE, {**SHORT, "scheduler": {"max_num_seqs": 3}}))
    assert traffic_digest(again) == one


def test_a_short_run_says_that_sessions_outlast_it() -> None:
    """Three pauses of 300 s, though no session came to its end."""
    long = {**SHORT, "workload.sessions.think_time.value": 300, "run.requests": 300}
    own = sim.simulate(sim.load_scenario(changed(BASE, long))).summary["infersim"]
    assert own["sessions"]["finished"] == 0
    assert own["sessions"]["duration_s"]["mean"] is None
    assert 900 < own["sessions"]["expected_duration_s"] < 920
    assert any("A session lasts 15" in note for note in own["notes"])
    some = {**SHORT, "run.requests": 1000}
    notes = sim.simulate(sim.load_scenario(changed(BASE, some))).summary["infersim"]["notes"]
    assert any("A session lasts 3" in note for note in notes)


LONG: dict[str, Any] = {
    **SHORT,
    "workload.sessions.turns": {"kind": "geometric", "mean": 5},
    "workload.sessions.think_time": {"kind": "lognormal", "mean": 20, "cv": 1},
}


@cache
def played(requests: int) -> tuple[dict[str, Any], RunRecord]:
    changes = {**LONG, "run.requests": requests}
    result = sim.simulate(sim.load_scenario(changed(BASE, changes)))
    return result.summary["infersim"], result.record


def test_a_longer_run_asks_for_no_more_requests() -> None:
    """The sessions that end within a run are the short ones, the more so the shorter it is."""
    own = [played(requests)[0] for requests in (1000, 4000, 12_000)]
    ended = [each["sessions"]["duration_s"]["mean"] for each in own]
    assert ended[1] > 1.2 * ended[0]
    wanted = [each["sessions"]["requests_to_show"] for each in own]
    assert max(wanted) < 1.2 * min(wanted)
    expected = [each["sessions"]["expected_duration_s"] for each in own]
    assert max(expected) < 1.1 * min(expected)
    asked = own[0]["precision"]
    assert asked["requests_needed"] >= wanted[0]
    assert f"{asked['requests_needed']:,} requests" in asked["text"]


def test_the_load_of_a_short_run_is_that_of_a_long_one() -> None:
    """A plain mean over its requests lacks the longest prompts; nothing of them is cached."""
    short, record = played(6000)
    long, _ = played(12_000)
    assert 0.2 < short["sessions"]["unsent"] < 0.35
    wanted = long["verdict"]["utilisation"]
    assert short["verdict"]["utilisation"] == pytest.approx(wanted, rel=0.04)
    shares = usual_shares(record)
    assert shares is not None
    prompts = record.requests["prompt_tokens"]
    assert shares @ prompts > 1.05 * prompts.mean()


def test_what_is_to_come_is_all_that_was_not_sent() -> None:
    """Of each session that began; one that ended within the run has nothing to come."""
    own, record = played(1500)
    rows = record.sessions
    assert rows is not None
    assert rows.planned is not None
    sent = int((record.requests["prompt_tokens"] + record.requests["output_tokens"]).sum())
    unsent = own["sessions"]["unsent"]
    assert unsent == pytest.approx(1 - sent / rows.planned["tokens"].sum())
    planned = {n: int(each["requests"]) for n, each in enumerate(rows.planned)}
    numbers, counts = np.unique(rows.turns["session"], return_counts=True)
    assert len(numbers) == len(planned)
    there = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    assert all(there[number] <= planned[number] for number in planned)
    assert rows.ended is not None
    assert all(there[number] == planned[number] for number in rows.ended["session"].tolist())


def test_a_session_by_hand() -> None:
    """10 tokens at once, 30 after 4 s, 20 after 2 s more: 4 x 30 + 6 x 20 token-seconds behind the
    start, and 30 + 2 x 20 turns."""
    recorder = SessionRecorder()
    recorder.started(
        [
            SessionTurn(0.0, 0, [(6, 4)]),
            SessionTurn(4.0, 10, [(14, 1), (14, 1)]),
            SessionTurn(2.0, 15, [(18, 2)]),
        ]
    )
    planned = recorder.rows().planned
    assert planned is not None
    assert planned.tolist() == [(4, 3, 60, 6.0, 240.0, 70.0)]


def test_a_request_of_twice_the_share_counts_as_two() -> None:
    scenario = sim.load_scenario(changed(BASE, SHORT))
    pool = prepare(scenario).pools[0]
    prompts, outputs = np.array([20, 70, 120, 400]), np.array([30, 30, 60, 90])
    found = np.array([0, 50, 64, 0])
    twice = np.array([0, 1, 1, 2, 3, 3])
    shares = np.array([1, 2, 1, 2]) / 6
    one = full_batch(pool, prompts, outputs, found, shares)
    other = full_batch(pool, prompts[twice], outputs[twice], found[twice])
    assert one.slots == pytest.approx(other.slots)
    # the prompts of its iterations are drawn, by other numbers
    assert one.costs[twice] == pytest.approx(other.costs, rel=0.02)
    assert shares @ one.costs == pytest.approx(other.costs.mean(), rel=0.02)


@pytest.mark.parametrize(("requests", "limit"), [(1500, "33ms"), (3000, "36ms")])
def test_an_slo_that_only_young_sessions_meet_is_left_open(requests: int, limit: str) -> None:
    """Prompts grow with every turn: what the run meets, a long one misses, and it cannot know."""
    slo = {"ttft": limit, "attainment": 0.95}
    short, long = (
        sim.simulate(sim.load_scenario(changed(BASE, {**LONG, "run.requests": n, "slo": slo})))
        for n in (requests, 8000)
    )
    own, verdict = short.summary["infersim"], short.summary["infersim"]["verdict"]
    assert verdict["slo_met"]
    assert verdict["slo_state"] == "too close to call"
    assert "length" in verdict["slo_doubts"]
    assert verdict["requests_to_decide"] >= own["sessions"]["requests_to_show"]
    assert long.summary["infersim"]["verdict"]["slo_state"] == "missed"
