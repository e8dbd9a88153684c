"""The engine serves a scenario: the simulator's batches in its order, on the wall clock."""

from __future__ import annotations

import csv
import json
from itertools import pairwise

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

import numpy as np
from typer import Typer
from typer.testing import CliRunner

from calibrate.engine.record import ObservedResult
from calibrate.engine.run import run
from calibrate.lazy_torch import torch
from calibrate.validation.expected import expect
from calibrate.validation.iterations import read_iterations
from sim.commands.observe import observe
from sim.errors import InfersimError, UsageError
from sim.export import source
from sim.loop.clock import Stop
from sim.scenario import Scenario, load_scenario
from sim.simulation import simulate
from sim.trails.tokens import token_times
from tests.engine_configs import CONFIGS
from tests.engine_fixtures import CLOSED, Ticks, batches, write_tiny


@pytest.fixture
def path(tmp_path):
    return write_tiny(tmp_path, "reference")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_cache.num_gpu_blocks": 16},  # preemptions
        {"kv_cache.num_gpu_blocks": 16, "scheduler.order": "sjf"},
        {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 100},
        {"scheduler.batching": "static"},
        {"scheduler.batching": "request"},
        {"kv_cache.allocator": "contiguous", "kv_cache.num_gpu_blocks": 100},
        {"workload.arrivals": CLOSED},
        {"workload.arrivals": CLOSED, "scheduler.batching": "static"},
    ],
    ids=[
        "plain",
        "tight",
        "sjf",
        "prefill-first",
        "static",
        "request",
        "contiguous",
        "closed",
        "closed-static",
    ],
)
def test_the_batches_are_those_of_the_simulator_step_by_step(path, device, changes):
    scenario = load_scenario(path).override(changes)
    predicted = simulate(scenario, leap=False).record
    observed = run(scenario, device, precision="fp32")
    assert batches(observed.record.plans) == batches(predicted.plans)
    assert len(observed.iterations) == len(predicted.plans)
    for name in ("id", "prompt_tokens", "output_tokens", "generated", "preemptions", "status"):
        assert (observed.record.requests[name] == predicted.requests[name]).all()
    (chunks, away), (theirs, their_away) = observed.record.trail, predicted.trail
    assert sorted(chunks.tolist()) == sorted(theirs.tolist())
    for name in ("request", "out"):
        assert (away[name] == their_away[name]).all()
    if "num_gpu_blocks" in str(changes) and "contiguous" not in str(changes):
        assert predicted.plans["preemptions"].sum() > 0
        outs = [(i.start, lost) for i in observed.iterations for lost in i.preempted]
        noted = zip(away["time"].tolist(), away["request"].tolist(), away["out"], strict=True)
        assert sorted((time, lost) for time, lost, out in noted if out) == sorted(outs)


KINDS = [
    ("mixtral", {"kv_cache.num_gpu_blocks": 16}),
    ("qwen3-moe", {"scheduler.batching": "static"}),
    ("gemma-3", {"kv_cache.num_gpu_blocks": 48}),
    ("gemma-3", {"scheduler.batching": "request", "scheduler.max_num_batched_tokens": 80}),
    ("gemma-3", {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 100}),
    ("gpt-oss", {"kv_cache.num_gpu_blocks": 24}),
    ("gpt-oss", {"kv_cache.num_gpu_blocks": 24, "scheduler.order": "sjf"}),
    ("gpt-oss", {"scheduler.batching": "static", "scheduler.max_num_batched_tokens": 80}),
    ("deepseek-v3", {"kv_cache.num_gpu_blocks": 16}),
    ("deepseek-v3", {"kv_cache.allocator": "contiguous", "kv_cache.num_gpu_blocks": 100}),
    ("llama-4", {"kv_cache.num_gpu_blocks": 24}),
    ("llama-4", {"kv_cache.allocator": "contiguous", "kv_cache.num_gpu_blocks": 100}),
]


@pytest.mark.parametrize(("name", "changes"), KINDS)
def test_batches_of_other_kinds_of_models_are_those_of_the_simulator(
    tmp_path, device, name, changes
):
    """Windows give the same blocks back at the same steps; experts and latents change no plan."""
    folder = write_tiny(tmp_path, "reference", model=CONFIGS[name], blocks=120)
    scenario = load_scenario(folder).override(changes)
    predicted = simulate(scenario, leap=False).record
    observed = run(scenario, device, precision="fp32")
    assert batches(observed.record.plans) == batches(predicted.plans)
    for column in ("generated", "preemptions", "status"):
        assert (observed.record.requests[column] == predicted.requests[column]).all()
    if changes.get("kv_cache.num_gpu_blocks", 100) < 50:
        assert predicted.plans["preemptions"].sum() > 0


@pytest.mark.parametrize("name", ["gemma-3", "gpt-oss", "llama-4", "deepseek-v3"])
def test_observed_iterations_are_predicted_as_the_simulator_timed_them(tmp_path, device, name):
    """What decodes saw through windows is written down, so that the very same time is predicted
    for the observed batches as the simulator took for its own."""
    path = write_tiny(tmp_path, "reference", model=CONFIGS[name], blocks=120)
    scenario = load_scenario(path)
    predicted = simulate(scenario, leap=False).record
    made = ObservedResult(run(scenario, device, precision="fp32")).save(tmp_path / "it")
    iterations = read_iterations(made / "iterations.csv")
    assert iterations is not None
    windows = predicted.pools[0].deployment.model.windows
    if windows:
        assert [list(seen) for seen in iterations.seen] == predicted.plans["seen"].tolist()
        assert any(sum(seen) for seen in iterations.seen)
    expected = expect(iterations, predicted.pools[0].deployment)
    assert expected.seconds == pytest.approx(predicted.plans["gap"], rel=1e-9)


def test_an_observed_run_has_exact_token_times_and_no_parts_that_only_a_model_has(
    path, device, tmp_path
):
    scenario = load_scenario(path).override({"kv_cache.num_gpu_blocks": 16})
    observed = run(scenario, device, precision="fp32")
    result = ObservedResult(observed)
    found = source.read(result.save(tmp_path / "it"))
    assert found.trail is not None
    frame = found.requests[found.requests["status"] == "completed"]
    assert (frame["preemptions"] > 0).any()
    times = token_times(source.columns(frame), source.columns(found.timeseries), found.courses)
    for number, (mine, how) in zip(frame["request_id"], times, strict=True):
        assert how == "exact"
        assert mine.tolist() == observed.token_times[number]
    assert result.requests["prefill_s"].isna().all()
    assert result.summary["infersim"]["resumptions"] is None


def test_same_requests_under_other_policies_get_the_same_answers(path, device):
    scenario = load_scenario(path)
    answers = [
        run(scenario.override({"scheduler.batching": name}), device, precision="fp64").answers
        for name in ("static", "request", "continuous")
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 20


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_cache.num_gpu_blocks": 16},
        {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 100},
        {"workload.arrivals": {"kind": "poisson", "rate": 200}},
    ],
    ids=["burst", "tight", "decodes-wait", "poisson"],
)
def test_times_are_those_of_the_iterations(path, device, changes):
    observed = run(load_scenario(path).override(changes), device, precision="fp32")
    record, iterations = observed.record, observed.iterations
    assert all(a.end <= b.start for a, b in pairwise(iterations))
    assert (record.plans["end"] > record.plans["start"]).all()
    for row in record.requests:
        times = observed.token_times[int(row["id"])]
        assert len(times) == row["output_tokens"]
        assert times[0] == row["first_token"]
        assert times[-1] == row["finish"]
    gaps = [b - a for times in observed.token_times.values() for a, b in pairwise(times)]
    summary = ObservedResult(observed).summary
    assert summary["mean_itl_ms"] == pytest.approx(np.mean(gaps) * 1e3)
    assert summary["p99_itl_ms"] == pytest.approx(np.percentile(gaps, 99) * 1e3)
    parts = np.array(
        [sum((i.phases.schedule, i.phases.prepare, i.phases.forward)) for i in iterations]
    )
    wholes = np.array([i.end - i.start for i in iterations])
    assert (parts <= wholes + 1e-9).all()
    # another process may take the processor between two parts of an iteration, not of most of them
    assert np.median(wholes - parts) < 0.05 * np.median(wholes)


def test_arrivals_come_by_the_clock_and_idle_times_are_slept(path, device):
    scenario = load_scenario(path).override(
        {"workload.arrivals": {"kind": "constant", "rate": 0.01}, "run.requests": 4}
    )
    clock = Ticks(1e-3)
    observed = run(scenario, device, precision="fp32", clock=clock)
    arrivals = observed.record.requests["arrival"]
    assert (observed.record.requests["scheduled"] >= arrivals).all()
    assert (observed.record.requests["scheduled"] - arrivals < 0.01).all()
    assert sorted(set(clock.waits)) == sorted(arrivals[arrivals > 0.01])


def test_an_incomplete_batch_waits_for_its_timeout(path, device):
    scenario = load_scenario(path).override(
        {
            "scheduler.batching": "request",
            "scheduler.batch_timeout": 5.0,
            "workload.arrivals": {"kind": "constant", "rate": 0.5},
            "run.requests": 9,
        }
    )
    clock = Ticks(1e-3)
    observed = run(scenario, device, precision="fp32", clock=clock)
    queue = observed.record.queue
    assert observed.iterations[0].start >= observed.record.requests["arrival"][0] + 5.0
    assert queue[0] == pytest.approx(5.0, abs=0.01)
    assert len(observed.iterations[0].prefills) == 3


def test_a_closed_loop_keeps_its_clients_apart(path, device):
    scenario = load_scenario(path).override(
        {
            "workload.arrivals": {"kind": "closed", "concurrency": 3, "think_time": 7.0},
            "run.requests": 12,
        }
    )
    observed = run(scenario, device, precision="fp32", clock=Ticks(1e-3))
    rows = observed.record.requests
    assert max(observed.record.plans["running"]) <= 3
    finishes = sorted(rows["finish"])
    later = sorted(rows["arrival"])[3:]
    assert later == pytest.approx([finish + 7.0 for finish in finishes[:9]])


def test_a_horizon_leaves_requests_unfinished(path, device):
    scenario = load_scenario(path).override({"run.horizon": 0.02})
    observed = run(scenario, device, precision="fp32", clock=Ticks(1e-3))
    summary = ObservedResult(observed).summary
    requests = summary["infersim"]["requests"]
    assert requests["unfinished"] > 0
    assert requests["submitted"] == 20
    assert observed.record.end < 0.03


def test_a_wish_to_stop_is_heeded(path, device):
    stop = Stop()

    def progress(done: int, total: int) -> None:
        stop.requested = done >= 5

    observed = run(load_scenario(path), device, precision="fp32", stop=stop, progress=progress)
    assert observed.record.interrupted
    assert 5 <= observed.record.completed.sum() < 20


def test_a_refused_request_is_recorded(path, device):
    scenario = load_scenario(path).override({"max_model_len": 60})
    observed = run(scenario, device, precision="fp32")
    predicted = simulate(scenario).record
    assert observed.record.reasons == predicted.reasons != []
    assert (observed.record.requests["status"] == predicted.requests["status"]).all()


def keys(document) -> set[str]:
    """Every path of a nested mapping."""
    if not isinstance(document, dict):
        return set()
    inner = {f"{key}.{path}" for key, value in document.items() for path in keys(value)}
    return set(document) | inner


def test_the_run_directory_is_that_of_a_simulated_run_and_more(path, device, tmp_path):
    scenario = load_scenario(path)
    observed = run(scenario, device, precision="fp32")
    result = ObservedResult(observed)
    made, simulated = result.save(tmp_path / "observed"), simulate(scenario)
    simulated.save(tmp_path / "simulated")
    names = {entry.name for entry in made.iterdir()}
    assert names == {e.name for e in (tmp_path / "simulated").iterdir()} | {"iterations.csv"}
    manifest = json.loads((made / "manifest.json").read_text())
    assert (manifest["kind"], manifest["status"]) == ("observed", "complete")
    assert manifest["device"]["details"]["torch"] == torch.__version__
    summary = json.loads((made / "summary.json").read_text())
    inner = ("time_by_operator", "operators", "bound_by", "memory", "cost", "energy", "error_band")
    skipped = tuple(f"infersim.{name}." for name in inner)
    theirs = {key for key in keys(simulated.summary) if not key.startswith(skipped)}
    assert theirs - keys(summary) == set()
    assert summary["infersim"]["verdict"]["state"] == "observed"
    assert summary["infersim"]["gpu"] == device.facts.name
    assert sum(summary["infersim"]["time_by_operator"].values()) == pytest.approx(1)
    for frame in ("requests", "timeseries"):
        assert list(getattr(result, frame).columns) == list(getattr(simulated, frame).columns)
    with (made / "iterations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(observed.record.plans)
    first = [part.split(":") for part in rows[0]["prefills"].split()]
    assert sum(int(tokens.split("+")[1]) for _, tokens in first) == int(rows[0]["prefill_tokens"])
    assert rows[-1]["decodes"] != ""


def test_the_command_writes_what_a_report_reads(path, device, tmp_path):
    app = Typer()
    app.command()(observe)
    arguments = [str(path), "--device", "cpu", "--threads", "1", "--precision", "fp32"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "Observed: 20 of 20 requests were completed." in done.output
    assert max(map(len, done.output.splitlines())) <= 88 + len(str(tmp_path))
    from reports.__main__ import main

    assert main([str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("changes", "precision", "message"),
    [
        ({"fleet.0.replicas": 2}, "fp32", "one replica"),
        ({"run.repetitions": 3, "workload.arrivals": {"kind": "poisson", "rate": 3}}, None, "once"),
        ({"precision.weights": "fp8"}, None, "computes in one precision"),
        ({}, "fp9", "not in fp9"),
        ({"model": "gpt-j-6b", "kv_cache.num_gpu_blocks": 1}, "fp32", "GPT-J|gpt-j"),
        ({"kv_cache.num_gpu_blocks": 10**9}, "fp32", "free"),
    ],
)
def test_what_the_engine_cannot_do_is_said(path, device, changes, precision, message):
    scenario: Scenario = load_scenario(path).override(changes)
    with pytest.raises(UsageError, match=message):
        run(scenario, device, precision=precision)


def test_a_policy_that_never_runs_anybody_is_called_stuck(path, device, monkeypatch):
    monkeypatch.setattr("sim.schedulers.ChunkedPrefill.schedule", lambda self, now: None)
    with pytest.raises(InfersimError, match="stuck: 20 requests wait"):
        run(load_scenario(path), device, precision="fp32", clock=Ticks(1e-3))
