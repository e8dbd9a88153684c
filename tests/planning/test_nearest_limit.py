"""The share of requests that plans show is that of the limit which is nearest, and named."""

from copy import deepcopy
from typing import Any

import pytest

from sim.planning.answers import plan, split
from sim.planning.points.wording import nearest_promise
from sim.terminal.console import as_text
from sim.units import show_load
from tests.answers import plan_view
from tests.made_up import fleet_plan, split_plan

FREE = {
    **{"target": 0.5, "attainment": 0.9, "low": 0.89, "high": 0.91},
    **{"within": {"tpot_p50": 0.9}, "pressure": {"tpot_p50": 0.7}},
}
"""A part of an SLO that is far from its share, with fewer requests within it."""
TIGHT = {
    **{"target": 0.99, "attainment": 0.992, "low": 0.991, "high": 0.993},
    **{"within": {"ttft_p99": 0.992}, "pressure": {"ttft_p99": 0.97}},
}


def of_two_parts(kind: str) -> dict[str, Any]:
    """A made-up plan whose SLO has two parts."""
    made = deepcopy(fleet_plan() if kind == "plan" else split_plan())
    made["promises"] = ["p50 of TPOT", "p99 of TTFT"]
    made["run_lengths"] = {"lasts": False, "text": []}
    fleets = [*made["fleets"], *([made["unified"]] if kind == "split" else [])]
    for fleet in fleets:
        fleet["at_target"] |= {"promises": [FREE, TIGHT], "sure": True}
    for fleet in made["fleets"]:
        for tried in fleet.get("tried", []):
            tried |= {"attainment": 0.992, "part": "TTFT p99"}
    return made


@pytest.mark.parametrize("kind", ["plan", "split"])
def test_the_nearest_limit_is_shown_and_named(kind: str) -> None:
    made = of_two_parts(kind)
    told = as_text(plan_view(made))
    assert "99.2" in told.split()
    assert "90" not in told.split()
    assert max(map(len, told.splitlines())) <= 88
    table = {"plan": plan, "split": split}[kind].fleets(made)
    titles = [column.title for column in table.columns]
    place = titles.index("Nearest limit")
    row = table.rows[0]
    assert row[place].text == "TTFT p99"
    assert row[place + 1].text.startswith("99.2")
    assert {len(each) for each in table.rows} == {len(titles)}


def test_a_load_that_fails_shows_the_limit_that_breaks() -> None:
    """One limit is missed beyond chance, the interval of the other contains its target; the error
    band leaves open whether the load holds."""
    near = {"target": 0.95, "attainment": 0.963, "low": 0.935, "high": 0.98}
    broken = {"target": 0.95, "attainment": 0.82, "low": 0.77, "high": 0.86}
    ttft = near | {"within": {"ttft_p95": 0.963}, "pressure": {"ttft_p95": 0.9}}
    tpot = broken | {"within": {"tpot_p95": 0.82}, "pressure": {"tpot_p95": 1.2}}
    probe = {"outcome": "too close to call", "holds": False, "breaks": "tpot_p95"}
    assert nearest_promise({**probe, "promises": [ttft, tpot]}) == tpot
    holds = {**probe, "holds": True, "promises": [ttft, tpot | {"low": 0.96, "attainment": 0.97}]}
    assert nearest_promise(holds) == ttft


@pytest.mark.parametrize("load", [9999.6, 12_000.0, 24_000.5, 1e6])
def test_no_load_is_written_with_an_exponent(load: float) -> None:
    assert "e" not in show_load(load)
    assert abs(float(show_load(load).replace(",", "")) - load) <= 0.5
