"""The SLO of a scenario: its keys and units, and by what a run is judged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError, UsageError
from sim.metrics.slo.objectives import Objective, slo_objectives
from sim.planning.fleet.constraints import read_constraints
from sim.scenario import Scenario, load_scenario
from sim.scenario.sections.slo import BARE, METRICS, PERCENTILES, Slo
from tests.planning_fixtures import SMALL

KEYS = [*METRICS, *(f"{metric}_p{rank}" for metric in METRICS for rank in PERCENTILES)]


def with_slo(**slo: object) -> Scenario:
    return load_scenario({**SMALL, "slo": slo})


@pytest.mark.parametrize("key", KEYS)
def test_a_number_that_may_be_milliseconds_needs_a_unit(key: str) -> None:
    assert getattr(with_slo(**{key: "500ms"}).slo, key) == 0.5
    assert getattr(with_slo(**{key: 0.5}).slo, key) == 0.5
    for number in (500, 40.0, "500", "1e3"):
        with pytest.raises(ScenarioError, match=rf"slo\.{key}: .* has no unit: \d+ms or \d+s\?"):
            with_slo(**{key: number})
    with pytest.raises(ScenarioError, match=rf"--set slo.{key}=500.* has no unit"):
        with_slo().override([f"slo.{key}=500"])


def with_deadline(deadline: object) -> Scenario:
    classes = [{"name": "chat", "share": 1, "deadline": deadline}]
    return load_scenario({**SMALL, "workload": {**SMALL["workload"], "classes": classes}})


def deadline_of(scenario: Scenario) -> float | None:
    assert scenario.workload.classes is not None
    return scenario.workload.classes[0].deadline


def test_a_deadline_needs_a_unit_as_the_slo_does() -> None:
    assert deadline_of(with_deadline("500ms")) == deadline_of(with_deadline(0.5)) == 0.5
    for number in (500, 60.0, "500", "1e3"):
        with pytest.raises(
            ScenarioError,
            match=r"workload\.classes\.0\.deadline: .* has no unit: \d+ms or \d+s\?",
        ):
            with_deadline(number)
    late = with_deadline("60s")
    assert load_scenario(late.resolved()) == late
    assert deadline_of(late.override({"seed": 1})) == 60.0


def test_a_deadline_that_an_older_version_wrote_is_read() -> None:
    data = with_deadline("60s").resolved()
    data["workload"]["classes"][0]["deadline"] = 60.0
    assert deadline_of(load_scenario(data)) == 60.0
    data["workload"]["classes"][0]["deadline"] = 60  # a person's: the program writes decimals
    with pytest.raises(ScenarioError, match="60 has no unit: 60ms or 60s"):
        load_scenario(data)


def test_a_constraint_needs_a_unit_as_the_slo_does() -> None:
    with pytest.raises(UsageError, match="500 has no unit: 500ms or 500s"):
        read_constraints("ttft<500")
    assert read_constraints("ttft<500ms").objectives[0].limits == {"ttft": 0.5}


@given(key=st.sampled_from(KEYS), seconds=st.floats(1e-6, 1e9))
def test_every_limit_survives_what_the_program_writes(key: str, seconds: float) -> None:
    scenario = with_slo(**{key: f"{seconds!r}s"})
    assert getattr(scenario.slo, key) == seconds
    assert load_scenario(scenario.resolved()) == scenario
    assert load_scenario(yaml.safe_load(scenario.to_yaml())) == scenario
    assert getattr(scenario.override({"seed": 1}).slo, key) == seconds


def test_a_resolved_scenario_of_an_older_version_is_read(tmp_path: Path) -> None:
    data = with_slo(ttft="2min", tpot="40ms").resolved()
    data["slo"] = {"ttft": 120.0, "tpot": 0.04, "attainment": 0.99}
    path = tmp_path / "resolved.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    for read in (load_scenario(path), load_scenario(data)):
        assert (read.slo.ttft, read.slo.tpot) == (120.0, 0.04)
    with pytest.raises(ScenarioError, match="500 has no unit"):
        load_scenario(path, ["slo.ttft=500"])
    with pytest.raises(ScenarioError, match="120 has no unit"):  # that of a person
        load_scenario({**SMALL, "slo": data["slo"]})


def test_null_goes_back_to_the_default_of_every_limit() -> None:
    parent = {**SMALL, "slo": {"ttft": "1s", "ttft_p95": "1s", "attainment": 0.9}}
    for key in Slo.model_fields:
        found = load_scenario(parent).override({f"slo.{key}": None})
        assert getattr(found.slo, key) == Slo.model_fields[key].default


def test_limits_are_promised_together_and_apart() -> None:
    scenario = with_slo(ttft="1s", e2el="20s", attainment=0.9, ttft_p50="200ms", tpot_p95="50ms")
    assert slo_objectives(scenario) == (
        Objective({"ttft": 1.0, "e2el": 20.0}, 0.9),
        Objective({"ttft": 0.2}, 0.5, 50),
        Objective({"tpot": 0.05}, 0.95, 95),
    )
    assert slo_objectives(with_slo()) == ()
    assert not with_slo(attainment=0.5).slo.stated
    assert with_slo(e2el_p99="1min").slo.stated


def test_a_request_is_good_within_the_limits_that_hold_together() -> None:
    slo = with_slo(ttft="1s", ttft_p50="200ms", tpot_p50="20ms", tpot_p99="60ms").slo
    assert slo.of_request == {"ttft": 1.0, "tpot": 0.06}


def test_the_largest_bare_numbers_are_read_as_seconds() -> None:
    for metric, number in BARE.items():
        assert getattr(with_slo(**{metric: number}).slo, metric) == number
        with pytest.raises(ScenarioError, match="has no unit"):
            with_slo(**{metric: math.nextafter(number, math.inf)})
