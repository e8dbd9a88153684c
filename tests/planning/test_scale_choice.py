"""``find`` and ``plan`` on a trace: its time compressed or copies overlaid, and it is said."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim import simulate
from sim.cli import app
from sim.errors import UsageError
from sim.planning.causes.ablate import saturated
from sim.planning.causes.uncertain import uncertain
from sim.planning.load.find import find
from sim.planning.load.find_document import document
from sim.planning.load.loads import SCALING, LoadAxis, axis_of, traffic_of
from sim.scenario import Scenario
from tests.answers import render_find, render_plan
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

COMPRESSED, OVERLAID = (SCALING[how] for how in ("compress", "overlay"))


def trace_file(folder: Path) -> Path:
    """Bursts of twelve requests within 0.2 s, every second: 12 requests per second."""
    path = folder / "trace.csv"
    rows = [
        f"{burst + i / 60},{150 + (7 * i + burst) % 60},{20 + i}\n"
        for burst in range(12)
        for i in range(12)
    ]
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{''.join(rows)}", encoding="utf-8")
    return path


def traced(folder: Path, **changes: Any) -> Scenario:
    trace = {"path": str(trace_file(folder))}
    return small(workload={"trace": trace}, run={}, slo={"ttft": "60ms"}, **changes)


def axis(scenario: Scenario, how: Any) -> LoadAxis:
    return axis_of(scenario, "rate", traffic_of(scenario), how)


def measured(scenario: Scenario, axis: LoadAxis, load: float) -> float | None:
    return traffic_of(scenario.override(axis.settings(load))).rate


def test_another_load_is_another_pace_or_another_number_of_copies(tmp_path: Path) -> None:
    scenario = traced(tmp_path)
    faster, more = axis(scenario, "compress"), axis(scenario, "overlay")
    assert faster.own == more.own
    assert faster.own is not None
    assert dict(more.settings(faster.own)) == {}
    assert dict(faster.settings(2 * faster.own)) == {"workload.trace.time_scale": 0.5}
    assert dict(more.settings(2 * faster.own)) == {"workload.trace.overlay": 2.0}
    assert measured(scenario, faster, 3 * faster.own) == pytest.approx(3 * faster.own)
    assert measured(scenario, more, 3 * faster.own) == pytest.approx(3 * faster.own, rel=0.02)


def test_copies_keep_the_pace_that_the_scenario_asks_for(tmp_path: Path) -> None:
    scenario = traced(tmp_path, workload__trace__rate=5)
    assert dict(axis(scenario, "compress").settings(10)) == {"workload.trace.rate": 10.0}
    doubled = axis(scenario, "overlay").settings(10)
    assert dict(doubled) == {"workload.trace.overlay": 2.0, "workload.trace.rate": 10.0}


def test_all_copies_are_of_the_part_that_is_sent(tmp_path: Path) -> None:
    scenario = traced(tmp_path, run__requests=30, workload__trace__limit=40)
    more = axis(scenario, "overlay")
    assert more.own is not None
    found = scenario.override(more.settings(3 * more.own))
    assert (found.run.requests, found.workload.trace.limit) == (None, 30)  # type: ignore[union-attr]
    assert len(traffic_of(found).prompts) == 90
    overlaid = scenario.override({"workload.trace.overlay": 2})
    assert axis(overlaid, "compress").own is not None
    with pytest.raises(UsageError, match=r"cut the recording instead \(workload.trace.limit\)"):
        axis(overlaid, "overlay")


def test_more_users_are_easier_than_denser_bursts_and_both_are_said(tmp_path: Path) -> None:
    scenario = traced(tmp_path, slo__attainment=0.9)
    faster, more = (
        find(scenario, "rate", scale=how, tolerance=0.05) for how in ("compress", "overlay")
    )
    assert more.best.load > 1.2 * faster.best.load
    assert all(probe.runs == 1 for probe in more.probes)  # copies are not drawn anew
    for found, text in ((faster, COMPRESSED), (more, OVERLAID)):
        written = document(found)
        assert written["scaling"]["text"] == text
        assert written["sentences"][1] == text
        assert text in render_find(written)


def test_made_up_traffic_has_nothing_to_choose() -> None:
    scenario = small(slo={"ttft": "50ms"})
    default, overlay = (axis(scenario, how) for how in ("compress", "overlay"))
    assert default.settings(9.0) == overlay.settings(9.0)
    assert overlay.scaling is None


def command(name: str, *arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [name, *map(str, arguments), "--no-report"])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("how", "text"), [("compress", COMPRESSED), ("overlay", OVERLAID)])
def test_the_first_lines_of_a_plan_say_it_and_its_command_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = traced(tmp_path, slo__attainment=0.9)
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(scenario.resolved()))
    asked = (file, "--gpus", "h100-sxm", "--tensor-parallel", "1", "--rate", "3x", "--jobs", "1")
    options = (*asked, "--headroom", "0", "--scale", how)
    found = json.loads(command("plan", *options, "--json"))
    assert found["scaling"] == {"how": how, "text": text}
    assert text in render_plan(found)
    fleet = found["fleets"][0]
    words = shlex.split(fleet["run"])[1::2]
    key = "time_scale" if how == "compress" else "overlay"
    assert any(word.startswith(f"workload.trace.{key}=") for word in words)
    again = simulate(scenario.override(words)).summary
    assert again["p99_ttft_ms"] == fleet["p99_ttft_ms"]
    head = " ".join(" ".join(command("plan", *options).splitlines()[:5]).split())
    assert text in head


def test_the_band_of_a_plan_scales_the_trace_as_its_fleets_do(tmp_path: Path) -> None:
    # with slower iterations one replica holds it if copies are overlaid, not if time is shorter
    found = sim.plan(
        traced(tmp_path, slo__attainment=0.9, slo__ttft="90ms"),
        ["h100-sxm"],
        tensor_parallel=[1],
        rate=100,
        headroom=0,
        scale="overlay",
        jobs=1,
    )
    fleet = found["fleets"][0]
    assert (fleet["replicas"], fleet["error_band"]["replicas"]) == (1, [1, 1])
    assert fleet["error_band"]["holds_if_slower"]


def test_find_says_it_in_its_first_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(traced(tmp_path).resolved()))
    shown = command("find", file, "--jobs", "1", "--tolerance", "0.5", "--scale", "overlay")
    assert OVERLAID in " ".join(" ".join(shown.splitlines()[:6]).split())
    assert max(map(len, shown.splitlines())) <= 88


def test_a_study_of_the_rate_says_what_becomes_of_a_trace(tmp_path: Path) -> None:
    plain = {each.name: each for each in uncertain(traced(tmp_path), 0.1, {})}["rate"]
    assert plain.texts == ("x 0.9 (time stretched)", "x 1.1 (time compressed)")
    asked = traced(tmp_path, workload__trace__rate=5)
    paced = {each.name: each for each in uncertain(asked, 0.1, {})}["rate"]
    assert paced.low == {"workload.trace.rate": 4.5}
    made_up = {each.name: each for each in uncertain(small(), 0.1, {})}["rate"]
    assert made_up.texts == ("x 0.9", "x 1.1")


def test_a_trace_with_a_rate_can_be_saturated(tmp_path: Path) -> None:
    trace = saturated(traced(tmp_path, workload__trace__rate=5)).workload.trace
    assert trace is not None
    assert (trace.rate, trace.time_scale) == (None, 1e-6)
