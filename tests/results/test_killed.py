"""Whatever ends the process, its run directory is complete or says that it is not."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import sim
from reports.__main__ import main as report_again
from sim.cli import app
from sim.errors import InfeasibleError
from sim.loop.clock import Stop
from tests.places import ROOT

SCENARIO = """\
model: llama-3.1-8b
fleet: {gpu: h100-sxm}
max_model_len: 1024
workload:
  arrivals: {kind: poisson, rate: 20}
  prompt_tokens: {kind: uniform, low: 10, high: 300}
  output_tokens: {kind: uniform, low: 1, high: 50}
run: {requests: 40}
"""
FOUND_AT_START = {"manifest.json", "resolved.yaml", "scenario.yaml"}
TABLES = {f"{name}.parquet" for name in ("requests", "timeseries", "chunks", "absences")}
ALL = FOUND_AT_START | {"summary.json", "charts.json"} | TABLES
ENDLESS = ("--set", "run.requests=2000000")
"""Minutes of simulation, of which every test sees a moment."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


def status(directory: Path) -> str:
    """What the manifest says, once everything that it objectives has been read."""
    manifest = json.loads((directory / "manifest.json").read_text())
    names = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    for name in names:
        read_whole(directory / name)
    found: str = manifest["status"]
    if found == "incomplete":
        assert names >= FOUND_AT_START
        assert manifest["pid"] > 0
    else:
        assert found in ("complete", "interrupted")
        assert names - {"report.html"} == ALL
        assert not any(path.name.startswith(".") for path in directory.iterdir())
        assert "pid" not in manifest
    return found


def read_whole(path: Path) -> None:
    """Fail if a file is cut off."""
    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".parquet":
        pq.read_table(path)
    elif path.suffix == ".yaml":
        assert "model" in yaml.safe_load(path.read_text())


def infersim(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["run", "one.yaml", "--no-report", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def started(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sim.cli", "run", "one.yaml", "-o", "out", "--no-report"]
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for(happened: Callable[[], bool], child: "subprocess.Popen[str]") -> None:
    """Until it happened, however long a busy machine takes; the child must live until then."""
    while not happened():
        assert child.poll() is None or happened()
        time.sleep(0.0005)


# -- killed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "file", "delay"),
    [
        (ENDLESS, "", 0.0),
        (ENDLESS, "", 0.2),
        (("--set", "run.requests=20000"), "summary.json", 0.0),
    ],
    ids=["at once", "while it simulates", "while it saves"],
)
def test_a_killed_process_leaves_a_directory_that_says_so(
    arguments: tuple[str, ...], file: str, delay: float
) -> None:
    with started(*arguments) as child:
        try:
            wait_for((Path("out") / file).exists, child)
            time.sleep(delay)
        finally:
            child.kill()
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    found = status(Path("out"))
    if not file:
        assert found == "incomplete"
        assert {path.name for path in Path("out").iterdir()} == FOUND_AT_START


KILL_AT_EACH_RENAME = """\
import os, signal
from pathlib import Path
from sim.cli import app
import pyarrow.parquet, sim.results.run_result, sim.simulation

def dying(original, point, calls):
    def renamed(self, target):
        calls.append(target)
        if len(calls) == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, target)
    return renamed

for point in range(1, 14):
    child = os.fork()
    if child == 0:
        calls = []
        Path.replace = dying(Path.replace, point, calls)
        Path.rename = dying(Path.rename, point, calls)
        app(["run", "one.yaml", "-o", f"out{point}", "--no-report", "--json"])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_a_kill_before_any_file_has_its_name_is_survived() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_AT_EACH_RENAME],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    codes = [int(line) for line in done.stdout.splitlines() if line.lstrip("-").isdigit()]
    # three files, then the directory itself, six results, the last word of the manifest, and the
    # summary again with its bands
    assert codes == [-signal.SIGKILL] * 12 + [0]
    assert [Path(f"out{point}").exists() for point in range(1, 14)] == [False] * 4 + [True] * 9
    # killed while its summary is replaced (12), a whole run has one hidden file left
    told = [status(Path(f"out{point}")) for point in (*range(5, 12), 13)]
    assert told == ["incomplete"] * 7 + ["complete"]
    assert {path.name for path in Path("out11").iterdir()} >= TABLES


# -- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_while_it_simulates_keeps_what_was_done(number: int, code: int, word: str) -> None:
    with started(*ENDLESS, "--json") as child:
        try:
            wait_for(Path("out").exists, child)
            time.sleep(0.3)
            child.send_signal(number)
            out, err = child.communicate()
        finally:
            child.kill()
    assert (child.returncode, err) == (code, f"{word}: what had finished by then is kept\n")
    assert status(Path("out")) == "interrupted"
    summary = json.loads(out)
    assert summary["infersim"]["interrupted"] is True
    assert (
        pq.read_table("out/requests.parquet").num_rows == summary["completed"] + summary["failed"]
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
@pytest.mark.parametrize(
    "where", ["sim.results.run_result.summarise", "sim.results.run_result.write_parquet"]
)
def test_a_signal_after_the_simulation_loses_nothing(
    where: str, number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_in(where, monkeypatch, number)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    done = infersim("-o", "out")
    assert done.exit_code == code
    assert "the whole run is kept" in done.stderr
    assert "TTFT" in done.stdout
    assert status(Path("out")) == "complete"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def signal_in(where: str, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Raise these signals when the function ``where`` is first called."""
    module, name = where.rsplit(".", 1)
    original = getattr(import_module(module), name)
    pending = list(numbers)

    def interrupted(*arguments: Any) -> Any:
        while pending:
            signal.raise_signal(pending.pop())
        return original(*arguments)

    monkeypatch.setattr(where, interrupted)


def test_one_signal_to_stop_and_one_while_it_saves_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signal_in("sim.simulation.build", monkeypatch, signal.SIGINT)
    signal_in("sim.results.run_result.write_parquet", monkeypatch, signal.SIGTERM)
    done = infersim("-o", "out")
    assert done.exit_code == 130  # as the first signal says
    assert status(Path("out")) == "interrupted"


def test_a_second_signal_while_it_saves_interrupts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_in("sim.results.run_result.write_parquet", monkeypatch, signal.SIGINT, signal.SIGINT)
    done = infersim("-o", "out")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert status(Path("out")) == "incomplete"
    assert (Path("out") / "summary.json").exists()


def test_a_second_signal_while_it_simulates_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_in("sim.simulation.build", monkeypatch, signal.SIGINT, signal.SIGINT)
    done = infersim()
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")
    assert not Path("runs").exists()


def test_a_wish_to_stop_before_the_first_event_is_heeded(place: Path) -> None:
    stop = Stop()
    stop.requested = True
    result = sim.simulate(sim.load_scenario("one.yaml"), stop=stop)
    assert result.interrupted
    assert len(result.requests) == 0
    result.save(place / "out")
    assert status(place / "out") == "interrupted"


def test_ctrl_c_alone_is_heeded_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    build = sim.simulation.build  # type: ignore[attr-defined]

    def looked(*arguments: Any) -> Any:
        seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
        return build(*arguments)

    monkeypatch.setattr("sim.simulation.build", looked)
    before = signal.getsignal(signal.SIGTERM)
    sim.simulate(sim.load_scenario("one.yaml"))
    assert seen[0] is not signal.getsignal(signal.SIGINT)
    assert seen[1] is before


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True])
def test_a_run_that_cannot_start_leaves_no_directory(place: Path, exists: bool) -> None:
    (place / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,x,1\n")
    if exists:
        (place / "out").mkdir()
    done = infersim("-o", "out", "--set", "workload={trace: {path: t.csv}}")
    assert done.exit_code == 2
    assert "t.csv:3" in done.stderr
    assert (place / "out").exists() == exists
    assert {path.name for path in place.rglob("*")} - {"out"} == {"one.yaml", "t.csv"}


def test_a_directory_that_holds_something_else_by_then_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulate(*_: object, **__: object) -> None:
        (Path("out") / "precious").write_text("data")
        raise InfeasibleError("no")

    monkeypatch.setattr("sim.simulation.simulate", simulate)
    assert infersim("-o", "out").exit_code == 3
    assert {path.name for path in Path("out").iterdir()} == FOUND_AT_START | {"precious"}
    assert status(Path("out")) == "incomplete"


def test_a_full_disk_is_an_error_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sim.results.run_result.write_parquet", full)
    done = infersim("-o", "out")
    assert done.exit_code == 1
    assert done.stderr == (
        "error: cannot write to out (No space left on device): the run there is incomplete\n"
    )
    assert status(Path("out")) == "incomplete"


def test_a_directory_that_cannot_be_made_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    done = infersim("-o", "deep/er/out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "cannot write to deep/er/out: No space left" in done.stderr
    assert [path.name for path in place.iterdir()] == ["one.yaml"]


# -- readers -------------------------------------------------------------------------------------


def test_readers_name_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        signal_in("sim.results.run_result.summarise", patch, signal.SIGINT, signal.SIGINT)
        assert infersim("-o", "out").exit_code == 130
    assert report_again(["out"]) == 2
    assert "out is incomplete: its run is still going, or was killed" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        signal_in("sim.simulation.build", patch, signal.SIGINT)
        assert infersim("-o", "cut").exit_code == 130
    assert report_again(["cut"]) == 0
    assert capsys.readouterr().err == "cut: status of the run: interrupted\n"
    assert infersim("-o", "whole").exit_code == 0
    assert report_again(["whole"]) == 0
    assert capsys.readouterr().err == ""
