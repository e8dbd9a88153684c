"""``infersim plan`` that is interrupted keeps the fleets that it had sized."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.planning.fleet import choose as choosing
from sim.planning.fleet.choose import choose
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_interrupted import document
from sim.planning.fleet.so_far import PlanInterrupted
from tests.answers import render_plan
from tests.planning_fixtures import small

GPUS = ("h100-sxm", "h200-sxm", "b200-sxm")


def question() -> FleetQuestion:
    scenario = small(run__requests=100)
    return FleetQuestion(tuple(layouts(scenario, GPUS, [1], [])), 2.0, 0.2, 5)


def test_a_plan_that_is_interrupted_has_what_was_sized() -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if text.startswith("card 2"):
            raise KeyboardInterrupt

    with pytest.raises(PlanInterrupted) as stop:
        choose(small(run__requests=100), question(), tell=tell)
    whole = choose(small(run__requests=100), question())
    found = document(stop.value, file="chat.yaml")
    assert [line.partition(":")[0] for line in told[1:]] == ["card 1 of 3", "card 2 of 3"]
    by_layout = {each.layout.text: each for each in whole.sized}
    assert 1 <= len(found["sized"]) <= 2
    for row in found["sized"]:
        same = by_layout[row["layout"]]
        assert (row["replicas"], row["usd_per_hour"]) == (same.replicas, same.cost)
    known = [each["layout"] for each in (*found["sized"], *found["rejected"])]
    assert sorted([*known, *found["missing"]]) == sorted(e.text for e in question().layouts)
    assert len(found["missing"]) == 1
    text = render_plan(found)
    assert f"Missing: {found['missing'][0]}." in text


def test_an_interrupted_command_writes_what_it_has(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130; the directory of the plan has the fleets, and no plan that can be exported."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(choosing, "_ranked", interrupted)
    monkeypatch.setenv("COLUMNS", "88")
    asked = ["plan", "one.yaml", "--gpus", "h100-sxm", "--tensor-parallel", "1", "--jobs", "1"]
    ended = CliRunner().invoke(app, [*asked, "--rate", "2", "-o", "kept"])
    assert ended.exit_code == 130, ended.output
    found = json.loads((place / "kept" / "result.json").read_text("utf-8"))
    assert (found["kind"], len(found["sized"]), found["missing"]) == ("interrupted", 1, [])
    assert "Interrupted: 1 fleet" in ended.output
    assert (place / "kept" / "report.html").is_file()
    assert CliRunner().invoke(app, ["export", "kept", "--to", "compose"]).exit_code == 2
