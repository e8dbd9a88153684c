"""The highest loads at the ends of the error band, read from runs at the predicted times."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from sim.band_runs import at_end
from sim.metrics.bands.end_times import EndTimes
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.load.band_ends import crossing, looked_for, only_iterations_take_time
from sim.planning.load.find import Finder
from sim.planning.load.loads import axis_of, traffic_of
from sim.planning.load.played import Player
from sim.scenario import Scenario
from tests.planning_fixtures import small

SLO = {"ttft": "200ms", "tpot": "20ms", "attainment": 0.9}


def asked(**changes: Any) -> Scenario:
    return small(slo=SLO, run__requests=400, **changes)


@pytest.mark.parametrize("end", [EndTimes(0.8), EndTimes(1.1), EndTimes(1.3, 1.5)])
@pytest.mark.parametrize("changes", [{}, {"fleet__0__tensor_parallel": 2}])
def test_slower_times_are_a_higher_load_with_tighter_limits(
    end: EndTimes, changes: dict[str, Any]
) -> None:
    scenario = asked(**changes)
    objectives = slo_objectives(scenario)
    slowed = Finder(at_end(scenario, end), "rate", slo_objectives(at_end(scenario, end)))
    load = slowed.saturation.rate * 0.9
    simulated = slowed.probe(load, 1)
    read = Finder(scenario, "rate", objectives).at_end(end, load * end.iterations, 1)
    assert read.holds == simulated.holds
    assert read.runs == simulated.runs
    (mine,), (theirs,) = read.attained, simulated.attained
    assert 0 < mine.share < 1
    assert mine.share == theirs.share
    assert mine.strain == pytest.approx(theirs.strain)
    assert mine.low == pytest.approx(theirs.low)


def is_free(scenario: Scenario) -> bool:
    return only_iterations_take_time(axis_of(scenario, "rate", traffic_of(scenario)))


@pytest.mark.parametrize(
    "changes",
    [
        {"run__horizon": "20s"},
        {"run__warmup": "2s"},
        {
            "workload__arrivals": {
                "kind": "ramp", "rate": 1, "final_rate": 4, "duration": 100
            }
        },
        {"kv_cache__host_memory": "8GiB", "kv_cache__enable_prefix_caching": True},
    ],
)  # fmt: skip
def test_what_takes_time_of_its_own_is_simulated(changes: dict[str, Any]) -> None:
    assert is_free(asked())
    assert not is_free(asked(**changes))


def test_a_load_is_tried_only_where_none_is_near() -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        return 2 * math.log(load / 10)

    near = {load: 2 * math.log(load / 10) for load in (5.0, 9.9, 20.0)}
    assert crossing(near, strain, 0.04) == pytest.approx(10)
    assert not tried
    bent = {5.0: -1.0, 20.0: 0.3}
    assert crossing(bent, strain, 0.04) == pytest.approx(10, rel=0.02)
    assert tried
    assert crossing({5.0: -1.0, 9.0: -0.1}, strain, 0.04) is None
    assert crossing({5.0: -math.inf, 20.0: 0.3}, strain, 0.04) is None


def test_a_run_is_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []
    run = Player.run

    def counted(player: Player, scenario: Scenario, number: int) -> Any:
        played.append(number)
        return run(player, scenario, number)

    monkeypatch.setattr(Player, "run", counted)
    scenario = asked()
    finder = Finder(scenario, "rate", slo_objectives(scenario))
    load = 0.9 * finder.saturation.rate
    first = finder.probe(load, 1, most=1)
    more = finder.probe(load, 1, most=8)
    assert played == list(range(more.runs))
    finder.at_end(EndTimes(1.1), load, 1, most=first.runs)
    assert played == list(range(more.runs))


def test_users_are_the_last_whole_number_before_the_change() -> None:
    """14 users hold and 20 do not: the change is where their strain says, not at the lower."""
    scenario = asked(workload__arrivals={"kind": "closed", "concurrency": 4})
    finder = Finder(scenario, "concurrency", slo_objectives(scenario))
    holds, fails = (
        SimpleNamespace(load=load, strain=strain) for load, strain in ((14.0, -0.3), (20.0, 0.1))
    )
    finder.find = lambda *_, **__: (holds, fails)  # type: ignore[method-assign, assignment]
    assert looked_for(finder, 15.0, 0.4, 2) == math.floor(14 * (20 / 14) ** 0.75) == 18
