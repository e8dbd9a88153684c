"""The run directory: which files, with which keys, columns and types; written once, repeatable."""

import hashlib
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import sim
from sim.errors import UsageError
from sim.metrics.engine.token_accounts import token_accounts
from sim.metrics.latency.latency_parts import PARTS
from sim.result import Result
from sim.results.run_directory import new_run_directory
from sim.results.tables import timeseries_columns, timeseries_groups
from tests.places import ROOT, RUN_FILES, VLLM

SCENARIO = {
    "name": "layout",
    "description": "Is everything there?",
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "engine": VLLM,
    "max_model_len": 512,
    "kv_cache": {"num_gpu_blocks": 80},
    "workload": {
        "arrivals": {"kind": "gamma", "rate": 200, "cv": 2},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 480},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
        "classes": [{"name": "chat", "share": 0.5}, {"name": "batch", "share": 0.5}],
    },
    "slo": {"ttft": "100ms", "tpot": "20ms"},
    "run": {"requests": 200, "warmup": 30},
}

REQUEST_COLUMNS = {
    "request_id": "int64",
    "arrival_s": "double",
    "prompt_tokens": "int32",
    "output_tokens": "int32",
    "generated_tokens": "int32",
    "status": "string",
    "reason": "string",
    "replica": "int32",
    "scheduled_s": "double",
    "first_token_s": "double",
    "finish_s": "double",
    "queue_s": "double",
    "ttft_s": "double",
    "tpot_s": "double",
    "e2el_s": "double",
    "preemptions": "int32",
    "warmup": "bool",
    "slo_met": "bool",
    "class": "string",
    **{f"{part}_s": "double" for part in PARTS if part != "queue"},
}
TIMESERIES_COLUMNS = {
    "replica": "int32",
    "start_s": "double",
    "end_s": "double",
    "iterations": "int32",
    "iteration_growth_s": "double",
    "decode_seqs": "int32",
    "decode_context": "int64",
    "prefill_seqs": "int32",
    "prefill_tokens": "int32",
    "running": "int32",
    "waiting": "int32",
    "kv_used_tokens": "int64",
    "kv_reserved_tokens": "int64",
    "kv_reserved_end_tokens": "int64",
    "preemptions": "int32",
}
TOTALS = {
    *("duration", "completed", "failed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "output_throughput", "total_token_throughput"),
}
RANKS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
LATENCIES = {f"{rank}_{name}_ms" for rank in RANKS for name in ("ttft", "tpot", "itl", "e2el")}
OWN = {
    *("version", "scenario", "description", "seed", "model", "gpu", "gpus", "engine", "batching"),
    *("verdict", "requests", "queue_ms", "kv_cache", "batch", "preemptions", "utilisation"),
    *("bound_by", "time_by_operator", "cost", "energy", "error_band", "provenance", "notes"),
    *("interrupted", "precision", "repetitions", "operators", "memory"),
}
NESTED = {
    "verdict": "state text slo_met attainment target first_limit limits",
    "requests": "submitted completed rejected unfinished one_token warmup rejected_reasons",
    "queue_ms": "mean p50 p90 p95 p99",
    "kv_cache": "allocator num_gpu_blocks block_size tokens max_model_len max_concurrency "
    "mean_used peak_used mean_reserved fragmentation",
    "batch": "iterations mean_iteration_ms mean_running peak_running mean_decode_batch "
    "peak_decode_batch mean_waiting peak_waiting",
    "utilisation": "busy mfu mbu",
    "bound_by": "compute memory latency communication host",
    "cost": "usd_per_gpu_hour usd usd_per_million_output_tokens usd_per_million_tokens",
    "energy": "joules_per_output_token note",
    "error_band": "throughput ttft tpot text",
}
STATES = {
    *("stable", "near saturation", "overloaded", "offline", "closed loop", "no traffic served"),
    "too short to tell",
}


@pytest.fixture(scope="module")
def result() -> Result:
    return sim.simulate(sim.load_scenario(SCENARIO))


@pytest.fixture(scope="module")
def directory(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result.save(tmp_path_factory.mktemp("runs") / "run")


def read_json(path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert isinstance(document, dict)
    return document


def schema(path: Path) -> dict[str, str]:
    return {field.name: str(field.type) for field in pq.read_schema(path)}


# -- layout --------------------------------------------------------------------------------------


def test_files(directory: Path) -> None:
    assert {path.name for path in directory.iterdir()} == RUN_FILES


def test_tables_have_the_agreed_columns_in_order(directory: Path) -> None:
    for name, columns in (("requests", REQUEST_COLUMNS), ("timeseries", TIMESERIES_COLUMNS)):
        assert list(schema(directory / f"{name}.parquet").items()) == list(columns.items())


def test_tables_on_disk_are_those_in_memory(directory: Path, result: Result) -> None:
    for name, frame in (("requests", result.requests), ("timeseries", result.timeseries)):
        pd.testing.assert_frame_equal(pd.read_parquet(directory / f"{name}.parquet"), frame)


def test_requests_table_in_order_of_arrival(result: Result) -> None:
    rows = result.requests
    assert rows["request_id"].tolist() == list(range(200))
    assert rows["arrival_s"].is_monotonic_increasing
    assert set(rows["status"]) == {"completed", "rejected"}
    assert set(rows["reason"].dropna()) == {"longer than max_model_len"}
    done = rows[rows["status"] == "completed"]
    assert set(done["replica"]) == {0, 1}
    assert (done["ttft_s"] == done["first_token_s"] - done["arrival_s"]).all()
    assert (done["e2el_s"] == done["finish_s"] - done["arrival_s"]).all()
    several = done[done["output_tokens"] > 1]
    tpot = (several["finish_s"] - several["first_token_s"]) / (several["output_tokens"] - 1)
    np.testing.assert_allclose(several["tpot_s"], tpot, rtol=1e-12)
    tpot = rows["tpot_s"].fillna(0.0)
    held = (rows["status"] == "completed") & (rows["ttft_s"] <= 0.1) & (tpot <= 0.02)
    assert (rows["slo_met"] == held).all()


def test_summary_has_the_agreed_keys(directory: Path, result: Result) -> None:
    summary = read_json(directory / "summary.json")
    assert summary == result.summary
    assert set(summary) == TOTALS | LATENCIES | {"infersim"}
    own = summary["infersim"]
    assert set(own) >= OWN
    for section, keys in NESTED.items():
        assert set(keys.split()) <= set(own[section]), section
    assert own["verdict"]["state"] in STATES
    assert set(own["verdict"]["limits"]) == {"ttft", "tpot"}
    for limit in own["verdict"]["limits"].values():
        judged = {"attainment", "low", "high", "target", "percentile", "value_ms"}
        assert set(limit) == {"limit_ms", *judged}
        assert 0 <= limit["low"] <= limit["attainment"] <= limit["high"] <= 1
    assert (own["scenario"], own["description"]) == ("layout", "Is everything there?")
    assert (own["model"], own["gpu"], own["gpus"]) == ("llama-3.1-8b", "h100-sxm", 2)
    assert (own["engine"], own["batching"], own["seed"]) == ("vllm", "continuous", 42)
    assert (own["version"], own["interrupted"]) == (version("infersim"), False)


def test_summary_agrees_with_the_tables(result: Result) -> None:
    summary, rows, plans = result.summary, result.requests, result.timeseries
    own = summary["infersim"]
    done = rows[rows["status"] == "completed"]
    counted = done[~done["warmup"]]
    assert summary["completed"] == len(done)
    assert summary["failed"] == len(rows) - len(done)
    assert summary["duration"] == done["finish_s"].max() - rows["arrival_s"].min()
    assert summary["request_throughput"] == len(done) / summary["duration"]
    assert summary["request_goodput"] == rows["slo_met"].sum() / summary["duration"]
    for name in ("ttft", "tpot", "e2el"):
        values = counted[f"{name}_s"].dropna() * 1e3
        assert summary[f"mean_{name}_ms"] == pytest.approx(values.mean())
        assert summary[f"std_{name}_ms"] == pytest.approx(values.std(ddof=0))
        assert summary[f"median_{name}_ms"] == summary[f"p50_{name}_ms"]
        for rank in (50, 90, 95, 99):
            expected = np.percentile(values, rank)
            assert summary[f"p{rank}_{name}_ms"] == pytest.approx(expected)
    assert own["queue_ms"]["p90"] == pytest.approx(np.percentile(counted["queue_s"] * 1e3, 90))
    assert own["requests"]["one_token"] == (done["output_tokens"] == 1).sum()
    assert own["requests"]["warmup"] == done["warmup"].sum() == len(done) - len(counted) > 0
    assert own["batch"]["iterations"] == plans["iterations"].sum()
    assert own["preemptions"] == plans["preemptions"].sum() == rows["preemptions"].sum() > 0
    dollars = own["cost"]["usd_per_gpu_hour"] * 2 * summary["duration"] / 3600
    assert own["cost"]["usd"] == pytest.approx(dollars)


def test_what_is_undefined_is_null_and_never_nan(tmp_path: Path) -> None:
    nothing = sim.load_scenario(SCENARIO).override({"max_model_len": 2})
    one_token = sim.load_scenario(SCENARIO).override(
        {"workload.output_tokens": {"kind": "fixed", "value": 1}}
    )
    summary = read_json(sim.simulate(nothing).save(tmp_path / "nothing") / "summary.json")
    assert {summary[key] for key in LATENCIES} == {None}
    assert summary["request_throughput"] is None
    assert summary["infersim"]["verdict"]["state"] == "no traffic served"
    assert set(summary["infersim"]["queue_ms"].values()) == {None}
    assert schema(tmp_path / "nothing" / "requests.parquet") == REQUEST_COLUMNS
    assert schema(tmp_path / "nothing" / "timeseries.parquet") == TIMESERIES_COLUMNS
    assert len(pd.read_parquet(tmp_path / "nothing" / "timeseries.parquet")) == 0
    summary = read_json(sim.simulate(one_token).save(tmp_path / "one") / "summary.json")
    for name in ("tpot", "itl"):
        assert {summary[f"{rank}_{name}_ms"] for rank in RANKS} == {None}
    assert summary["mean_ttft_ms"] == summary["mean_e2el_ms"] > 0


def test_manifest(directory: Path) -> None:
    manifest = read_json(directory / "manifest.json")
    assert manifest["infersim"] == version("infersim")
    assert manifest["seed"] == 42
    assert manifest["status"] == "complete"
    assert manifest["python_packages"]["numpy"] == np.__version__
    assert manifest["python_packages"]["simpy"] == version("simpy")
    resolved = (directory / "resolved.yaml").read_bytes()
    assert manifest["scenario_sha256"] == hashlib.sha256(resolved).hexdigest()
    assert "NVIDIA H100" in manifest["profile"]
    assert pd.Timestamp(manifest["created"]).tzinfo is not None


def test_scenario_is_kept_as_written_and_in_full(tmp_path: Path) -> None:
    text = "# why\n" + yaml.safe_dump(SCENARIO).replace("layout", "gewöhnlich")
    (tmp_path / "given.yaml").write_text(text, encoding="utf-8")
    scenario = sim.load_scenario(tmp_path / "given.yaml", ["run.requests=50", "seed=3"])
    directory = sim.simulate(scenario).save(tmp_path / "run")
    assert (directory / "scenario.yaml").read_text(encoding="utf-8") == text
    resolved = yaml.safe_load((directory / "resolved.yaml").read_text(encoding="utf-8"))
    assert resolved["name"] == "gewöhnlich"
    assert (resolved["run"]["requests"], resolved["seed"]) == (50, 3)
    assert resolved["scheduler"]["max_num_seqs"] == 256
    assert read_json(directory / "summary.json")["infersim"]["scenario"] == "gewöhnlich"


# -- never overwritten ---------------------------------------------------------------------------


def test_a_second_save_leaves_the_first_alone(directory: Path, result: Result) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(UsageError, match="not empty"):
        result.save(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_write_that_was_cut_short_is_not_called_complete(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sim.results.run_result.write_parquet", full)
    with pytest.raises(OSError, match="No space left"):
        result.save(tmp_path)
    assert read_json(tmp_path / "manifest.json")["status"] == "incomplete"
    assert read_json(tmp_path / "summary.json") == result.summary


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "größer, 比較",
        "../../etc/passwd",
        "/absolute",
        "C:\\windows",
        ".hidden",
        "..",
        "...",
        "-rf",
        "a b\tc",
        "$(reboot) `x` ; & | > * ? ' \"",
        "🙂",
        "x" * 500,
        "字" * 500,
        "{brace}",
    ],
)
def test_any_name_gives_a_safe_folder(name: str, tmp_path: Path) -> None:
    directory = new_run_directory(tmp_path, name)
    assert directory.parent == tmp_path
    stem = directory.name
    assert stem[0] not in ".-"
    assert len(os.fsencode(stem)) <= 255
    assert not set(stem) & set("/\\:*?\"'<>|$`;&(){} \t\n")
    directory.mkdir()  # the file system takes it
    assert new_run_directory(tmp_path, name) != directory


# -- the same again ------------------------------------------------------------------------------


def test_resolved_scenario_repeats_the_run(directory: Path, result: Result) -> None:
    again = sim.simulate(sim.load_scenario(directory / "resolved.yaml"))
    assert again.summary == result.summary
    pd.testing.assert_frame_equal(again.requests, result.requests, check_exact=True)
    pd.testing.assert_frame_equal(again.timeseries, result.timeseries, check_exact=True)


def test_same_seed_same_bytes_in_every_process(directory: Path, tmp_path: Path) -> None:
    code = (
        "import sys, json, sim\n"
        "scenario = sim.load_scenario(json.loads(sys.argv[1]))\n"
        "sim.simulate(scenario).save(sys.argv[2])"
    )
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, json.dumps(SCENARIO), str(tmp_path / seed)]
        subprocess.run(command, env=environment, check=True)
        for name in RUN_FILES - {"manifest.json"}:
            assert (tmp_path / seed / name).read_bytes() == (directory / name).read_bytes(), name
        here, there = (read_json(d / "manifest.json") for d in (directory, tmp_path / seed))
        assert here | {"created": None} == there | {"created": None}


def test_another_seed_is_another_draw(result: Result) -> None:
    other = sim.simulate(result.scenario.override({"seed": 43})).requests
    assert (other["arrival_s"] != result.requests["arrival_s"]).all()
    assert (other["prompt_tokens"] != result.requests["prompt_tokens"]).mean() > 0.9
    assert (other["output_tokens"] != result.requests["output_tokens"]).mean() > 0.9


def test_a_timeseries_is_the_same_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [{"name": n, "share": 0.5, "priority": p} for n, p in (("chat", 1), ("batch", 2))]
    ranked = {"engine": "vllm@0.32", "scheduler": {"order": "priority"}}
    workload = {**SCENARIO["workload"], "classes": classes}
    record = sim.simulate({**SCENARIO, **ranked, "workload": workload}).record
    whole, accounts = timeseries_columns(record), token_accounts(record)
    assert accounts is not None
    assert len(accounts.late_plans), "decodes that a group has to count"
    monkeypatch.setattr("sim.results.tables.ROWS", 7)
    groups = list(timeseries_groups(record))
    assert {len(group["end_s"]) for group in groups[:-1]} == {7}
    for name, values in whole.items():
        assert np.array_equal(np.concatenate([group[name] for group in groups]), values), name
