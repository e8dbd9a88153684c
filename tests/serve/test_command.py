"""The command, from its start to the run that it leaves."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("aiohttp", reason="needs the extra `serve`")

from calibrate.validation.front_end import scenario_note
from sim.cli import app
from sim.scenario import load_scenario
from sim.serve.session import without_clients
from sim.setup import prepare
from tests.places import ROOT
from tests.serve_harness import CHAT

COMMAND = [sys.executable, "-m", "sim", "serve"]


def started(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """The command, and what it says once it listens."""
    server = subprocess.Popen(
        [*COMMAND, *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert server.stderr is not None
    return server, server.stderr.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_run_is_written(number: int, tmp_path: Path) -> None:
    scenario, run = tmp_path / "chat.yaml", tmp_path / "run"
    scenario.write_text(yaml.safe_dump(CHAT))
    server, told = started(str(scenario), "-o", str(run), "--speed", "50")
    assert told.startswith("Listening at http://127.0.0.1:"), told
    assert "as llama-3.1-8b on 1 x h100-sxm, simulated" in told
    url = f"{told.split()[2]}/v1/completions"
    body = json.dumps({"prompt": "Once", "max_tokens": 5}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body)) as response:
        assert json.load(response)["usage"]["completion_tokens"] == 5
    server.send_signal(number)
    out, err = server.communicate(timeout=100)
    assert server.returncode == 0, err
    assert "Run:" in out
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["completed"] == 1
    assert summary["infersim"]["served"]["speed"] == 50
    assert (run / "report.html").is_file()


def test_without_requests_nothing_is_left(tmp_path: Path) -> None:
    scenario, run = tmp_path / "chat.yaml", tmp_path / "run"
    scenario.write_text(yaml.safe_dump(CHAT))
    server, _ = started(str(scenario), "-o", str(run))
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=100)
    assert (server.returncode, "no request came" in err) == (0, True)
    assert not run.exists()


def test_the_session_of_a_fleet_that_scales_itself_is_no_observed_run(tmp_path: Path) -> None:
    scaled = load_scenario(CHAT).override({"fleet.replicas": {"min": 1, "max": 2}})
    (tmp_path / "manifest.json").write_text('{"kind": "run"}')
    assert scenario_note(tmp_path / "scenario.yaml", prepare(scaled)) is None


def test_what_a_scenario_says_of_clients_is_left_to_real_ones() -> None:
    patient = without_clients(load_scenario(CHAT))
    assert patient == load_scenario(CHAT)
    changes = {
        "scheduler": {"client_timeout": "5s", "on_timeout": "retry", "max_num_seqs": 7},
        "failures": [{"at": "1min"}],
    }
    found = without_clients(load_scenario(CHAT).override(changes))
    assert found.patience.client_timeout is None
    assert found.patience.on_timeout.kind == "cancel"
    assert found.scheduler.max_num_seqs == 7
    assert found.failures is not None
    assert found.failures.in_flight.kind == "lost"
    assert found.failures.outages is not None
    assert found.failures.outages[0].at == 60


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("scheduler.batching=static", "launches an incomplete batch"),
        ("run.horizon=5s", "runs until it is stopped"),
        ("assume.output_tokens=2", "lengths of real requests"),
    ],
)
def test_what_cannot_be_served_is_refused(override: str, said: str, tmp_path: Path) -> None:
    scenario = tmp_path / "chat.yaml"
    scenario.write_text(yaml.safe_dump(CHAT))
    words = ["serve", str(scenario), "--port", "0", "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*words, "--set", override])
    assert isinstance(done.exception, SystemExit)  # a process would show no traceback
    assert done.exit_code == 2
    assert said in done.stderr
