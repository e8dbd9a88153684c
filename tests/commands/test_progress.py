"""Progress of long commands without a terminal, runs that leave nothing, and a note on many."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.commands import output as run_output
from sim.commands.answer import telling

pytestmark = pytest.mark.usefixtures("brief_answers")

SCENARIO = """\
model: llama-3.1-8b
fleet: {gpu: h100-sxm}
max_model_len: 1024
workload:
  arrivals: {kind: poisson, rate: 5}
  prompt_tokens: {kind: fixed, value: 200}
  output_tokens: {kind: fixed, value: 20}
slo: {ttft: 500ms, tpot: 40ms, attainment: 0.95}
run: {requests: 60}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


def infersim(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


LONG = {
    "run": (["run", "one.yaml", "--set", "run.requests=9000"], "requests: "),
    "compare": (
        ["compare", "one.yaml", "--vary", "scheduler.max_num_seqs=1,64", "--repetitions", "2"],
        "runs: 3 of 4",
    ),
    "sweep": (["sweep", "one.yaml", "--sweep", "workload.arrivals.rate=2,4"], "points: 2 of 2\n"),
    "find": (["find", "one.yaml", "--tolerance", "0.5"], "find: load 2: "),
    "plan": (
        ["plan", "one.yaml", "--gpus", "h100-sxm", "--tensor-parallel", "1", "--top", "1"],
        "plan: 1 of 1 layouts are left",
    ),
}


@pytest.mark.parametrize(("arguments", "line"), LONG.values(), ids=LONG.keys())
def test_a_long_command_tells_how_far_it_is_on_stderr_alone(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_output, "INTERVAL", 0.0)
    monkeypatch.setattr(run_output, "LONGEST", 0.0)
    jobs = [] if arguments[0] in ("run", "find") else ["--jobs", "1"]
    done = infersim(*arguments, *jobs, "--json", "--no-report")
    assert done.exit_code == 0
    assert line in done.stderr
    assert "\x1b" not in done.stderr
    assert json.loads(done.stdout)


def test_a_search_tells_the_time_left_at_each_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("sim.commands.output.time.monotonic", lambda: now[0])
    with telling("find") as told:
        told.say("begun")  # before it is time for a line
        now[0] = 120.0
        told.count(2_000, 8_000)  # within a step too
        now[0] = 139.0
        told.count(4_000, 9_000)
        now[0] = 140.0
        told.say("load 1")
    assert capsys.readouterr().err.splitlines() == [
        "find: begun, about 60 s left",
        "find: load 1, about 50 s left",
    ]


def test_a_time_left_that_cannot_be_kept_is_not_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("sim.commands.output.time.monotonic", lambda: now[0])
    paced = run_output.Paced()
    for second, done in ((10.0, 1), (20.0, 5), (40.0, 6), (80.0, 18)):
        now[0] = second
        paced.count("runs", done, 20)
    assert capsys.readouterr().err.splitlines() == [
        "runs: 1 of 20",  # too few for a pace
        "runs: 5 of 20, about 60 s left",
        "runs: 6 of 20",  # 93 s, and 60 s were said
        "runs: 18 of 20, about 9 s left",
    ]


def test_a_short_run_tells_nothing() -> None:
    assert infersim("run", "one.yaml", "--no-report").stderr == ""


def test_lines_are_as_far_apart_as_the_work_has_lasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("sim.commands.output.time.monotonic", lambda: now[0])
    paced = run_output.Paced()
    for second in range(1, 41):
        now[0] = 100.0 + second
        paced.count("runs", second, 50)
    assert capsys.readouterr().err.splitlines() == [
        "runs: 10 of 50",
        "runs: 20 of 50, about 30 s left",
        "runs: 40 of 50, about 10 s left",
    ]


# -- what a run leaves ---------------------------------------------------------------------------


def test_a_run_without_save_leaves_nothing(place: Path) -> None:
    saved = infersim("run", "one.yaml", "--no-report", "--json", "-o", "saved")
    done = infersim("run", "one.yaml", "--no-save", "--json")
    assert done.exit_code == 0
    document, expected = json.loads(done.stdout), json.loads(saved.stdout)
    assert document["infersim"].pop("run_directory") is None
    del expected["infersim"]["run_directory"]
    assert document == expected
    shown = infersim("run", "one.yaml", "--no-save").stdout
    assert "Run: " not in shown
    assert "TTFT" in shown
    assert {path.name for path in place.iterdir()} == {"one.yaml", "saved"}


def test_no_save_has_no_output() -> None:
    done = infersim("run", "one.yaml", "--no-save", "-o", "there")
    assert done.exit_code == 2
    assert "--no-save" in done.stderr


def test_no_save_ends_with_the_same_codes() -> None:
    assert infersim("run", "one.yaml", "--no-save", "--set", "max_model_len=2").exit_code == 3
    missed = infersim("run", "one.yaml", "--no-save", "--check", "--set", "slo.ttft=1us")
    assert missed.exit_code == 99


def test_many_runs_are_noted_after_one_that_joins_them(place: Path) -> None:
    for number in range(run_output.MANY_RUNS - 1):
        (place / "runs" / f"old-{number}").mkdir(parents=True)
    done = infersim("run", "one.yaml", "--no-report")
    assert done.exit_code == 0
    assert done.stderr.startswith("note: runs/ holds 200 directories, ")
    assert "--no-save" in done.stderr
    assert "note" not in infersim("run", "one.yaml", "--no-report", "-o", "elsewhere").stderr


def test_much_is_noted_though_it_is_few(place: Path) -> None:
    (place / "runs" / "large").mkdir(parents=True)
    with (place / "runs" / "large" / "requests.parquet").open("wb") as file:
        os.truncate(file.fileno(), 3 * run_output.MUCH)
    assert "2 directories, 3 GiB" in infersim("run", "one.yaml", "--no-report").stderr
    assert "note" not in infersim("run", "one.yaml", "--no-save").stderr
