"""Notes of a run give the true reason why sessions ended early, and why prompts met cold caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.loop.recorder import GAVE_UP
from sim.loop.session_rows import REFUSED
from sim.metrics.load.usual_sessions import early_ends, usual
from sim.result import Result
from tests.golden_scenarios import changed
from tests.workload.test_sessions import BASE


def run(changes: dict[str, Any]) -> Result:
    return sim.simulate(sim.load_scenario(changed(BASE, changes)))


@pytest.fixture(scope="module")
def cut() -> Result:
    """Clients wait for 0.4 s, and a replica fails with what runs there."""
    outage = {"replica": 0, "at": "30s", "for": "20s"}
    return run(
        {
            "fleet.replicas": 2,
            "scheduler.client_timeout": "400ms",
            "failures": {"in_flight": "lost", "outages": [outage]},
            "workload.arrivals.rate": 20,
            "run.requests": 1500,
        }
    )


def test_sessions_that_clients_cut_were_not_rejected(cut: Result) -> None:
    own, record = cut.summary["infersim"], cut.record
    assert own["requests"]["rejected"] == 0
    assert own["sessions"]["refused"] == 0
    assert own["failures"]["timed_out"] > 0
    assert own["failures"]["lost"] > 0
    gave_up = record.requests["status"] == GAVE_UP  # each turn is a single request
    assert own["sessions"]["given_up"] == gave_up.sum()
    found = early_ends(record)
    for why, requests in (
        ("a request timed out, and its client gave up", record.timed_out),
        ("a request was lost with its replica", record.lost),
    ):
        assert record.sessions is not None
        mine = record.sessions.turns["session"][requests]
        assert {found[number] for number in mine.tolist()} == {why}
        said = f"{len(mine):,} of {own['sessions']['started']:,} sessions ended early: {why}."
        assert said in own["notes"]
    assert not any("rejected" in note for note in own["notes"])


def test_cut_sessions_have_nothing_to_come(cut: Result) -> None:
    """The tokens of the others alone are still to come."""
    record, expected = cut.record, usual(cut.record)
    rows = record.sessions
    assert rows is not None
    assert rows.planned is not None
    assert rows.ended is not None
    assert expected is not None
    numbers = list(dict.fromkeys(rows.turns["session"].tolist()))
    early = set(rows.ended["session"][rows.ended["ending"] == REFUSED].tolist())
    tokens = sum(
        int(plan["tokens"])
        for number, plan in zip(numbers, rows.planned, strict=True)
        if number not in early
    )
    mine = ~np.isin(rows.turns["session"], list(early))
    sent = (record.requests["prompt_tokens"] + record.requests["output_tokens"])[mine].sum()
    assert expected.unsent == pytest.approx(1 - sent / tokens)


def test_rejected_sessions_are_said_to_be() -> None:
    own = run({"max_model_len": 40}).summary["infersim"]
    count, started = own["sessions"]["refused"], own["sessions"]["started"]
    assert count > 0
    assert "given_up" not in own["sessions"]
    said = f"{count:,} of {started:,} sessions ended early: a request was rejected."
    assert said in own["notes"]


@pytest.mark.parametrize(
    ("replicas", "router", "anew"),
    [
        (2, "least-outstanding", True),
        (2, "session-affinity", False),
        (1, "least-outstanding", False),
    ],
)
def test_what_another_replica_has_is_not_the_cold_start(
    replicas: int, router: str, anew: bool
) -> None:
    changes = {
        "fleet.replicas": replicas,
        "router": router,
        "kv_cache.enable_prefix_caching": True,
        "workload.sessions.think_time.mean": "5s",
    }
    notes = run(changes).summary["infersim"]["notes"]
    (note,) = [note for note in notes if note.startswith("Prefix caches start empty")]
    assert ("each replica has a cache of its own" in note) == anew
    assert ("session-affinity and prefix-affinity do." in note) == anew
