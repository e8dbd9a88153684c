"""``infersim plan`` orders fleets of one cost by the load they hold, and says that they tie."""

from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sim.planning.fleet import choose as choosing
from sim.planning.fleet import fleet_ends
from sim.planning.fleet.choose import FleetPlan, as_cheap, choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.fleet_ends import FleetEnds
from sim.planning.fleet.layouts import Candidate, FleetQuestion, Screened, layouts
from sim.planning.fleet.plan_document import document
from sim.planning.fleet.sizing import Confirmed, Sized
from tests.answers import plan_view, render_plan
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

FLEETS = {
    "h100-sxm": (2, 0.3, 20.0, 90.0),
    "l40s": (6, 0.1, 30.0, 99.0),
    "a10g": (3, 0.2, 30.0, 95.0),
    "h200-sxm": (1, 0.7, 99.0, 10.0),
}
"""GPU -> replicas, USD per hour of one, requests/s that they hold, p99 TTFT in ms: the first three
cost 0.6, as exact products, but not as floating-point ones."""


def played(monkeypatch: pytest.MonkeyPatch, top: int) -> FleetPlan:
    """The plan of ``FLEETS``, none of which is simulated."""

    def screened(scenario: Any, layout: Candidate, *_: Any) -> Screened:
        return Screened(layout, FLEETS[layout.gpu][1], 1.0, 1)

    def sized(scenario: Any, found: Screened, *_: Any) -> Sized:
        replicas, price, _, ttft = FLEETS[found.layout.gpu]
        seen: Any = SimpleNamespace(figures={"p99_ttft_ms": ttft})
        return Sized(found.layout, price, replicas, 1.0, seen, None)

    def confirmed(scenario: Any, found: Sized, *_: Any) -> Confirmed:
        best: Any = SimpleNamespace(load=FLEETS[found.layout.gpu][2])
        return Confirmed(found, best, best, None)

    for name, made in (("screen", screened), ("size", sized)):
        monkeypatch.setattr(choosing, name, made)
    monkeypatch.setattr(fleet_ends, "confirm", confirmed)
    monkeypatch.setattr(fleet_ends, "if_slower", lambda *_: FleetEnds(1, 1))
    monkeypatch.setattr(fleet_ends, "fewest_if_faster", lambda *_: 1)
    monkeypatch.setattr(fleet_ends, "without_one", lambda *_: None)
    made = layouts(small(), tuple(FLEETS), [1], [])
    return choose(small(), FleetQuestion(tuple(made), 20.0, 0.1, top, read_constraints(None)))


@pytest.mark.parametrize("top", [1, 2, 3, 4])
def test_of_fleets_as_cheap_the_one_that_holds_more_comes_first(
    top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = played(monkeypatch, top)
    order = ["a10g", "l40s", "h100-sxm", "h200-sxm"]
    assert [each.sized.layout.gpu for each in plan.best] == order[:top]
    assert [each.layout.gpu for each in plan.sized] == order[: len(plan.sized)]
    names = ["#2" if top > 1 else "6 x (1 x l40s)", "#3" if top > 2 else "2 x (1 x h100-sxm)"]
    assert as_cheap(plan) == names


def test_a_fleet_as_cheap_as_the_last_that_is_ranked_is_not_called_more_expensive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FLEETS, "h200-sxm", (1, 0.9, 99.0, 10.0))
    out = {each.layout.gpu: each for each in played(monkeypatch, top=2).rejected}
    assert out["h100-sxm"].reason == "costs the same"
    assert "$0.60/h, as much as #2;" in out["h100-sxm"].text
    assert out["h200-sxm"].reason == "more expensive"
    assert out["h200-sxm"].text == "needs 1 replica, $0.90/h; those above cost $0.60/h"


def test_a_fleet_that_costs_at_least_what_the_best_one_costs_is_not_dearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "WAVE", 1)
    monkeypatch.setitem(FLEETS, "h200-sxm", (1, 0.6, 99.0, 10.0))
    plan = played(monkeypatch, top=1)
    assert [each.sized.layout.gpu for each in plan.best] == ["h200-sxm"]


@pytest.mark.slow
def test_the_headline_says_that_others_are_as_cheap() -> None:
    same = {"h100-sxm": 2.0, "l40s": 2.0}
    scenario = small(fleet__0__price_per_gpu_hour=same, slo={"ttft": "300ms", "tpot": "60ms"})
    made = layouts(scenario, tuple(same), [1], [])
    found = document(
        choose(scenario, FleetQuestion(tuple(made), 3.0, 0.0, 2, read_constraints(None)))
    )
    assert [each["usd_per_hour"] for each in found["fleets"]] == [2.0, 2.0]
    assert [each["layout"] for each in found["fleets"]] == ["1 x h100-sxm", "1 x l40s"]
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(found))
    assert "$2.00/h, $1,460 a month; as cheap: #2\n" in captured.get()
    assert "$2.00/h, $1,460 a month; as cheap: #2" in render_plan(found)
    alone = {**found, "ranking": {**found["ranking"], "as_cheap": []}}
    assert "as cheap" not in render_plan(alone)
