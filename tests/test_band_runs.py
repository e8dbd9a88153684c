"""Both ends of the error band are the same in copies of the process, and can be left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.band_runs import run_ends
from sim.cli import app
from sim.copies import can_copy
from sim.result import simulate
from sim.scenario import load_scenario
from tests.places import CHAT

NEAR = {"workload.arrivals.rate": 22, "run.requests": 600}


@pytest.mark.skipif(not can_copy(), reason="this system does not copy processes")
def test_ends_at_the_same_time_are_those_one_after_the_other() -> None:
    scenario = load_scenario(CHAT, NEAR)
    summary = simulate(scenario).summary
    alone, together = (run_ends(scenario, summary, jobs=jobs) for jobs in (1, 2))
    assert alone is not None
    assert alone == together


def test_ends_can_be_left_out() -> None:
    asked = [f"{key}={value}" for key, value in NEAR.items()]
    given = [word for each in asked for word in ("--set", each)]

    def own(*more: str) -> Any:
        done = CliRunner().invoke(app, ["run", str(CHAT), *given, "--no-save", "--json", *more])
        return json.loads(done.stdout)["infersim"]

    assert own()["ends"] is not None
    assert own("--no-ends")["ends"] is None


def test_an_end_that_is_too_short_to_tell_is_played_longer() -> None:
    """The slower end of a fleet at half of its capacity and more is near saturation, where 10,000
    requests do not outlast an empty start."""
    asked = {"workload.arrivals.rate": 49, "fleet.0.replicas": 3, "run.requests": 10_000}
    scenario = load_scenario(CHAT, asked)
    ends = run_ends(scenario, simulate(scenario).summary)
    assert ends is not None
    assert ends["slower"]["verdict"]["utilisation"] > 0.8
    assert ends["slower"]["verdict"]["slo_doubts"] == []
    assert ends["slower"]["completed"] > 10_000 == ends["faster"]["completed"]
    assert ends["decided"]
