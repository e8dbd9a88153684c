"""Points, their outcomes, and that it does not matter where they are evaluated."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import sim
from sim.errors import UsageError
from sim.planning.points.evaluate import evaluate
from sim.planning.points.executors import InProcess, Processes, local
from sim.planning.points.points import Outcome, Point, label, numbered
from tests.places import ROOT
from tests.planning_fixtures import SMALL, small

RATE = "workload.arrivals.rate"


def one(**changes: object) -> Outcome:
    """What comes of the small scenario with these settings."""
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    return evaluate(small(), Point(0, settings, label(settings)))


def test_a_point_comes_to_what_a_run_of_the_changed_scenario_comes_to() -> None:
    outcome = one(workload__arrivals__rate=35, scheduler__max_num_seqs=8)
    changed = small().override({RATE: 35, "scheduler.max_num_seqs": 8})
    assert outcome.summary == sim.simulate(changed).summary
    assert (outcome.error, outcome.exit_code, outcome.infeasible) == (None, 0, False)


def test_points_share_the_traffic() -> None:
    few, many = (one(scheduler__max_num_seqs=seats).summary for seats in (2, 64))
    assert few is not None
    assert many is not None
    assert few["total_input_tokens"] == many["total_input_tokens"]
    assert few["mean_ttft_ms"] > many["mean_ttft_ms"]


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"scheduler.max_num_seq": 3}, 2, "did you mean"),
        ({RATE: -1}, 2, "workload.arrivals.rate=-1: "),
        ({"fleet.0.gpu": "h100sxm"}, 2, "h100-sxm"),
        ({"model": "llama-3.1-70b"}, 3, "does not fit"),
        ({"max_model_len": 5}, 3, "nothing could be served: 60 "),
        ({"scheduler.batching": "no.such:Policy"}, 2, "no.such"),
    ],
)
def test_what_goes_wrong_is_an_outcome(settings: dict[str, object], code: int, text: str) -> None:
    outcome = evaluate(small(), Point(3, settings, label(settings)))
    assert outcome.summary is None
    assert outcome.exit_code == code
    assert outcome.infeasible == (code == 3)
    assert outcome.error is not None
    assert text in outcome.error


def test_a_users_policy_that_fails_is_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_policy.py").write_text(
        "from sim.schedulers.iteration_level import IterationLevel\n"
        "class Broken(IterationLevel):\n"
        "    def schedule(self, now):\n"
        "        raise ZeroDivisionError('by design')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    outcome = one(scheduler__batching="broken_policy:Broken")
    assert outcome.exit_code == 2  # a mistake of the user's
    assert outcome.error is not None
    assert "ZeroDivisionError: by design (broken_policy.py:4)" in outcome.error


def test_an_outcome_is_a_summary_or_an_error() -> None:
    point = Point(0, {}, "")
    for wrong in [(None, None, 1), ({}, "both", 1), ({}, None, 1), (None, "why", 0)]:
        with pytest.raises(ValueError, match="an outcome has"):
            Outcome(point, *wrong)


def test_points_and_outcomes_travel() -> None:
    outcome = one(workload__arrivals__rate=3)
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert json.loads(json.dumps(outcome.summary)) == outcome.summary


def test_points_are_numbered_and_named() -> None:
    points = list(numbered([{RATE: 2.5}, {RATE: None, "engine": "vllm"}]))
    assert [(point.index, point.label) for point in points] == [
        (0, "workload.arrivals.rate=2.5"),
        (1, "workload.arrivals.rate=null, engine=vllm"),
    ]


def test_other_processes_come_to_the_same_wherever_the_scenario_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "lengths.csv").write_text("tokens\n" + "\n".join(map(str, range(5, 60))))
    document = {**SMALL, "fleet": {"gpu": "h100-sxm"}}
    document["workload"] = {
        **SMALL["workload"],
        "output_tokens": {"kind": "empirical", "path": "lengths.csv"},
    }
    (folder / "one.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    scenario = sim.load_scenario("there/one.yaml")
    points = list(numbered([{RATE: rate} for rate in (5, 10, -1, 20, 40, 80)]))
    here = {outcome.point.index: outcome for outcome in local(1).run(scenario, points)}
    there = {outcome.point.index: outcome for outcome in local(2).run(scenario, points)}
    assert [here[index].exit_code for index in range(6)] == [0, 0, 2, 0, 0, 0]
    assert here == there


def test_which_executor_is_meant() -> None:
    assert local() == InProcess()
    assert local(-1) == Processes(-1)
    for jobs in (0, -2):
        with pytest.raises(UsageError, match="give 1 or more"):
            local(jobs)


def test_processes_serve_single_calls_and_points() -> None:
    """A plan where nothing can be copied, and then a sweep, in one process."""
    program = (
        "from sim.planning.points.executors import elsewhere, local\n"
        "from sim.planning.points.points import numbered\n"
        "from tests.planning_fixtures import small\n"
        "if __name__ == '__main__':\n"
        "    print(elsewhere(2)(divmod, 7, 2).result())\n"
        "    found = local(2).run(small(), numbered([{}, {'seed': 3}]))\n"
        "    print([outcome.error for outcome in found])\n"
    )
    command = [sys.executable, "-c", program]
    seen = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert seen.stdout.splitlines() == ["(3, 1)", "[None, None]"]


def test_a_killed_process_is_told(tmp_path: Path) -> None:
    (tmp_path / "deadly_policy.py").write_text(
        "import os, signal\n"
        "from sim.schedulers.iteration_level import IterationLevel\n"
        "class Deadly(IterationLevel):\n"
        "    def schedule(self, now):\n"
        f"        if os.getpid() != {os.getpid()}:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    points = numbered([{"scheduler.batching": "deadly_policy:Deadly"}] * 3)
    with pytest.raises(sim.errors.InfersimError, match="was killed"):
        list(local(2).run(small().moved(tmp_path), points))


def test_processes_end_with_the_one_that_asked() -> None:
    code = (
        "import os, signal\n"
        "from sim.planning.points.executors import local\n"
        "from sim.planning.points.points import numbered\n"
        "from tests.planning_fixtures import small\n"
        "settings = [{'seed': seed} for seed in range(50)]\n"
        "next(local(2).run(small(), numbered(settings)))\n"
        "print('one is there', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,  # until the last process that can write to it is gone
        text=True,
        timeout=600,  # without an end they would hold the output open for ever
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == "one is there\n"
