"""What stood in front of an observed engine, and what a prediction makes of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from calibrate.validation.document import Validation
from calibrate.validation.front_end import front_end_of, scenario_note, without_front_end
from calibrate.validation.observed import read_observed
from calibrate.validation.prediction import question
from calibrate.validation.proposals import idle_delays
from sim.catalog import engine
from sim.cli import app
from sim.scenario import load_scenario
from sim.setup import prepare
from tests.observed_fixtures import observe, write_scenario

SLOW = {
    "engine": "vllm",
    "workload.arrivals": {"kind": "poisson", "rate": 4.0},
    "run.requests": 20,
}


def told(directory, front_end):
    """``directory`` with another entry in its manifest, or without one."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["front_end"]
    path.write_text(json.dumps(manifest | ({} if front_end is None else {"front_end": front_end})))
    return directory


@pytest.fixture
def observed(tmp_path):
    """A run of an engine like vLLM's preset, in front of which nothing stood."""
    return observe(write_scenario(tmp_path, SLOW), tmp_path / "run")


def ttft(directory):
    """Observed and predicted mean TTFT, s, and the notes."""
    run = read_observed(directory)
    validation = Validation(run, [], question(run, None, [f"engine={run.scenario.engine}"], None))
    (row,) = (row for row in validation.rows if row.key == "mean_ttft_ms")
    return row.observed / 1e3, row.predicted / 1e3, validation.document["notes"]


def test_a_run_in_process_is_predicted_without_the_presets_server(observed):
    assert engine("vllm").front_end > 0.005
    assert json.loads((observed / "manifest.json").read_text())["front_end"] == "none"
    seen, predicted, notes = ttft(observed)
    assert predicted == pytest.approx(seen, abs=1e-6)
    (note,) = [note for note in notes if "HTTP front end" in note]
    assert "the 8 ms of the HTTP front end (vllm) are excluded" in note


@pytest.mark.parametrize("front_end", ["server", None, "something"])
def test_a_server_and_an_old_manifest_keep_it(observed, front_end):
    seen, predicted, notes = ttft(told(observed, front_end))
    own, prompts = engine("vllm"), read_observed(observed).requests["prompt_tokens"]
    added = own.front_end + own.per_prompt_token * prompts.mean()
    assert predicted - seen == pytest.approx(added, rel=0.05)
    assert not [note for note in notes if "HTTP front end" in note]


def test_nothing_is_said_where_the_engine_has_none(tmp_path):
    run = observe(write_scenario(tmp_path, SLOW | {"engine": "reference"}), tmp_path / "run")
    seen, predicted, notes = ttft(run)
    assert predicted == pytest.approx(seen, abs=1e-6)
    assert notes == []


def test_the_engine_says_why_it_has_none(tmp_path):
    setup = prepare(load_scenario(write_scenario(tmp_path, SLOW)))
    bare, note = without_front_end(setup)
    spec = bare.only.deployment.engine
    assert spec.front_end == 0.0
    assert spec.sources["front_end"].startswith("Nothing stood in front")
    assert spec.per_iteration == setup.only.deployment.engine.per_iteration
    assert note
    assert without_front_end(bare) == (bare, "")


def test_what_a_manifest_may_say():
    assert front_end_of({"front_end": "server"}) == "server"
    assert front_end_of({}) is None
    assert front_end_of({"front_end": 3}) is None


def test_a_fitted_engine_has_none_either(observed, tmp_path):
    path = tmp_path / "fitted.yaml"
    arguments = [
        "validate-run",
        str(observed),
        "--fit-engine",
        str(path),
        "--json",
        "--set",
        "engine=vllm",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert engine(path).front_end < 1e-6


def test_running_the_scenario_as_it_stands_says_that_it_has_one(observed, tmp_path):
    scenario = observed / "resolved.yaml"
    done = CliRunner().invoke(app, ["run", str(scenario), "-o", str(tmp_path / "simulated"),
                                    "--json", "--no-report"])  # fmt: skip
    assert done.exit_code == 0, done.output
    json.loads(done.stdout)
    assert "nothing stood" in done.stderr
    assert "8 ms" in done.stderr
    setup = prepare(load_scenario(scenario))
    assert scenario_note(scenario, setup) in done.stderr
    assert scenario_note(scenario, without_front_end(setup)[0]) is None
    told(observed, "server")
    assert scenario_note(scenario, setup) is None
    assert scenario_note(tmp_path / "simulated" / "resolved.yaml", setup) is None
    (observed / "manifest.json").write_text("not JSON")
    assert scenario_note(scenario, setup) is None


def test_delays_in_front_of_the_engine_are_those_of_requests_that_met_nothing():
    """The first one came to an idle engine; the second while the first one's prompt ran; the fourth
    behind the third, which was computed first."""
    arrivals, tokens = [0.0, 0.5, 3.0, 3.0], [1.25, 2.0, 4.125, 5.0]
    requests = pd.DataFrame(
        {
            "request_id": range(4),
            "arrival_s": arrivals,
            "first_token_s": tokens,
            "prompt_tokens": 100,
        }
    )
    start = np.array([0.25, 1.25, 3.125, 4.125])
    prefills = [[SimpleNamespace(request=number, before=0)] for number in range(4)]
    iterations = SimpleNamespace(start=start, end=start + 0.75, prefills=prefills)
    delays = idle_delays(SimpleNamespace(requests=requests), iterations, 1e-3)
    assert delays == pytest.approx([1.25 - 0.1 - 0.75, 1.125 - 0.1 - 0.75])
