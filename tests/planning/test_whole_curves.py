"""``find`` and ``plan`` answer for whole curves of a rate that changes, and for no part of one."""

from pathlib import Path
from typing import Any

import pytest

from sim.errors import UsageError
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.fleet.choose import choose
from sim.planning.fleet.constraints import Constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_document import document
from sim.planning.load.find import find
from sim.planning.load.finder import Finder
from sim.scenario import Scenario
from tests.planning_fixtures import small

DAY = {"kind": "diurnal", "rate": 2, "peak_rate": 30, "period": "20s"}
RAMP = {"kind": "ramp", "rate": 2, "final_rate": 30, "duration": "10s"}


def question(scenario: Scenario, rate: float) -> FleetQuestion:
    made = tuple(layouts(scenario, ["h100-sxm"], [1], []))
    return FleetQuestion(made, rate, 0.0, 1, Constraints())


@pytest.mark.parametrize(
    ("arrivals", "run", "remedy"),
    [
        (DAY, {"requests": 60}, "for a whole cycle set run.requests=320"),
        (DAY, {"requests": 9000, "horizon": "5s"}, "for a whole cycle set run.horizon=20"),
        (RAMP, {"requests": 60}, "for a whole ramp set run.requests=160"),
    ],
)
def test_a_part_of_a_curve_is_refused(
    arrivals: dict[str, Any], run: dict[str, Any], remedy: str
) -> None:
    scenario = small(workload__arrivals=arrivals, run=run)
    with pytest.raises(UsageError, match=remedy):
        find(scenario, "rate")
    with pytest.raises(UsageError, match=remedy):
        choose(scenario, question(scenario, 20.0))


def test_a_number_of_users_has_no_curve() -> None:
    asked = small(workload__arrivals=DAY, slo={"tpot": "9ms", "attainment": 0.9})
    assert find(asked, "concurrency", tolerance=0.5).best.load >= 1


def test_all_loads_are_those_of_whole_curves() -> None:
    scenario = small(workload__arrivals=DAY, run={"requests": 320})
    finder = Finder(scenario, "rate", slo_objectives(scenario))
    assert finder.probe(16, 1, most=1).requests == 320
    assert finder.probe(80, 1, most=1).requests == 5 * 320


def test_a_plan_for_a_trace_that_is_cut_says_so(tmp_path: Path) -> None:
    rows = "".join(f"{0.05 * number},100,20\n" for number in range(300))
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows, encoding="utf-8")
    for sent, told in (
        (100, "Only 100 requests of the trace were taken (run.requests): a fleet may hold less"),
        (
            None,
            "This is about the traffic as it was simulated, 300 requests: of more requests",
        ),
    ):
        scenario = small(workload={"trace": {"path": str(path)}}, run={"requests": sent})
        (text,) = document(choose(scenario, question(scenario, 20.0)))["run_lengths"]["text"]
        assert text.startswith(told)
