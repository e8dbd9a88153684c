"""The requests after those of a run that has not settled: measured, at a bounded cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.longer_run import LEAST, TIMES, run_later
from sim.result import Result, simulate
from sim.scenario import Scenario, load_scenario
from sim.terminal.console import as_text
from sim.terminal.findings import run_view
from tests.places import CHAT


def chat(rate: float, requests: int, **changes: object) -> Scenario:
    asked = {"workload.arrivals.rate": rate, "run.requests": requests, **changes}
    return load_scenario(CHAT).override(asked)


def later(scenario: Scenario) -> dict[str, Any] | None:
    return run_later(scenario, simulate(scenario).summary)


def test_later_requests_are_those_of_a_longer_run_of_the_same_traffic() -> None:
    scenario = chat(25.0, 2000)
    short, found = simulate(scenario), later(scenario)
    assert found is not None
    assert (found["after"], found["requests"]) == (2000, TIMES * 2000)
    long = simulate(scenario.override({"run.requests": 6000}))
    arrivals = [result.record.requests["arrival"] for result in (short, long)]
    assert np.array_equal(arrivals[0], arrivals[1][:2000])
    rows = long.requests[2000:]
    assert found["attainment"] == rows["slo_met"].mean()
    assert found["p99_tpot_ms"] == pytest.approx(1e3 * np.nanpercentile(rows["tpot_s"], 99))
    assert found["attainment"] < short.summary["infersim"]["verdict"]["attainment"]
    assert "2,001 to 6,000 of the same traffic: 96% are within the SLO (98% of" in found["text"]


def test_few_requests_are_followed_by_some_thousand() -> None:
    found = later(chat(25.0, 300))
    assert found is not None
    assert found["requests"] == LEAST
    assert found["slo_state"] == "missed"
    assert found["text"].endswith("That run misses the SLO at the predicted times.")


@pytest.mark.parametrize(
    ("rate", "changes"),
    [
        (6.0, {}),
        (18.0, {}),
        (25.0, {"run.horizon": "30s"}),
        (25.0, {"run.repetitions": 2}),
        (
            60.0,
            {"workload.arrivals": {"kind": "ramp", "rate": 20, "final_rate": 25, "duration": 10}},
        ),
        (25.0, {"workload.arrivals": {"kind": "closed", "concurrency": 150}}),
    ],
)
def test_nothing_is_simulated_where_the_run_has_settled_or_traffic_ends(
    rate: float, changes: dict[str, object]
) -> None:
    assert later(chat(rate, 300).override(changes)) is None


def test_python_prints_what_the_command_prints() -> None:
    scenario = chat(22.0, 2000)
    result, other = simulate(scenario), simulate(scenario)
    other.confirm()
    assert other.summary["infersim"]["later"] is not None
    assert other.summary["infersim"]["ends"] is not None
    assert str(result) == as_text(run_view(other.summary, other.timeline()))
    assert result.page_contents()["summary"] == other.page_contents()["summary"]


def test_printing_leaves_the_summary_as_it_is() -> None:
    result = simulate(chat(22.0, 2000))
    text = str(result)
    own = result.summary["infersim"]
    assert (own["later"], own["ends"]) == (None, None)
    assert "Requests that come later" in text
    assert str(result) == text


def test_a_result_is_confirmed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result: Result = simulate(chat(22.0, 2000))
    result.confirm()
    found = result.summary["infersim"]["later"]
    monkeypatch.setattr("sim.longer_run.simulate", None)
    monkeypatch.setattr("sim.band_runs.simulate", None)
    result.confirm()
    assert result.shown["infersim"]["later"] is found
