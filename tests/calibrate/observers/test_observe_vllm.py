"""vLLM serves a scenario: what it is told, what is refused, and what is written down of it."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.dense_models import changed

pytest.importorskip("torch", reason="the engines need PyTorch")

from typer import Typer
from typer.testing import CliRunner

from calibrate.dense import dense_models
from calibrate.device import Device, DeviceFacts
from calibrate.engine.record import ObservedResult
from calibrate.observers import lazy_vllm, vllm
from calibrate.observers.hf_config import config, write
from calibrate.observers.vllm import observe
from calibrate.observers.vllm_engine import VllmSettings
from calibrate.observers.vllm_settings import wanted
from sim import catalog
from sim.catalog.huggingface import read_config
from sim.commands.observe import observe as command
from sim.errors import InfersimError, UsageError
from sim.loop.clock import Stop
from sim.scenario import Scenario, load_scenario
from sim.setup import prepare
from sim.simulation import play, simulate
from sim.workload import build
from tests.engine_fixtures import Ticks, batches, llama, write_tiny
from tests.places import ROOT, VLLM
from tests.vllm_fake import FakeEngine

HAVE_VLLM = importlib.util.find_spec("vllm") is not None
TIGHT = {"kv_cache.num_gpu_blocks": 9}


@pytest.fixture
def path(tmp_path):
    """Blocks of 32 tokens, as vLLM wants them on a CPU, and heads of a size that it knows."""
    return write_tiny(
        tmp_path,
        VLLM,
        model=llama(num_attention_heads=2, num_key_value_heads=1, head_dim=32),
        max_model_len=224,
        block_size=32,
        prompts=(3, 100),
        outputs=(1, 60),
        requests=14,
    )


@pytest.fixture
def engines(monkeypatch):
    """Everything but vLLM itself; the engines that were made."""
    made: list[FakeEngine] = []

    def start(setup, asked, sampling):
        made.append(FakeEngine(asked.settings))
        return made[-1]

    monkeypatch.setattr(vllm, "_start", start)
    monkeypatch.setattr(lazy_vllm, "module", lambda name: SimpleNamespace(__version__="0.0"))
    return made


# -- the model ---------------------------------------------------------------------------------

SHAPES = [model.name for model in dense_models() if model.name != "gpt-j-6b"]


@pytest.mark.parametrize("name", SHAPES)
def test_a_written_configuration_is_read_as_the_same_model(name, tmp_path):
    spec = catalog.model(name)
    again = read_config(write(spec, tmp_path) / "config.json")
    unwritten = {"name": spec.name, "source": spec.source}
    assert changed(again, **unwritten) == changed(spec, sliding_window=None)


def test_a_configuration_names_no_token_that_ends_an_answer():
    assert config(catalog.model("llama-3.2-1b"))["eos_token_id"] is None


def test_a_model_of_another_family_is_refused():
    with pytest.raises(UsageError, match=r"layers of a kind that is not measured"):
        config(catalog.model("mixtral-8x7b"))
    with pytest.raises(UsageError, match=r"layers of neither Llama, Qwen2 nor Qwen3"):
        config(catalog.model("gpt-j-6b"))


# -- the settings ------------------------------------------------------------------------------


def facts(kind="cpu"):
    return DeviceFacts(kind=kind, name="one", memory=2**34, units=1, cache=2**20, details={})


def test_a_scenario_is_told_in_the_words_of_vllm(path):
    changes = {
        "scheduler.order": "priority",
        "scheduler.long_prefill_token_threshold": 20,
        "scheduler.scheduler_reserve_full_isl": False,
        "kv_cache.num_gpu_blocks": 6,
    }
    told = wanted(prepare(load_scenario(path).override(changes)), facts(), "fp32")
    assert told.settings == VllmSettings(
        max_num_seqs=6,
        max_num_batched_tokens=48,
        max_model_len=160,  # what five blocks hold
        block_size=32,
        num_gpu_blocks=6,
        long_prefill_token_threshold=20,
        scheduler_reserve_full_isl=False,
        scheduling_policy="priority",
    )
    assert told.settings.engine_arguments()["num_gpu_blocks_override"] == 6
    assert told.arguments["dtype"] == "float32"
    assert told.arguments["enforce_eager"]
    assert wanted(prepare(load_scenario(path)), facts(), None).precision == "bf16"


def test_on_a_gpu_graphs_are_used_and_blocks_may_be_smaller(path):
    scenario = load_scenario(path).override({"kv_cache": {"block_size": 16}})
    told = wanted(prepare(scenario), facts("cuda"), None)
    assert not told.arguments["enforce_eager"]
    assert (told.settings.num_gpu_blocks, told.settings.max_model_len) == (None, 224)


@pytest.mark.parametrize(
    ("changes", "precision", "message"),
    [
        ({"fleet.0.replicas": 2}, "fp32", "one replica on one device"),
        ({"run.repetitions": 3}, "fp32", "runs once"),
        ({"scheduler.batching": "static"}, "fp32", "batching: static is not supported by vLLM"),
        ({"scheduler.chunked_prefill": False}, "fp32", "with chunked prefill"),
        ({"scheduler.policy": "vllm-v0"}, "fp32", "not the rule of vLLM V1"),
        (
            {"scheduler.order": "sjf"},
            "fp32",
            "order: sjf is not supported by vLLM; only fcfs or priority",
        ),
        ({"kv_cache.allocator": "contiguous"}, "fp32", "only paged is"),
        ({"kv_cache.block_size": 16}, "fp32", "requires a multiple of 32, not 16"),
        ({"precision.weights": "fp8"}, None, "runs in one precision, not in fp8 weights"),
        ({}, "fp64", "in bf16, fp16, fp32 here, not in fp64"),
    ],
)
def test_what_vllm_cannot_be_told_is_said(path, changes, precision, message):
    setup = prepare(load_scenario(path).override(changes))
    with pytest.raises(UsageError, match=message):
        wanted(setup, facts(), precision)


def test_a_model_that_does_not_fit_is_said_before_anything_is_loaded(path, device, engines):
    scenario = load_scenario(path).override({"kv_cache.num_gpu_blocks": 10**9})
    with pytest.raises(UsageError, match=r"has .* free; lower kv_cache.num_gpu_blocks"):
        observe(scenario, device, precision="fp32")
    assert engines == []


def test_only_the_first_gpu(path, engines):
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        observe(load_scenario(path), Device(facts("cuda"), index=1), precision="fp32")


@pytest.mark.skipif(HAVE_VLLM, reason="vLLM is installed")
def test_without_vllm_the_command_names_the_package(path, tmp_path):
    app = Typer()
    app.command()(command)
    out = tmp_path / "out"
    arguments = [str(path), "--device", "cpu", "--engine", "vllm", "-o", str(out)]
    done = CliRunner().invoke(app, [*arguments, "--precision", "fp32"])
    assert done.exit_code == 2
    assert "needs the package vllm" in done.stderr
    assert not out.exists()


# -- the loop, around an engine that is none ---------------------------------------------------


def straight(scenario):
    """A run whose requests come straight to the scheduler."""
    setup = prepare(scenario)
    bare = setup.each(lambda pool: pool.with_engine(pool.deployment.engine.without_front_end()))
    with Stop() as stop:
        return play(bare, build(scenario, scenario.seed), leap=False, stop=stop)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        TIGHT,
        TIGHT | {"scheduler.long_prefill_token_threshold": 16},
        {"workload.arrivals": {"kind": "closed", "concurrency": 4}, "engine": "ideal"},
        {"max_model_len": 90},  # some are refused
    ],
    ids=["burst", "tight", "threshold", "closed", "refused"],
)
def test_what_is_written_down_is_what_was_run(path, device, engines, changes):
    scenario = load_scenario(path).override(changes)
    if "engine" in changes:  # which has no front end, nor a block of its own
        scenario = scenario.override({"kv_cache.num_gpu_blocks": 39})
    predicted = straight(scenario)
    if "engine" in changes:
        scenario = scenario.override({"kv_cache.num_gpu_blocks": 40})
    observed = observe(scenario, device, precision="fp32", clock=Ticks(1e-3))
    assert batches(observed.record.plans) == batches(predicted.plans)
    for name in ("id", "prompt_tokens", "output_tokens", "generated", "preemptions", "status"):
        assert (observed.record.requests[name] == predicted.requests[name]).all()
    assert observed.record.reasons == predicted.reasons
    for row in observed.record.requests:
        if row["finish"] == row["finish"]:
            times = observed.token_times[int(row["id"])]
            assert (times[0], times[-1]) == (row["first_token"], row["finish"])
            assert len(observed.answers[int(row["id"])]) == row["output_tokens"]
    assert engines[0].closed


def test_prompts_are_those_of_the_reference_engine(path, device, engines):
    observed = observe(load_scenario(path), device, precision="fp32", clock=Ticks(1e-3))
    lengths = {number: len(tokens) for number, tokens in engines[0].prompts.items() if number >= 0}
    rows = observed.record.requests
    assert lengths == dict(zip(rows["id"].tolist(), rows["prompt_tokens"].tolist(), strict=True))
    assert min(min(tokens) for tokens in engines[0].prompts.values()) >= 1


def test_phases_add_up_and_idle_times_are_waited_for(path, device, engines):
    changes = {"workload.arrivals": {"kind": "constant", "rate": 0.01}, "run.requests": 4}
    clock = Ticks(1e-3)
    scenario = load_scenario(path).override(changes)
    observed = observe(scenario, device, precision="fp32", clock=clock)
    arrivals = observed.record.requests["arrival"]
    assert sorted(set(clock.waits)) == sorted(arrivals[arrivals > 0.01])
    assert (observed.record.requests["scheduled"] >= arrivals).all()
    for i in observed.iterations:
        parts = i.phases.schedule + i.phases.prepare + i.phases.forward
        assert parts == pytest.approx(i.end - i.start)
        assert i.phases.finish > 0


def test_a_horizon_leaves_requests_unfinished(path, device, engines):
    scenario = load_scenario(path).override({"run.horizon": 0.1})
    observed = observe(scenario, device, precision="fp32", clock=Ticks(1e-3))
    requests = ObservedResult(observed).summary["infersim"]["requests"]
    assert requests["unfinished"] > 0
    assert requests["submitted"] == 14


def test_a_wish_to_stop_is_heeded(path, device, engines):
    stop = Stop()

    def progress(done: int, total: int) -> None:
        stop.requested = done >= 5

    scenario: Scenario = load_scenario(path)
    observed = observe(scenario, device, precision="fp32", stop=stop, progress=progress)
    assert observed.record.interrupted
    assert 5 <= observed.record.completed.sum() < 14


def test_an_engine_that_serves_nobody_is_called_stuck(path, device, engines, monkeypatch):
    monkeypatch.setattr(vllm, "_warm_up", lambda engine, asked: None)
    monkeypatch.setattr("sim.schedulers.ChunkedPrefill.schedule", lambda self, now: None)
    with pytest.raises(InfersimError, match="vLLM is stuck: 14 requests wait"):
        observe(load_scenario(path), device, precision="fp32", clock=Ticks(1e-3))
    assert engines[0].closed


def test_the_run_directory_says_which_engine_and_how_many_blocks(path, device, engines, tmp_path):
    scenario = load_scenario(path).override({"kv_cache": {"block_size": 32}})
    observed = observe(scenario, device, precision="fp32", clock=Ticks(1e-3))
    made = ObservedResult(observed).save(tmp_path / "out")
    engine = json.loads((made / "manifest.json").read_text())["engine"]
    assert (engine["name"], engine["version"], engine["precision"]) == ("vLLM", "0.0", "fp32")
    assert engine["settings"]["max_num_batched_tokens"] == 48
    assert engine["settings"]["num_gpu_blocks"] == 40  # which the engine chose
    summary = json.loads((made / "summary.json").read_text())["infersim"]
    assert summary["kv_cache"]["num_gpu_blocks"] == 40
    assert "vLLM 0.0, attention: none at all" in summary["provenance"]
    with (made / "iterations.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(observed.iterations)


# -- the engine itself -------------------------------------------------------------------------


@pytest.mark.skipif(not HAVE_VLLM, reason="vLLM is not installed")
@pytest.mark.parametrize("changes", [{}, TIGHT], ids=["burst", "tight"])
def test_vllm_serves_a_burst_in_the_batches_of_the_simulator(path, changes, tmp_path):
    """In a process of its own: vLLM changes much of the one it is imported into."""
    out = tmp_path / "out"
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    arguments = ["observe", str(path), "--device", "cpu", "--engine", "vllm", "--threads", "1"]
    arguments += ["--precision", "fp32", "--json", "-o", str(out), *sets]
    done = subprocess.run(
        [sys.executable, "-c", "from sim.cli import main; main()", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert summary["completed"] == 14
    predicted = simulate(load_scenario(path).override(changes), leap=False)
    mine = predicted.record.plans
    with (out / "iterations.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {"decode_seqs": "decode", "prefill_seqs": "prefill_seqs"}
    columns |= {"prefill_tokens": "prefill_tokens", "context_tokens": "context"}
    for theirs, ours in columns.items():
        assert [int(row[theirs]) for row in rows] == mine[ours].tolist()
    assert [len(row["preempted"].split()) for row in rows] == mine["preemptions"].tolist()
    assert bool(changes) == (mine["preemptions"].sum() > 0)
    blocks = summary["infersim"]["kv_cache"]["num_gpu_blocks"]
    assert blocks == predicted.summary["infersim"]["kv_cache"]["num_gpu_blocks"]
    assert [float(row["duration_s"]) > 0 for row in rows] == [True] * len(rows)
