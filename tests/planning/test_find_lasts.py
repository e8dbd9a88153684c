"""``infersim find`` on short runs: what it says is true of long ones."""

import math
from dataclasses import replace
from typing import Any

import pytest

from sim import simulate
from sim.metrics.slo.objectives import look, slo_objectives
from sim.planning.load.find import CURVE, CURVE_REQUESTS, NEAR_REQUESTS, TO_SHOW, TOLERANCE, find
from sim.planning.load.find_document import document
from sim.planning.load.finder import Finder
from sim.planning.load.search import search
from sim.planning.load.sentences import sureness
from sim.planning.load.settled import settle
from sim.scenario import Scenario, load_scenario
from sim.terminal.console import as_text
from tests.answers import find_view
from tests.planning.test_find import ONE_SERVER, found_steep, highest, service, steep
from tests.planning_fixtures import be_brief

pytestmark = pytest.mark.slow


def short(**changes: Any) -> Scenario:
    """``steep``: runs of 400 requests, a few seconds of traffic."""
    return steep().override({key.replace("__", "."): value for key, value in changes.items()})


def share_of_many(scenario: Scenario, load: float) -> float:
    """The share within the SLO of 60,000 requests."""
    many = {"workload.arrivals.rate": load, "run.requests": 60_000}
    (objective,) = slo_objectives(scenario)
    return float(look(simulate(scenario.override(many)).record, objective).kept.mean())


def test_a_long_run_agrees_with_what_short_ones_said() -> None:
    scenario = short()
    told = document(found_steep(sure=True)[0])
    assert share_of_many(scenario, told["chance"]["holds_up_to"]) >= 0.95
    assert share_of_many(scenario, told["chance"]["fails_from"]) < 0.95
    # which the load that runs of 400 requests hold would not
    lengths = told["run_lengths"]
    assert lengths["first"] < lengths["answer"]
    assert share_of_many(scenario, lengths["first_load"]) < 0.94
    assert told["chance"]["holds_up_to"] <= told["load"] < lengths["first_load"]


@pytest.mark.thorough
def test_the_interval_contains_the_analytic_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    be_brief(monkeypatch, 5_000)
    each, first = service()
    share, wait = 0.9, 2.0 * each
    exact = highest(share, wait, each)
    slo = {"ttft": wait + first, "attainment": share}
    covered = 0
    for seed in range(1, 13):
        asked = load_scenario(ONE_SERVER, {"slo": slo, "run.requests": 200, "seed": seed})
        found = settle(Finder(asked, "rate", slo_objectives(asked)), 1, TOLERANCE, None)
        assert found.sure is not None
        assert found.missed is not None
        covered += found.sure <= exact <= found.missed
    assert covered >= 10  # each with 95 % confidence


def test_the_answer_says_how_long_its_runs_were() -> None:
    told = document(found_steep(sure=True)[0])
    lengths, text = told["run_lengths"], " ".join(told["sentences"])
    assert f"Runs of {lengths['first']:,} requests hold {lengths['first_load']:.4g}" in text
    assert f"longer ones, of {lengths['answer']:,} requests (" in text
    assert f"the SLO is met at {told['chance']['holds_up_to']:.4g} requests/s" in text
    assert "for sure" not in text
    assert not lengths["confirmed"]
    best = next(probe for probe in told["probes"] if probe["load"] == told["load"])
    assert best["requests_per_run"] == lengths["longest"] == lengths["answer"]


def test_the_table_calls_no_load_decided_that_lies_inside_the_interval() -> None:
    told = document(replace(find(short(seed=1), "rate"), ends=None))
    low, high = told["chance"]["holds_up_to"], told["chance"]["fails_from"]
    outcomes = {probe["load"]: probe["outcome"] for probe in told["probes"]}
    inside = [outcome for load, outcome in outcomes.items() if low < load < high]
    assert inside
    assert set(inside) == {"too close to call"}
    assert {outcome for load, outcome in outcomes.items() if load <= low} == {"holds"}
    assert {outcome for load, outcome in outcomes.items() if load >= high} == {"fails"}
    assert told["at_best"]["outcome"] == outcomes[told["load"]]
    assert "a load lies between these two" in " ".join(told["sentences"])


@pytest.mark.parametrize(
    "changes",
    [
        {"run__horizon": "4s"},
        {
            "workload__arrivals": {"kind": "ramp", "rate": 20, "final_rate": 40, "duration": 10},
        },
    ],
)
def test_traffic_that_ends_is_not_made_longer(changes: dict[str, Any]) -> None:
    told = document(find(short(**changes), "rate", tolerance=0.1))
    assert not told["run_lengths"]["lasts"]
    assert told["run_lengths"]["longest"] == told["run_lengths"]["first"]
    assert "the traffic as it was simulated, " in " ".join(told["sentences"])


def test_a_rate_that_is_called_stable_claims_no_confidence() -> None:
    told = document(find(load_scenario(ONE_SERVER, {"run.requests": 300}), "rate"))
    text = " ".join(told["sentences"])
    assert "confidence" not in text
    assert "no doubt" not in text
    assert "The mean load of the runs decides; chance in it is not bounded." in text
    assert not told["sure"]
    assert told["trust"]["highest"] == "a guess"
    assert 0.5 * told["load"] < told["trust"]["sure_up_to"] <= 0.8 * told["load"] * (1 + 1e-9)


@pytest.mark.usefixtures("brief_answers")
def test_a_closed_loop_is_tried_in_longer_runs_too() -> None:
    closed = {"kind": "closed", "concurrency": 4}
    scenario = short(workload__arrivals=closed).override({"slo": {"tpot": "9ms"}})
    told = document(find(scenario, "concurrency", tolerance=0.1))
    assert told["run_lengths"]["lasts"]
    assert told["run_lengths"]["longest"] >= 1600
    assert told["chance"]["holds_up_to"] is None or told["chance"]["holds_up_to"] == int(
        told["chance"]["holds_up_to"]
    )


def test_a_search_near_its_guess_takes_small_steps() -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        return -math.inf if load <= 10 else math.inf

    found = search(strain, 10.1, lowest=1, highest=100, tolerance=0.03, first_step=0.03)
    assert len(tried) == 2
    assert (found.holds, found.fails) == (pytest.approx(10.1 / 1.03), 10.1)


def test_the_curve_is_of_runs_of_one_duration_far_from_the_answer_and_near_it() -> None:
    """Runs of 400 requests are too short for the answer, and so for the curve below it."""
    found, _ = found_steep(sure=True)
    told = document(found)
    lengths = told["run_lengths"]
    assert lengths["first"] < lengths["answer"]
    played = {probe.load: probe.requests // probe.runs for probe in found.probes}
    for share in CURVE:
        least = TO_SHOW / (1 - 0.99)
        whole = NEAR_REQUESTS if share in (0.9, 1.1) else CURVE_REQUESTS
        wanted = max(math.ceil(min(share, 1) * whole), round(least))
        assert played[share * told["load"]] == wanted
    assert told["knee"]["load"] in played
    table = as_text(find_view(told))
    assert f"{lengths['answer']:,}" in table
    assert "tokens/s" not in table
    assert max(len(line) for line in table.splitlines()) <= 88
    assert "\u2026" not in table


def words(document: dict[str, Any], **changes: Any) -> str:
    return sureness({**document, **changes})


def open_at(load: float, count: int | None) -> dict[str, Any]:
    return {"load": load, "requests_to_decide": count}


def test_the_requests_that_decide_are_those_of_the_answer() -> None:
    told = document(found_steep(sure=True)[0]) | {"sure": False}
    load, fails = told["load"], told["fails_at"]
    both = words(told, probes=[open_at(load, 120_000), open_at(fails, 6_600_000)])
    assert f"About 120,000 requests at {load:.4g} would decide" in both
    assert "Millions" not in both
    assert "Millions of requests would be needed to decide: the load is at the limit" in words(
        told, probes=[open_at(load, 6_600_000), open_at(fails, 120_000)]
    )
    next_one = words(told, probes=[open_at(load, None), open_at(fails, 6_600_000)])
    assert f"Millions of requests would be needed to decide {fails:.4g} requests/s" in next_one
