"""Runs that other programs recorded, taken in as run directories and simulated once more."""

from __future__ import annotations

import json
import re
import shlex
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer import Typer
from typer.testing import CliRunner

import sim
from calibrate.recordings import FORMATS, find_format
from calibrate.recordings.recording import RecordingChoice
from calibrate.recordings.scenario import known_gpu, known_model
from calibrate.validation.observed import read_observed
from sim import catalog
from sim.catalog import gpu_names
from sim.cli import app
from sim.commands.observe import observe
from sim.commands.observe_records import bring_in
from sim.errors import InfersimError, UsageError
from sim.schedulers.ahead import AsyncChunkedPrefill
from tests.places import ROOT

MEASURED = ROOT.parent / "shared/data/measured/vllm_rtx4090_llama-3.1-8b"

BENCH: dict[str, Any] = {
    "date": "20260102-030405",
    "endpoint_type": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 4,
    "request_rate": "inf",
    "max_concurrency": 3,
    "duration": 1.6,
    "completed": 3,
    "mean_ttft_ms": 40.0,
    "p99_tpot_ms": float("nan"),
    "input_lens": [128, 256, 64, 99],
    "output_lens": [3, 0, 4, 1],
    "ttfts": [0.05, 0.0, 0.03, 0.04],
    "itls": [[0.01, 0.03], [], [0.02, 0.02, 0.07], []],
    "start_times": [8000.75, 8000.5, 8000.5, 8001.25],
    "errors": ["", "Traceback:\n  deep\nConnectionRefusedError: no", "", ""],
    "generated_texts": ["a", "", "b", "c"],
}

META: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "vllm_version": "0.19.0",
    "engine_kwargs": {"tensor_parallel_size": 2, "max_num_seqs": 12, "dtype": "bfloat16"},
    "kv_cache": {"num_gpu_blocks": 500, "block_size": 32, "enable_prefix_caching": True},
    "hardware": {"device_name": "NVIDIA H100 80GB HBM3", "device_count": 2},
    "resolved_config": {
        "scheduler_config": {"max_num_batched_tokens": 1024, "policy": "fcfs"},
        "cache_config": {"cache_dtype": "fp8"},
        "model_config": {"dtype": "torch.bfloat16", "max_model_len": 4096, "quantization": None},
    },
}
UNIX, MONOTONIC = 1.8e9, 27536.5
LOG = [  # prompt, output, arrival, queued, scheduled, first token, last token; s since the start
    (300, 5, 0.0, 0.010, 0.010, 0.2, 0.6),
    (90, 1, 0.3, 0.390, 0.400, 0.5, 0.5),
    (80, 21, 0.3, 0.320, 0.400, 0.5, 2.5),
]
SERIES = """t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct
1.0,470.0,12.0,2,1,40.0
3.0,0.0,8.0,1,0,20.0
"""


def bench(folder: Path, **changes: Any) -> Path:
    path = folder / "result.json"
    document = {key: value for key, value in (BENCH | changes).items() if value != "absent"}
    path.write_text(json.dumps(document))
    return path


def log(folder: Path, rows: Any = LOG, *, meta: Any = META, series: str = SERIES) -> Path:
    place = folder / "server"
    place.mkdir()
    lines = [
        {"request_id": f"r{number}", "input_toks": row[0], "output_toks": row[1]}
        | {"arrival_time": UNIX + row[2]}
        | dict(
            zip(
                ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"),
                (MONOTONIC + time for time in row[3:]),
                strict=True,
            )
        )
        for number, row in enumerate(rows)
    ]
    (place / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if meta is not None:
        (place / "meta.json").write_text(json.dumps(meta))
    if series:
        (place / "timeseries.csv").write_text(series)
    return place


def command(*arguments: object) -> Any:
    app = Typer()
    app.command()(observe)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def keys(document: Any) -> set[str]:
    """Every path of a nested mapping."""
    if not isinstance(document, dict):
        return set()
    inner = {f"{key}.{path}" for key, value in document.items() for path in keys(value)}
    return set(document) | inner


# -- vllm bench serve ------------------------------------------------------------------------------


def test_a_benchmark_has_the_figures_of_its_lists(tmp_path: Path) -> None:
    path = bench(tmp_path)
    result, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    summary = json.loads((made / "summary.json").read_text())
    assert summary == result.summary
    gaps = [0.01, 0.03, 0.02, 0.02, 0.07]
    assert summary["mean_ttft_ms"] == pytest.approx(40.0)
    assert summary["p99_itl_ms"] == pytest.approx(np.percentile(gaps, 99) * 1e3)
    assert summary["std_itl_ms"] == pytest.approx(np.std(gaps) * 1e3)
    assert summary["mean_tpot_ms"] == pytest.approx((20 + 110 / 3) / 2)
    assert summary["median_e2el_ms"] == pytest.approx(90.0)
    assert (summary["completed"], summary["failed"]) == (3, 1)
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (291, 8)
    assert summary["duration"] == pytest.approx(0.79)  # 8000.5 to 8001.29
    own = summary["infersim"]
    assert own["verdict"]["text"] == "Observed: 3 of 4 requests were completed."
    assert own["requests"]["rejected_reasons"] == {"failed: ConnectionRefusedError: no": 1}
    rows = pd.read_parquet(made / "requests.parquet")
    assert rows["arrival_s"].tolist() == [0.0, 0.0, 0.25, 0.75]
    assert rows["status"].tolist() == ["failed", "completed", "completed", "completed"]
    assert own["simulated_by"] is None
    assert own["error_band"]["text"].startswith("Measured, not predicted")


def test_failed_requests_are_called_failed(tmp_path: Path) -> None:
    done = command(
        bench(tmp_path), "--from", "vllm-bench", "--gpu", "h100-sxm", "-o", tmp_path / "r"
    )
    text = " ".join(done.output.split())
    assert "1 request failed and is left out of the trace" in text
    assert re.search(r"failed\W+1\b", text)
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Failed because" in page
    assert re.search(r"Not all: 1 request \(25\W+%\) failed\.", page)
    for word in ("rejected", "refused"):
        assert word not in text
        assert f"requests were {word}" not in page


def test_the_day_is_that_of_the_record(tmp_path: Path) -> None:
    bring_in("vllm-bench", bench(tmp_path), tmp_path / "a", gpu="h100-sxm")
    assert read_observed(tmp_path / "a").date == "2026-01-02"
    (tmp_path / "sub").mkdir()
    bring_in("vllm-bench", bench(tmp_path / "sub", date="absent"), tmp_path / "b", gpu="h100-sxm")
    assert read_observed(tmp_path / "b").date == "not recorded"
    meta = META | {"started_at": "2026-04-25T23:19:39.992496Z"}
    bring_in("log", log(tmp_path, meta=meta), tmp_path / "c")
    assert read_observed(tmp_path / "c").date == "2026-04-25"


def test_what_a_benchmark_does_not_tell_is_null(tmp_path: Path) -> None:
    _, made = bring_in("vllm-bench", bench(tmp_path), tmp_path / "run", gpu="h100-sxm")
    assert json.loads((made / "manifest.json").read_text())["front_end"] == "server"
    own = json.loads((made / "summary.json").read_text())["infersim"]
    assert set(own["queue_ms"].values()) == {None}
    assert set(own["batch"].values()) == {None}
    assert set(own["utilisation"].values()) == {None}
    assert own["preemptions"] is own["energy"] is None
    assert {k: v for k, v in own["kv_cache"].items() if v is not None} == {"allocator": "paged"}
    assert pd.read_parquet(made / "requests.parquet")["preemptions"].isna().all()


def test_what_is_unknown_is_nowhere_a_key_less(tmp_path: Path) -> None:
    result, made = bring_in("log", log(tmp_path), tmp_path / "run")
    off = ["kv_cache.enable_prefix_caching=false"]  # of which a record says nothing
    simulated = sim.simulate(sim.load_scenario(made / "scenario.yaml", off))
    inner = ("time_by_operator", "operators", "bound_by", "memory", "energy", "error_band")
    ignored = tuple(f"infersim.{name}." for name in inner)
    theirs = {key for key in keys(simulated.summary) if not key.startswith(ignored)}
    assert theirs - keys(result.summary) == set()
    simulated.save(tmp_path / "simulated")
    for name in ("requests.parquet", "timeseries.parquet"):
        observed, other = (pd.read_parquet(tmp_path / d / name) for d in ("run", "simulated"))
        assert list(observed.columns) == list(other.columns)


def test_requests_of_older_releases_came_at_once(tmp_path: Path) -> None:
    path = bench(tmp_path, start_times="absent", max_concurrency=None)
    _, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    assert set(pd.read_parquet(made / "requests.parquet")["arrival_s"]) == {0.0}


def test_older_results_with_a_limit_are_sent_as_places_became_free(tmp_path: Path) -> None:
    path = bench(tmp_path, start_times="absent", max_concurrency=1, duration=9.0)
    result, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    rows = pd.read_parquet(made / "requests.parquet")
    served = rows[rows["status"] == "completed"]
    assert served["arrival_s"].tolist() == pytest.approx([0.0, 0.09, 0.23])
    assert served["ttft_s"].tolist() == pytest.approx([0.05, 0.03, 0.04])
    assert result.summary["duration"] == 9.0  # as the file says, not as was approximated
    assert any("as soon as one of 1 slots was free" in n for n in notes_of(result))


def test_older_results_with_a_rate_are_drawn_and_say_so(tmp_path: Path) -> None:
    count = 400
    lists = {
        **{"input_lens": [100] * count, "output_lens": [2] * count, "ttfts": [0.04] * count},
        **{"itls": [[0.01]] * count, "errors": [""] * count, "start_times": "absent"},
    }
    path = bench(tmp_path, **lists, request_rate=8, max_concurrency=None, burstiness=1.0)
    times = []
    for seed in (0, 0, 5):
        target = tmp_path / f"run{len(times)}"
        result, made = bring_in(
            "vllm-bench", path, target, gpu="h100-sxm", choice=RecordingChoice(seed=seed)
        )
        times.append(pd.read_parquet(made / "requests.parquet")["arrival_s"].to_numpy())
    assert times[0].tolist() == times[1].tolist() != times[2].tolist()
    assert times[0][-1] == pytest.approx(count / 8, rel=0.01)
    assert np.std(np.diff(times[0])) * 8 == pytest.approx(1.0, abs=0.15)  # Poisson
    (told,) = [note for note in notes_of(result) if "start_times" in note]
    assert "drawn as a Poisson process at 8 requests/s, with seed 5" in told
    assert "TTFT and E2EL of single requests cannot be compared" in told


def notes_of(result: Any) -> list[str]:
    return list(result.summary["infersim"]["notes"])


def test_of_appended_results_the_last_is_taken_or_the_one_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    lines = [json.dumps(BENCH), json.dumps(BENCH | {"date": "20270102-030405"}, indent=1)]
    path.write_text("\n".join(lines) + "\n" + " " * 2_000_000)  # longer than a line of a trace
    result, made = bring_in("vllm-bench", path, tmp_path / "last", gpu="h100-sxm")
    assert read_observed(made).date == "2027-01-02"
    assert any("2 results; this is number 2 (--entry N" in note for note in notes_of(result))
    command(path, "--from", "vllm-bench", "--gpu", "h100-sxm", "--entry", 1, "-o", tmp_path / "a")
    assert read_observed(tmp_path / "a").date == "2026-01-02"
    with pytest.raises(UsageError, match=r"--entry 3: .*many.json has 2 results; allowed: 1 to 2"):
        bring_in(
            "vllm-bench", path, tmp_path / "b", gpu="h100-sxm", choice=RecordingChoice(entry=3)
        )
    with pytest.raises(UsageError, match="holds one run"):
        bring_in("log", log(tmp_path), tmp_path / "b", choice=RecordingChoice(entry=1))


SUMMARY: dict[str, Any] = {
    **{"date": "20260102-030405", "backend": "vllm", "label": None, "num_prompts": 201},
    **{"model_id": "meta-llama/Llama-3.1-8B-Instruct", "request_rate": 5.0, "burstiness": 4.0},
    **{"max_concurrency": None, "duration": 42.0, "completed": 200, "failed": 1},
    **{"total_input_tokens": 60_000, "total_output_tokens": 10_000},
    **{"request_throughput": 4.76, "output_throughput": 238.1, "total_token_throughput": 1666.7},
    **{"mean_ttft_ms": 60.0, "median_ttft_ms": 50.0, "std_ttft_ms": 9.0, "p99_ttft_ms": 190.0},
    **{"mean_tpot_ms": 12.0, "median_tpot_ms": 11.5, "p99_tpot_ms": 20.0, "p99.9_tpot_ms": 31.0},
}


def test_a_summary_alone_has_its_metrics_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY))
    result, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    summary = json.loads((made / "summary.json").read_text())
    for key in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "duration", "output_throughput"):
        assert summary[key] == SUMMARY[key]
    assert summary["p50_ttft_ms"] == 50.0
    assert summary["mean_itl_ms"] is summary["p90_ttft_ms"] is summary["request_goodput"] is None
    assert (summary["completed"], summary["failed"]) == (200, 1)
    assert summary["infersim"]["verdict"]["text"] == "Observed: 200 of 201 requests were completed."
    assert not len(pd.read_parquet(made / "requests.parquet"))
    assert not (made / "trace.csv").exists()
    scenario = sim.load_scenario(made / "scenario.yaml")
    assert scenario.workload.arrivals.kind == "gamma"
    assert (scenario.workload.arrivals.rate, scenario.workload.arrivals.cv) == (5.0, 0.5)
    assert scenario.workload.prompt_tokens.value == 300
    assert scenario.workload.output_tokens.value == 50
    assert scenario.run.requests == 200
    assert any("Assumed: every request has the mean length" in n for n in notes_of(result))


def test_a_summary_is_validated_by_its_metrics(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY))
    changes = "workload.prompt_tokens={kind: uniform, low: 200, high: 400}"
    done = command(path, "--from", "vllm-bench", "--gpu", "h100-sxm", "-o", tmp_path / "run",
                   "--set", changes)  # fmt: skip
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(app, ["validate-run", str(tmp_path / "run"), "--json", "-o",
                                     str(tmp_path / "page.html")])  # fmt: skip
    assert again.exit_code == 0, again.output
    found = json.loads(again.output)
    assert {row["figure"] for row in found["figures"]} == {
        *("mean_ttft_ms", "p50_ttft_ms", "p99_ttft_ms"),
        *("mean_tpot_ms", "p50_tpot_ms", "p99_tpot_ms"),
        *("request_throughput", "output_throughput", "total_token_throughput", "duration"),
    }
    assert found["observed"]["requests"] == 200
    assert any("drawn from the laws of its scenario" in note for note in found["notes"])
    assert {change["confidence"] for change in found["advice"]["changes"]} == {"low"}
    check = shlex.split(found["correction"]["commands"][0])[1:]
    better = json.loads(CliRunner().invoke(app, [*check, "--json", "--no-page"]).output)
    errors = [{r["figure"]: abs(r["error"]) for r in x["figures"]} for x in (found, better)]
    for key in ("p50_ttft_ms", "p50_tpot_ms"):
        assert errors[1][key] < 0.02 < errors[0][key]


def test_a_summary_that_does_not_say_how_requests_came_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY | {"request_rate": None}))
    with pytest.raises(UsageError, match=r"give --set workload.arrivals.kind=poisson --set"):
        bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    _, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm",
                       overrides=["workload.arrivals.kind=closed",
                                  "workload.arrivals.concurrency=4"])  # fmt: skip
    assert sim.load_scenario(made / "scenario.yaml").workload.arrivals.concurrency == 4


# -- logs of a server ------------------------------------------------------------------------------


def test_a_log_is_read_by_its_monotonic_clock(tmp_path: Path) -> None:
    result, made = bring_in("log", log(tmp_path), tmp_path / "run")
    rows = pd.read_parquet(made / "requests.parquet")
    assert rows["arrival_s"].tolist() == pytest.approx([0.0, 0.31, 0.38])
    assert rows["prompt_tokens"].tolist() == [300, 80, 90]  # by when they were queued
    assert rows["ttft_s"].tolist() == pytest.approx([0.19, 0.18, 0.11])
    assert rows["queue_s"].tolist() == pytest.approx([0.0, 0.08, 0.01])
    assert rows["e2el_s"].tolist() == pytest.approx([0.59, 2.18, 0.11])
    summary = result.summary
    assert summary["mean_tpot_ms"] == pytest.approx(100.0)
    assert {summary[f"{rank}_itl_ms"] for rank in ("mean", "p50", "p99", "std")} == {None}
    notes = summary["infersim"]["notes"]
    assert any("by 30 ms on average" in note for note in notes)  # 0, 80 and 10 ms
    assert any("core accepted a request" in note for note in notes)
    assert any("prefix cache was on" in note for note in notes)


def test_a_log_states_its_conditions(tmp_path: Path) -> None:
    place = log(tmp_path)
    _, made = bring_in("log", place, tmp_path / "run")
    scenario = sim.load_scenario(made / "scenario.yaml")
    assert (scenario.model.path, scenario.fleet[0].gpu) == ("llama-3.1-8b", "h100-sxm")
    assert scenario.fleet[0].tensor_parallel == 2
    assert scenario.scheduler.max_num_seqs == 12
    assert scenario.scheduler.max_num_batched_tokens == 1024
    assert (scenario.kv_cache.num_gpu_blocks, scenario.kv_cache.block_size) == (500, 32)
    assert scenario.precision.kv_cache == "fp8"
    assert scenario.max_model_len == 4096
    manifest = json.loads((made / "manifest.json").read_text())
    assert (manifest["kind"], manifest["status"]) == ("observed", "complete")
    assert manifest["front_end"] == "none"  # its times begin at the engine's queue
    named = {"name": "vllm", "version": "0.19.0", "preset": "vllm@0.19.0", "assumed": False}
    assert manifest["engine"] == named
    assert scenario.engine == "vllm@0.19.0"
    assert manifest["hardware"]["device_count"] == 2
    digest = sha256((place / "requests.jsonl").read_bytes()).hexdigest()
    assert manifest["source"]["sha256"] == digest
    assert set(manifest["source"]["beside"]) == {"meta.json", "timeseries.csv"}


def test_ticks_become_rows_that_count_every_token(tmp_path: Path) -> None:
    result, made = bring_in("log", log(tmp_path), tmp_path / "run")
    ticks = pd.read_parquet(made / "timeseries.parquet")
    assert ticks["start_s"].tolist() == [0.0, 1.0]
    assert ticks["end_s"].tolist() == [1.0, 3.0]
    assert ticks["prefill_tokens"].tolist() == [470, 0]
    assert ticks["decode_seqs"].tolist() == [12 - 3, 16]  # beside three first tokens
    assert ticks["kv_reserved_tokens"].tolist() == [6400, 3200]
    own = result.summary["infersim"]
    assert own["batch"]["mean_running"] == pytest.approx((2 + 2 * 1) / 3)
    assert own["batch"]["peak_running"] == 2
    assert own["kv_cache"]["mean_reserved"] == pytest.approx((0.4 + 2 * 0.2) / 3)
    assert own["kv_cache"]["mean_used"] is None


def test_a_file_alone_needs_a_model_and_a_gpu(tmp_path: Path) -> None:
    path = log(tmp_path, meta=None, series="") / "requests.jsonl"
    with pytest.raises(UsageError, match="does not say: the model must be given; add --model"):
        bring_in("log", path, tmp_path / "run")
    result, made = bring_in("log", path, tmp_path / "run", model="qwen3-8b", gpu="l40s")
    assert len(pd.read_parquet(made / "timeseries.parquet")) == 0
    assert result.summary["infersim"]["batch"]["mean_running"] is None
    assert result.summary["infersim"]["batch"]["peak_waiting"] == 2


def test_a_log_without_hardware_and_blocks_is_taken_with_what_is_given(tmp_path: Path) -> None:
    meta = {key: value for key, value in META.items() if key not in ("hardware", "kv_cache")}
    place = log(tmp_path, meta=meta)
    asked = (place, "--from", "log", "-o", tmp_path / "run", "--no-report")
    done = command(*asked)
    assert done.exit_code == 2
    assert "the GPU must be given; add --gpu NAME" in " ".join(done.output.split())
    done = command(*asked, "--gpu", "l40s", "--num-gpu-blocks", 700)
    assert done.exit_code == 0, done.output
    scenario = sim.load_scenario(tmp_path / "run" / "scenario.yaml")
    assert (scenario.fleet[0].gpu, scenario.kv_cache.num_gpu_blocks) == ("l40s", 700)
    done = command("chat.yaml", "--device", "cpu", "--num-gpu-blocks", 700)
    assert "--num-gpu-blocks requires --from" in " ".join(done.output.split())


# -- simulated again -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vllm-bench", "log"])
def test_the_same_requests_come_at_the_same_times(tmp_path: Path, kind: str) -> None:
    source = bench(tmp_path) if kind == "vllm-bench" else log(tmp_path)
    _, made = bring_in(kind, source, tmp_path / "run", gpu="h100-sxm")
    moved = tmp_path / "elsewhere"
    made.rename(moved)
    again = sim.simulate(sim.load_scenario(moved / "scenario.yaml")).requests
    rows = pd.read_parquet(moved / "requests.parquet")
    rows = rows[rows["status"] == "completed"]
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert again[column].tolist() == rows[column].tolist()
    assert (again["status"] == "completed").all()


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured runs of others are not here")
def test_a_measured_run_is_taken_in_and_simulated(tmp_path: Path) -> None:
    result, made = bring_in("log", MEASURED, tmp_path / "run")
    summary = result.summary
    assert (summary["completed"], summary["total_output_tokens"]) == (300, 195_753)
    assert summary["mean_ttft_ms"] == pytest.approx(65_456.6, rel=1e-5)
    assert summary["infersim"]["kv_cache"]["tokens"] == 41_408
    scenario = sim.load_scenario(made / "scenario.yaml")
    assert (scenario.fleet[0].gpu, scenario.kv_cache.num_gpu_blocks) == ("rtx-4090", 2588)
    again = sim.simulate(scenario)
    rows = pd.read_parquet(made / "requests.parquet")
    assert again.requests["arrival_s"].tolist() == rows["arrival_s"].tolist()
    assert again.requests["output_tokens"].tolist() == rows["output_tokens"].tolist()
    assert again.summary["completed"] == 300


def test_overrides_end_up_in_the_scenario_that_is_written(tmp_path: Path) -> None:
    overrides = ["scheduler.max_num_seqs=7", "fleet.tensor_parallel=4", "slo.ttft=45ms"]
    result, made = bring_in(
        "vllm-bench", bench(tmp_path), tmp_path / "run", gpu="h100-sxm", overrides=overrides
    )
    written = yaml.safe_load((made / "scenario.yaml").read_text())
    assert written["scheduler"] == {"max_num_seqs": 7}
    assert written["fleet"][0]["tensor_parallel"] == 4
    assert result.summary["infersim"]["verdict"]["limits"]["ttft"]["attainment"] == 0.5
    assert result.summary["infersim"]["gpus"] == 4


# -- the command and its page ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vllm-bench", "log"])
def test_the_command_prints_and_draws_what_was_observed(tmp_path: Path, kind: str) -> None:
    source = bench(tmp_path) if kind == "vllm-bench" else log(tmp_path)
    done = command(source, "--from", kind, "--gpu", "h100-sxm", "-o", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "observed time" in done.output
    assert "simulated" not in done.output
    tables = done.output.split("Run: ")[0]
    assert max(map(len, tables.splitlines())) <= 88
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Observed" in page
    assert "Simulated seconds" not in page


def panels(page: str) -> list[str]:
    """The titles of the timeline's panels, top to bottom."""
    (spec,) = re.findall(r'id="spec-timeline">(.*?)</script>', page, re.DOTALL)
    layout = json.loads(spec)["layout"]
    axes = sorted((name for name in layout if name.startswith("yaxis")), key=lambda n: n[5:] or "1")
    return [layout[name]["title"]["text"] for name in axes]


def test_ticks_are_not_drawn_as_iterations(tmp_path: Path) -> None:
    command(log(tmp_path), "--from", "log", "-o", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert panels(page) == ["requests/s", "requests", "KV cache", "tokens/s"]
    assert "KV blocks in use" in page  # how full they are is not in the record
    assert "KV used" not in re.findall(r'id="spec-timeline">(.*?)</script>', page, re.DOTALL)[0]
    assert "Not in this record" in page


def test_memory_that_was_not_recorded_is_not_zero(tmp_path: Path) -> None:
    empty = SERIES.replace(",40.0", ",0.0").replace(",20.0", ",0.0")
    command(log(tmp_path, series=empty), "--from", "log", "-o", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    cache = summary["infersim"]["kv_cache"]
    assert cache["mean_reserved"] is cache["peak_reserved"] is None
    assert panels((tmp_path / "run" / "report.html").read_text()) == [
        *("requests/s", "requests", "tokens/s"),
    ]
    (tmp_path / "other").mkdir()
    command(log(tmp_path / "other"), "--from", "log", "-o", tmp_path / "recorded")
    observed, drawn = {}, {}
    for name in ("run", "recorded"):
        page = tmp_path / f"{name}.html"
        words = ["validate-run", str(tmp_path / name), "--json", "-o", str(page)]
        found = json.loads(CliRunner().invoke(app, words).output)["composition"]["levels"]
        observed[name] = {row["name"]: row["observed"] for row in found}["KV reserved, peak"]
        drawn[name] = '"KV cache"' in page.read_text()
    assert observed["run"] is None
    assert drawn == {"run": False, "recorded": True}


def test_the_page_has_the_day_of_the_record(tmp_path: Path) -> None:
    command(bench(tmp_path), "--from", "vllm-bench", "--gpu", "h100-sxm", "-o", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<dt>Observed</dt><dd>2026-01-02</dd>" in page
    assert "<dt>Seed</dt>" not in page


def test_the_command_prints_one_object(tmp_path: Path) -> None:
    arguments = ("--from", "log", "-o", tmp_path / "run", "--json", "--no-report")
    done = command(log(tmp_path), *arguments)
    summary = json.loads(done.stdout)
    assert summary["infersim"]["run_directory"] == str(tmp_path / "run")
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "vllm-bnech"], "no such format (did you mean 'vllm-bench'?)"),
        (["--from", "vllm-bench"], "the GPU must be given; add --gpu NAME"),
        (["--from", "vllm-bench", "--gpu", "h100"], "'h100'"),
        (["--from", "vllm-bench", "--gpu", "h100-sxm", "--device", "cpu"], "--device is for a run"),
        (["--from", "vllm-bench", "--gpu", "h100-sxm", "--threads", "1"], "--threads is for a run"),
        (
            ["--from", "vllm-bench", "--gpu", "h100-sxm", "--set", "workload.trace.limit=1"],
            "traffic of a recorded run cannot be changed",
        ),
        (["--from", "vllm-bench", "--gpu", "l4", "--set", "model=llama-3.1-70b"], "It did run"),
        (["--gpu", "h100-sxm", "--device", "cpu"], "--gpu requires --from"),
        ([], "--device is required"),
    ],
)
def test_wrong_options_are_refused_and_leave_nothing(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = command(bench(tmp_path), *arguments, "-o", tmp_path / "run")
    assert done.exit_code in (2, 3)
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


# -- files that break their format -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_lens": "absent"}, "total_input_tokens is None; allowed: a whole number from 1"),
        ({"itls": "absent"}, "no 'itls' in this document"),
        ({"ttfts": [0.05, 0.0, 0.03]}, "ttfts has 3 entries, but input_lens has 4"),
        ({"ttfts": [-0.05, 0.0, 0.03, 0.04]}, "ttfts[0] is -0.05"),
        ({"ttfts": [float("nan"), 0.0, 0.03, 0.04]}, "ttfts[0] is nan"),
        ({"ttfts": [0.05, 0.0, 0.0, 0.04]}, "ttfts[2] is 0.0; allowed: more than 0"),
        ({"ttfts": 3}, "ttfts is 3; allowed: a list"),
        ({"ttfts": [50.0, 0.0, 30.0, 40.0]}, "is not the mean_ttft_ms of 40"),
        ({"itls": [[0.01], [], 0.02, []]}, "itls[2] is 0.02"),
        ({"itls": [[0.01, -1], [], [], []]}, "itls[0] is [0.01, -1]"),
        ({"itls": [[0.01, float("nan")], [], [], []]}, "itls[0] is [0.01, nan]"),
        ({"itls": [["0.01"], [], [], []]}, "itls[0] is ['0.01']"),
        ({"input_lens": [128, 256, 0, 99]}, "input_lens[2] is 0"),
        ({"output_lens": [3, 0, 4.5, 1]}, "output_lens[2] is 4.5"),
        ({"output_lens": [0, 0, 0, 0]}, "none of the 4 requests was served"),
        ({"start_times": [1, 2, 3, None]}, "start_times[3] is None"),
        (
            {"start_times": "absent", "request_rate": "fast"},
            "no 'start_times', and request_rate 'fast' with burstiness 1.0 does not say when",
        ),
        ({"start_times": "absent", "burstiness": -1}, "burstiness is -1; allowed: more than 0"),
        ({"errors": ["", ""]}, "errors has 2 entries"),
        (
            {name: [] for name in BENCH if isinstance(BENCH[name], list)},
            "input_lens is an empty list",
        ),
        ({"model_id": "someone/unheard-of-7b"}, "says 'someone/unheard-of-7b'"),
        (
            {"model_id": "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8"},
            "Instruct-FP8, which does not determine precision.weights; give --set "
            "precision.weights",
        ),
        ({"model_id": 7}, "the record does not say: the model must be given"),
    ],
)
def test_a_broken_benchmark_is_one_clear_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InfersimError, match=re.escape(message)) as error:
        bring_in("vllm-bench", bench(tmp_path, **changes), tmp_path / "run", gpu="h100-sxm")
    assert "result.json" in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ('{"input_lens": [1, 2', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("{}\n{}", "this is not a result of `vllm bench serve --save-result`; it has nothing"),
        ('{"duration": 1}', "neither 'input_lens' nor 'mean_ttft_ms': this is not a result"),
        ('{"mean_ttft_ms": 1}{"x"', "result.json:1: not JSON"),
        ("\x00\x01", "not JSON|binary"),
    ],
)
def test_what_is_no_benchmark_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InfersimError, match=message):
        bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    with pytest.raises(InfersimError, match="no such file"):
        bring_in("vllm-bench", tmp_path / "other.json", tmp_path / "run", gpu="h100-sxm")


def row(**changes: Any) -> str:
    good: dict[str, Any] = {"input_toks": 5, "output_toks": 3, "queued_ts": 10.0}
    good |= {"scheduled_ts": 10.5, "first_token_ts": 11.0, "last_token_ts": 12.0}
    return json.dumps({k: v for k, v in (good | changes).items() if v != "absent"}) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "requests.jsonl: the file is empty"),
        ("\n\n", "requests.jsonl: the file is empty"),
        (row() + '{"input_toks": 5', "requests.jsonl:2: not JSON"),
        (row() + row(queued_ts="absent"), "requests.jsonl:2: no 'queued_ts'"),
        (row() + row(first_token_ts=9.0), "requests.jsonl:2: first_token_ts is 9.0; allowed: sch"),
        (row(scheduled_ts=9.0), "scheduled_ts is 9.0; allowed: queued_ts of the same row"),
        (row(last_token_ts=10.9), "last_token_ts is 10.9; allowed: first_token_ts"),
        (row(queued_ts=-1), "requests.jsonl:1: queued_ts is -1"),
        (row(first_token_ts=float("nan")), "first_token_ts is nan"),
        (row() + row(scheduled_ts="absent"), "requests.jsonl:2: scheduled_ts is None"),
        (row(input_toks=0), "input_toks is 0"),
        (row(output_toks="many"), "output_toks is 'many'"),
        (row(output_toks=0), "none of the 1 requests was served"),
    ],
)
def test_a_broken_log_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    place = log(tmp_path)
    (place / "requests.jsonl").write_text(text)
    with pytest.raises(InfersimError, match=re.escape(message)):
        bring_in("log", place, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("meta.json", "{", "not JSON"),
        ("meta.json", '{"kv_cache": 5}', "kv_cache is 5; allowed: a mapping"),
        ("meta.json", '{"model": 5}', "model is 5; allowed: a text"),
        ("meta.json", '{"engine_kwargs": {"dtype": "int3"}}', "dtype is 'int3'; known: bfloat16"),
        (
            "meta.json",
            '{"model": "meta-llama/Llama-3.1-8B", "engine_kwargs": {"quantization": "awq"}}',
            "quantization is 'awq', which does not determine precision.weights",
        ),
        (
            "meta.json",
            '{"model": "meta-llama/Llama-3.1-8B", "kv_cache": {"block_size": 0}}',
            "block_size",
        ),
        ("timeseries.csv", "t,running\n1,2\n", "no column 'prompt_throughput'"),
        ("timeseries.csv", SERIES.replace("3.0,", "1.0,"), "t of row 2 is 1; allowed: ascending"),
        ("timeseries.csv", SERIES.replace(",40.0", ",nan"), "kv_cache_pct is 'nan'"),
        ("timeseries.csv", SERIES.replace(",40.0", ",140"), "kv_cache_pct of row 1 is 140"),
        ("workload_hash16.jsonl", '{"hash_ids": 3}\n', "hash_ids is not a list"),
    ],
)
def test_a_broken_file_beside_a_log_is_one_clear_error(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    place = log(tmp_path)
    (place / name).write_text(text)
    with pytest.raises(InfersimError, match=re.escape(message)):
        bring_in("log", place, tmp_path / "run", gpu="h100-sxm")
    assert not (tmp_path / "run").exists()


def test_a_failed_request_of_a_log_is_counted_and_not_replayed(tmp_path: Path) -> None:
    place = log(tmp_path)
    with (place / "requests.jsonl").open("a") as file:
        file.write(row(output_toks=0, queued_ts=1.0, first_token_ts=None, last_token_ts=None))
    result, made = bring_in("log", place, tmp_path / "run")
    assert (result.summary["completed"], result.summary["failed"]) == (3, 1)
    assert len((made / "trace.csv").read_text().splitlines()) == 1 + 3


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "known"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b"),
        ("Qwen/Qwen3-80B", None),
        ("", None),
    ],
)
def test_published_names_of_models(named: str, known: str | None) -> None:
    assert known_model(named) == known


def test_drivers_names_of_gpus_are_known_as_to_calibration() -> None:
    known = gpu_names.names("driver")
    assert {named: known_gpu(named) for named in known} == known
    assert sorted(known.values()) == sorted(catalog.names("gpus"))
    assert known_gpu("Voodoo 2") is None


def test_every_format_says_what_it_is() -> None:
    for name, known in FORMATS.items():
        assert find_format(name) is known
        assert known.name == name
        assert known.layout


def test_whole_prompts_of_v1_are_logged_as_the_rule_of_v1(tmp_path: Path) -> None:
    own = META["resolved_config"]
    stated = own["scheduler_config"] | {
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": 4096,
    }
    meta = META | {"resolved_config": own | {"scheduler_config": stated}}
    place = log(tmp_path, meta=meta)
    _, made = bring_in("log", place, tmp_path / "run", gpu="h100-sxm")
    scheduler = sim.load_scenario(made / "scenario.yaml").scheduler
    assert not scheduler.chunked_prefill
    assert scheduler.policy_class() is AsyncChunkedPrefill
