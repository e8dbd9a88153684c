"""Hugging Face transformers serves a scenario and is recorded as the reference engine is."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")
pytest.importorskip("transformers", reason="transformers is not installed here")

import numpy as np
from typer import Typer
from typer.testing import CliRunner

from calibrate.device import Device
from calibrate.engine.loop import WallClock
from calibrate.engine.observed import Observed
from calibrate.engine.record import ObservedResult
from calibrate.observers import transformers as driver
from calibrate.observers.transformers import observe, observe_by_request
from calibrate.observers.transformers_engine import ContinuousBatches
from sim.commands.observe import observe as command
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.scenario import Scenario, load_scenario
from sim.scenario.pools import only
from sim.simulation import simulate
from tests.engine_fixtures import CLOSED, Ticks, batches, write_tiny

TIGHT = {"kv_cache.num_gpu_blocks": 16}
CONTIGUOUS = {"kv_cache.allocator": "contiguous", "kv_cache.num_gpu_blocks": 200}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return load_scenario(write_tiny(tmp_path, "transformers", blocks=60, requests=12))


def check_whole(observed: Observed) -> None:
    """Every prompt is computed once, and once more after each loss of its memory; every request
    has all its tokens at the ends of iterations that follow each other."""
    rows, times = observed.record.requests, observed.token_times
    assert all(a.end <= b.start for a, b in pairwise(observed.iterations))
    for row in rows:
        mine = times[int(row["id"])]
        assert len(mine) == row["output_tokens"] == len(observed.answers[int(row["id"])])
        assert mine[0] == row["first_token"]
        assert mine[-1] == row["finish"]
        assert row["arrival"] <= row["scheduled"] < row["first_token"]
    for row in rows[rows["preemptions"] == 0]:
        chunks = [c for i in observed.iterations for c in i.prefills if c[0] == row["id"]]
        assert [before for _, before, _ in chunks] == [0, *np.cumsum([n for *_, n in chunks])[:-1]]
        assert sum(n for *_, n in chunks) == row["prompt_tokens"]


@pytest.mark.parametrize("changes", [{}, TIGHT, {"workload.arrivals": CLOSED}])
def test_every_request_is_served_whole(
    scenario: Scenario, device: Device, changes: dict[str, Any]
) -> None:
    observed = observe(scenario.override(changes), device, precision="fp32")
    check_whole(observed)
    plans, limits = observed.record.plans, only(observed.record.pools).limits
    assert (plans["decode"] + plans["prefill_tokens"] <= limits.max_num_batched_tokens).all()
    assert (plans["decode"] + plans["prefill_seqs"] <= limits.max_num_seqs).all()
    usable = only(observed.record.pools).capacity.tokens
    assert (plans["reserved"] <= usable).all()
    assert (plans["held"] <= plans["reserved"]).all()
    assert (plans["preemptions"].sum() > 0) == (changes == TIGHT)
    gaps = [b - a for times in observed.token_times.values() for a, b in pairwise(times)]
    summary = ObservedResult(observed).summary
    assert summary["mean_itl_ms"] == pytest.approx(np.mean(gaps) * 1e3)
    assert summary["p99_itl_ms"] == pytest.approx(np.percentile(gaps, 99) * 1e3)


def test_a_burst_makes_the_same_batches_again(scenario: Scenario, device: Device) -> None:
    runs = [observe(scenario.override(TIGHT), device, precision="fp32") for _ in range(2)]
    first, second = (
        [(i.decodes, i.prefills, i.served, i.preempted) for i in run.iterations] for run in runs
    )
    assert first == second
    assert runs[0].answers == runs[1].answers


def test_answers_do_not_depend_on_batches_or_attention(scenario: Scenario, device: Device) -> None:
    static = scenario.override({"scheduler.batching": "static"})
    answers = [
        observe(scenario, device, precision="fp64").answers,
        observe(scenario.override(TIGHT), device, precision="fp64").answers,
        observe_by_request(scenario, device, precision="fp64").answers,
        observe(static, device, precision="fp64").answers,
    ]
    assert len(answers[0]) == 12
    assert len({tuple(answer) for answer in answers[0].values()}) > 6
    for other in answers[1:]:
        assert other == answers[0]


def test_its_own_timestamps_are_within_the_iterations(
    scenario: Scenario, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ContinuousBatches] = []

    class Kept(ContinuousBatches):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(driver, "ContinuousBatches", Kept)
    clock = WallClock()
    observed = observe(scenario, device, precision="fp32", clock=clock)
    left = {i.end: i.end + i.phases.finish for i in observed.iterations}
    for number, ours in observed.token_times.items():
        theirs = [time - clock._start for time in made[0].timestamps[number]]
        for mine, other in zip(ours, theirs, strict=True):
            assert mine <= other <= left[mine]


@pytest.mark.parametrize(
    "changes",
    [{}, TIGHT, {"workload.arrivals": CLOSED}, CONTIGUOUS],
    ids=["plain", "tight", "closed", "contiguous"],
)
def test_static_batches_are_those_of_the_simulator(
    scenario: Scenario, device: Device, changes: dict[str, Any]
) -> None:
    static = scenario.override({"scheduler.batching": "static", **changes})
    observed = observe(static, device, precision="fp32")
    predicted = simulate(static, leap=False).record
    assert batches(observed.record.plans) == batches(predicted.plans)
    for row in observed.record.requests:
        times = observed.token_times[int(row["id"])]
        assert len(times) == row["output_tokens"]
        assert (times[0], times[-1]) == (row["first_token"], row["finish"])
    assert sum(i.padded for i in observed.iterations) > 0


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_arrivals_come_by_the_clock_and_idle_times_are_slept(
    scenario: Scenario, device: Device, batching: str
) -> None:
    changes = {
        "workload.arrivals": {"kind": "constant", "rate": 0.01},
        "run.requests": 4,
        "scheduler.batching": batching,
        "scheduler.max_num_seqs": 1,
    }
    clock = Ticks(1e-3)
    observed = observe(scenario.override(changes), device, precision="fp32", clock=clock)
    rows = observed.record.requests
    assert (rows["scheduled"] >= rows["arrival"]).all()
    assert (rows["scheduled"] - rows["arrival"] < 0.02).all()
    assert set(rows["arrival"][rows["arrival"] > 0.02]) <= set(clock.waits)


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_horizon_leaves_requests_unfinished(
    scenario: Scenario, device: Device, batching: str
) -> None:
    changes = {"run.horizon": 0.06, "scheduler.batching": batching}
    observed = observe(scenario.override(changes), device, precision="fp32", clock=Ticks(1e-3))
    requests = ObservedResult(observed).summary["infersim"]["requests"]
    assert requests["unfinished"] > 0
    assert requests["submitted"] == 12
    assert observed.record.end < 0.08


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_wish_to_stop_is_heeded(scenario: Scenario, device: Device, batching: str) -> None:
    stop = Stop()

    def progress(done: int, total: int) -> None:
        stop.requested = done >= 4

    chosen = scenario.override({"scheduler.batching": batching})
    observed = observe(chosen, device, precision="fp32", stop=stop, progress=progress)
    assert observed.record.interrupted
    assert 4 <= observed.record.completed.sum() < 12


def test_a_request_that_never_fits_is_refused(scenario: Scenario, device: Device) -> None:
    small = {"kv_cache.num_gpu_blocks": 9, "workload.prompt_tokens.low": 50}
    observed = observe(scenario.override(small), device, precision="fp32")
    rows = observed.record.requests
    refused = rows["status"] == 1
    assert 0 < refused.sum() < 12
    assert observed.record.reasons
    most = rows["prompt_tokens"] + rows["output_tokens"]
    assert most[refused].min() >= most[~refused].max() - 1


def test_random_sampling_draws_other_tokens(scenario: Scenario, device: Device) -> None:
    greedy = observe(scenario, device, precision="fp32").answers
    drawn = observe(scenario, device, precision="fp32", sampling="random").answers
    assert {number: len(answer) for number, answer in drawn.items()} == {
        number: len(answer) for number, answer in greedy.items()
    }
    assert drawn != greedy


def test_static_batches_have_no_attention_by_request(scenario: Scenario, device: Device) -> None:
    static = scenario.override({"scheduler.batching": "static"})
    with pytest.raises(UsageError, match="use --engine transformers"):
        observe_by_request(static, device, precision="fp32")


def test_a_release_with_another_manager_is_told_apart(
    scenario: Scenario, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrate.observers.transformers_engine.NEEDED", ("split_the_batch",))
    with pytest.raises(
        UsageError, match=r"continuous batching that cannot .* \(no split_the_batch\)"
    ):
        observe(scenario, device, precision="fp32")


@pytest.mark.parametrize("engine", ["transformers", "transformers-by-request"])
def test_the_command_writes_a_run_directory(
    scenario: Scenario, tmp_path: Path, engine: str
) -> None:
    app = Typer()
    app.command()(command)
    arguments = [str(tmp_path / "tiny.yaml"), "--engine", engine, "--device", "cpu"]
    arguments += ["--threads", "1", "--precision", "fp32", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Observed: 12 of 12 requests were completed." in done.output
    assert max(map(len, done.output.split("Run: ")[0].splitlines())) <= 88
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["engine"]["name"] == "transformers"
    told = "paged|by-request" if engine.endswith("request") else "paged|sdpa"
    assert manifest["engine"]["attention"].startswith(f"{told}: ")
    assert manifest["engine"]["settings"]["safety_margin"] == 0.15
    with (tmp_path / "out" / "iterations.csv").open() as file:
        assert sum(int(row["decode_seqs"]) for row in csv.DictReader(file)) > 0
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
