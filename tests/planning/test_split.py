"""How many replicas prefill and how many decode: the cheapest that hold, and both in one."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from reports.frame.page import typeset
from sim.cli import app
from sim.errors import InfeasibleError, UsageError
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.fleet.layouts import Candidate, FleetQuestion
from sim.planning.fleet.split import choose_split
from sim.planning.fleet.split_document import document
from sim.planning.fleet.split_sizing import LayoutPair, ScreenedPair, phases, screen_pair, together
from sim.planning.load.finder import Finder
from sim.planning.load.loads import traffic_of
from sim.planning.load.settled import lasting
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.terminal.console import as_text
from tests.answers import plan_view, render_plan
from tests.planning_fixtures import SMALL, small

H100 = Candidate("h100-sxm", 1, None)
RATE = 150.0
"""Requests/s that take several replicas of either phase."""


def asked(**changes: Any) -> Scenario:
    return small(
        scheduler__max_num_seqs=8,
        workload__prompt_tokens={"kind": "uniform", "low": 200, "high": 900},
        run__requests=400,
        **changes,
    )


def question(rate: float = RATE) -> FleetQuestion:
    return FleetQuestion((H100,), rate, 0.0, 1)


@pytest.mark.slow
def test_the_numbers_are_the_cheapest_of_all_that_hold() -> None:
    """Of every fleet up to one more of each phase."""
    scenario, pair = asked(), LayoutPair(H100, H100)
    found = choose_split(scenario, question())
    (best,) = found.best
    screened = screen_pair(scenario, pair, traffic_of(scenario), RATE)
    assert isinstance(screened, ScreenedPair)
    objectives = slo_objectives(scenario)
    holds = {}
    for prompts, answers in product(range(1, best.prompts + 2), range(1, best.answers + 2)):
        fleet = scenario.override(pair.settings(scenario, prompts, answers))
        finder = Finder(fleet, "rate", objectives)
        holds[prompts, answers] = lasting(finder, RATE, fleet.replicas).holds
    cheapest = min(screened.cost(*each) for each, held in holds.items() if held)
    assert holds[best.prompts, best.answers]
    assert best.cost == pytest.approx(cheapest)
    assert best.prompts > 1
    assert best.answers > 1
    for less in ((best.prompts - 1, best.answers), (best.prompts, best.answers - 1)):
        assert not holds[less]
    assert None not in best.breaks


@pytest.mark.slow
@pytest.mark.usefixtures("brief_answers")
def test_the_answer_says_what_both_in_one_would_cost() -> None:
    plan = choose_split(asked(), question())
    found = document(plan, file="small.yaml")
    best, unified = found["fleets"][0], found["unified"]
    apart, both = best["usd_per_hour"], unified["usd_per_hour"]
    assert unified["replicas"] == unified["gpus"]
    word = "saves" if apart < both else "costs"
    assert f"To prefill and decode apart {word} " in found["text"]
    shown = " ".join(as_text(plan_view(found)).split())
    assert found["text"] in shown
    assert f"${apart:,.2f}/h" in shown
    assert typeset(found["text"]) in render_plan(found)
    again = asked().override(best["settings"])
    roles = {pool.role: pool.replicas for pool in again.pools}
    assert roles == {"prefill": plan.best[0].prompts, "decode": plan.best[0].answers}
    summary = simulate(again).summary["infersim"]
    assert summary["verdict"]["slo_met"]
    assert json.loads(json.dumps(found)) == found


def test_an_slo_that_nothing_meets_is_refused_with_the_reason() -> None:
    with pytest.raises(InfeasibleError, match=r"1 x h100-sxm \| 1 x h100-sxm: TPOT missed: even "):
        choose_split(asked(slo={"tpot": "3ms"}), question(5.0))


def test_a_fleet_is_taken_apart_or_put_together() -> None:
    alone = asked(fleet__price_per_gpu_hour=2.0)
    first, second = phases(alone)
    assert (first["role"], second["role"]) == ("prefill", "decode")
    assert first["price_per_gpu_hour"] == 2.0
    other = LayoutPair(Candidate("l40s", 1, None), H100)
    apart = alone.override(other.settings(alone, 2, 3))
    assert [(pool.gpu, pool.replicas) for pool in apart.pools] == [("l40s", 2), ("h100-sxm", 3)]
    assert [pool.price_per_gpu_hour for pool in apart.pools] == ["catalogue", 2.0]
    assert together(alone) is alone
    assert [pool.role for pool in together(apart).pools] == ["both"]
    mixed = asked(fleet=[{"name": "a", "gpu": "h100-sxm"}, {"name": "b", "gpu": "l40s"}])
    with pytest.raises(UsageError, match="one that prefills and one that decodes, got 2 pools"):
        phases(mixed)


@pytest.mark.usefixtures("brief_answers")
def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    settings = {**SMALL, "run": {"requests": 60}}
    file.write_text(yaml.safe_dump(settings))
    words = ["plan", str(file), "--gpus", "h100-sxm", "--disaggregate", "--jobs", "1"]
    done = CliRunner().invoke(
        app, [*words, "--tensor-parallel", "1", "--json", "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["kind"] == "apart"
    assert (tmp_path / "out" / "report.html").is_file()
    answer = sim.plan(str(file), ["h100-sxm"], tensor_parallel=[1], disaggregate=True, jobs=1)
    assert answer.document()["fleets"][0]["settings"] == found["fleets"][0]["settings"]
    assert "fleets apart" in answer.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for option in (["--survive", "1"], ["--precision", "fp8"], ["--pipeline-parallel", "2"]):
        refused = CliRunner().invoke(app, [*words, *option])
        assert refused.exit_code == 2
        assert option[0] in refused.output
