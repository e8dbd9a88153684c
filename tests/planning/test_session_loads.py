"""The load of sessions is the rate of their requests, wherever a load is looked for or judged."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.planning.contrast.compare import traffic_digest
from sim.planning.load.finder import Finder
from sim.planning.load.loads import axis_of, traffic_of
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
    long = {**SHORT, "workload.sessions.think_time.value": 300, "run.requests": 300}
    notes = sim.simulate(sim.load_scenario(changed(BASE, long))).summary["infersim"]["notes"]
    assert any("No session came to its end" in note for note in notes)
    some = {**SHORT, "run.requests": 1000}
    notes = sim.simulate(sim.load_scenario(changed(BASE, some))).summary["infersim"]["notes"]
    assert any("A session lasts 3" in note for note in notes)
