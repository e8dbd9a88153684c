"""``infersim plan`` on short runs: the fleets that it lists hold the load in long ones."""

from functools import cache
from typing import Any

import pytest
from rich.console import Console

from reports.frame.page import coded
from sim import simulate
from sim.metrics.slo.objectives import look, slo_objectives
from sim.planning.answers.plan import fleets
from sim.planning.fleet.choose import FleetPlan, choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_document import document
from sim.planning.load.finder import Finder
from sim.scenario import Scenario
from tests.answers import plan_view, render_plan
from tests.planning_fixtures import small

pytestmark = pytest.mark.slow

PRICES = {"h100-sxm": 1.0, "h200-sxm": 1.5}
"""So that one H100 is cheaper than one H200, and two are not."""


def short() -> Scenario:
    """Runs of 400 requests, a few seconds of traffic."""
    slo = {"ttft": "56ms", "tpot": "14ms", "attainment": 0.95}
    return small(run__requests=400, slo=slo, fleet__0__price_per_gpu_hour=PRICES)


@cache
def held_by_short_runs() -> float:
    """Requests per second that one H100 holds in such runs."""
    found, _ = Finder(short(), "rate", slo_objectives(short())).find(1, 0.002)
    assert found is not None
    return found.load


@cache
def planned(share: float, jobs: int = 1) -> FleetPlan:
    """For that share of what short runs hold, without headroom."""
    made = tuple(layouts(short(), list(PRICES), [1], []))
    rate = share * held_by_short_runs()
    return choose(short(), FleetQuestion(made, rate, 0.0, 2, read_constraints(None)), jobs=jobs)


def share_of_many(settings: dict[str, Any]) -> float:
    """The share within the SLO of 60,000 requests."""
    (objective,) = slo_objectives(short())
    run = simulate(short().override({**settings, "run.requests": 60_000}))
    return float(look(run.record, objective).kept.mean())


def test_a_long_run_agrees_with_every_fleet_that_is_listed() -> None:
    fleets = document(planned(1.0))["fleets"]
    assert len(fleets) == 2
    for fleet in fleets:
        assert share_of_many(fleet["settings"]) >= 0.95
    one = {**planned(1.0).best[0].sized.layout.settings(short())}
    rate = {"workload.arrivals.rate": held_by_short_runs(), "fleet.0.gpu": "h100-sxm"}
    assert share_of_many({**one, **rate}) < 0.95  # in spite of what short runs say


def test_what_longer_runs_contradict_is_ranked_again() -> None:
    ranked = [(each["gpu"], each["replicas"]) for each in document(planned(1.0))["fleets"]]
    assert ranked == [("h200-sxm", 1), ("h100-sxm", 2)]  # by short runs one H100 is cheaper


def test_a_fleet_says_what_shorter_runs_hold() -> None:
    found = document(planned(1.0))
    second = found["fleets"][1]
    (note,) = [note for note in second["notes"] if "in runs of" in note]
    assert note.startswith("a run of ")
    assert "holds with 1 replica, but in runs of 8,912 only " in note
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(found))
    shown = " ".join(captured.get().split())
    assert f"#2: {note}" in shown
    assert "short runs" in shown
    assert "holds up to" not in shown
    for text in found["run_lengths"]["text"]:
        assert text in shown
        assert coded(text) in render_plan(found)
    titles = [column.title for column in fleets(found).columns]
    assert "Requests/s at SLO in short runs" in titles
    lengths = {**found["run_lengths"], "lasts": False}  # a trace that ends
    titles = [column.title for column in fleets({**found, "run_lengths": lengths}).columns]
    assert "Requests/s at SLO" in titles


def test_the_answer_does_not_depend_on_the_number_of_processes() -> None:
    assert document(planned(0.3, jobs=2)) == document(planned(0.3))


def test_far_from_the_limits_a_short_run_decides() -> None:
    lengths = document(planned(0.3))["run_lengths"]
    assert lengths["answer"] == lengths["usual"] == [400, 400]
    assert lengths["text"][0].startswith("#1, #2 meet the SLO in runs of 400 requests, far enough")


def test_close_to_the_limits_longer_runs_decide() -> None:
    lengths = document(planned(0.95))["run_lengths"]
    assert lengths["answer"][0] == 16 * lengths["usual"][0]
    longest = f"{lengths['answer'][0]:,}"
    assert lengths["text"][0].startswith(f"#1 is decided by runs of {longest} requests.")
