"""Decisions when the disk is full, the place cannot be written to, or somebody presses Ctrl-C."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from sim.cli import app
from sim.planning.load.advance import Simulated
from sim.planning.points.executors import InProcess
from sim.planning.points.points import Outcome
from tests.planning_fixtures import SMALL

pytestmark = pytest.mark.usefixtures("brief_answers")

COMMANDS = {
    "sweep": ["--sweep", "seed=1:12:12", "--jobs", "1"],
    "compare": ["--vary", "scheduler.max_num_seqs=4,8", "--jobs", "1"],
    "find": ["--tolerance", "0.3", "--jobs", "1"],
    "plan": ["--gpus", "h100-sxm", "--tensor-parallel", "1", "--jobs", "1"],
    "ablate": ["--jobs", "1"],
    "diagnose": ["--jobs", "1"],
    "sensitivity": ["--jobs", "1"],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path


def asked(command: str, *more: str) -> Result:
    done = CliRunner().invoke(app, [command, "one.yaml", *COMMANDS[command], "--no-report", *more])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files end at ``size`` bytes, as they do where a disk or a quota is full.

    The bytecode of a module that is first imported meanwhile would stay cut off for good.
    """
    Simulated()  # memory that processes share is a file as well, of the first that asks for it
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_has_one_answer(command: str) -> None:
    with room_for(3000):  # enough for the scenario, too little for the result
        done = asked(command, "-o", "it")
    assert done.exit_code == 1
    assert done.stderr.count("error: cannot write to it") == 1
    assert not done.stdout


def test_what_was_there_before_the_disk_was_full_is_resumed() -> None:
    with room_for(20_000):
        done = asked("sweep", "-o", "it")
    assert "the points before this one are there" in done.stderr
    kept = Path("it/points.jsonl").read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    assert 1 <= whole.count(b"\n") < 12
    done = CliRunner().invoke(app, ["sweep", "--resume", "it", "--jobs", "1", "--no-report"])
    assert done.exit_code == 0, done.output
    assert Path("it/points.jsonl").read_bytes().startswith(whole)
    assert len(json.loads(Path("it/result.json").read_bytes())["results"]) == 12


def simulated(*_: object, **__: object) -> Any:
    raise AssertionError("simulated before it was known where the answer goes")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output", ["one.yaml/it", "/proc/it", "full"])
def test_where_nothing_can_be_written_is_told_before_anything_is_simulated(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("points.evaluate.simulate", "causes.diagnose.simulate", "load.played.play"):
        monkeypatch.setattr(f"sim.planning.{module}", simulated)
    Path("full").mkdir()
    Path("full/of").write_text("something")
    done = asked(command, "-o", output)
    assert done.exit_code == 2
    assert done.stderr.count("error:") == 1
    assert output in done.stderr
    assert sorted(entry.name for entry in Path.cwd().iterdir()) == ["full", "one.yaml"]


def interrupted(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "sweep"])
def test_an_interrupted_decision_leaves_nothing(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("points.evaluate.simulate", "causes.diagnose.simulate", "load.played.play"):
        monkeypatch.setattr(f"sim.planning.{module}", interrupted)
    done = asked(command)
    assert done.exit_code == 130
    assert done.stderr == "interrupted\n"
    assert [entry.name for entry in Path.cwd().iterdir()] == ["one.yaml"]


def test_an_interrupted_sweep_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = InProcess.run

    def run(self: InProcess, scenario: Any, points: Any) -> Iterator[Outcome]:
        for count, outcome in enumerate(whole(self, scenario, points)):
            if count == 3:
                raise KeyboardInterrupt
            yield outcome

    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "run", run)
        done = asked("sweep", "-o", "it")
    assert done.exit_code == 130
    assert done.stderr == "interrupted: 3 points are kept; infersim sweep --resume it\n"
    assert json.loads(Path("it/manifest.json").read_text())["status"] == "incomplete"
    done = CliRunner().invoke(app, ["sweep", "--resume", "it", "--jobs", "1", "--no-report"])
    assert done.exit_code == 0, done.output
    assert Path("it/points.jsonl").read_bytes().count(b"\n") == 12
