"""Results of guidellm and AIPerf, taken in as run directories and compared with predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import sim
from calibrate.recordings.recording import RecordingChoice
from calibrate.validation.observed import read_observed
from sim.cli import app
from sim.commands.observe_records import bring_in
from sim.errors import InfersimError

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
START = 1_772_470_696.0  # 2026-03-02


def notes_of(result: Any) -> str:
    return " ".join(result.summary["infersim"]["notes"])


# -- guidellm --------------------------------------------------------------------------------------


def answered(at: float, prompt: int = 100, outputs: int = 11, **changes: Any) -> dict[str, Any]:
    """First token after 50 ms, one every 10 ms."""
    return {
        "type_": "generative_request_stats",
        "info": {"status": "completed", "error": None},
        "request_start_time": START + at,
        "request_end_time": START + at + 0.151,
        "prompt_tokens": prompt,
        "output_tokens": outputs,
        "time_to_first_token_ms": 50.0,
        "inter_token_latency_ms": 10.0 if outputs > 1 else None,
    } | changes


def distribution(value: float) -> dict[str, Any]:
    ranks = dict.fromkeys(("p50", "p90", "p95", "p99"), value)
    own = {"mean": value, "median": value, "std_dev": 0.5, "percentiles": ranks}
    return {"successful": own, "errored": {"mean": 0.0}}


def benchmark(served: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "config": {
            "strategy": {"type_": "poisson", "rate": 5.0},
            "backend": {"model": MODEL, "target": "http://localhost:8000"},
        },
        "metrics": {
            "request_totals": {"successful": len(served)},
            "time_to_first_token_ms": distribution(50.0),
            "inter_token_latency_ms": distribution(10.0),
            "request_latency": distribution(0.15),
            "prompt_token_count": distribution(100.0),
            "output_token_count": distribution(11.0),
            "requests_per_second": distribution(4.9),
        },
        "requests": {"successful": served, "errored": [], "incomplete": []},
        "start_time": START,
        "duration": 3.5,
    } | changes


def report(folder: Path, *benchmarks: dict[str, Any]) -> Path:
    path = folder / "benchmarks.json"
    metadata = {"version": 1, "guidellm_version": "0.5.0"}
    path.write_text(json.dumps({"metadata": metadata, "args": {}, "benchmarks": benchmarks}))
    return path


def test_guidellms_requests_have_their_times(tmp_path: Path) -> None:
    failed = {"request_start_time": START + 0.7, "info": {"error": "Traceback\nHTTPError: 500"}}
    late = {"request_start_time": START + 0.9, "info": {"status": "cancelled"}}
    groups = {
        "successful": [answered(1.0, prompt=7, outputs=1), answered(0.5)],
        "errored": [failed],
        "incomplete": [late],
    }
    path = report(tmp_path, benchmark([{}] * 2, requests=groups))
    result, made = bring_in("guidellm", path, tmp_path / "run", gpu="h100-sxm")
    rows = pd.read_parquet(made / "requests.parquet")
    assert rows["arrival_s"].tolist() == pytest.approx([0.0, 0.2, 0.4, 0.5])
    assert rows["status"].tolist() == ["completed", "failed", "failed", "completed"]
    assert rows["reason"].tolist()[1:3] == [
        "failed: HTTPError: 500",
        "failed: cut off when the benchmark ended",
    ]
    assert rows["ttft_s"].tolist()[::3] == pytest.approx([0.05, 0.05])
    assert rows["e2el_s"].tolist()[::3] == pytest.approx([0.15, 0.05])
    assert rows["tpot_s"].tolist()[0] == pytest.approx(0.01)
    assert result.summary["mean_itl_ms"] is None  # single gaps are not in the report
    assert (result.summary["completed"], result.summary["failed"]) == (2, 2)
    assert read_observed(made).date == "2026-03-02"
    assert sim.load_scenario(made / "scenario.yaml").model.path == "llama-3.1-8b"
    assert "does not name the engine: vLLM is assumed" in notes_of(result)


def test_guidellms_older_report_names_things_otherwise(tmp_path: Path) -> None:
    older = answered(0.0)
    older["start_time"] = older.pop("request_start_time")
    found = benchmark([older], args={"strategy": {"type_": "constant", "rate": 5.0}})
    del found["config"]
    found |= {"worker": {"backend_model": MODEL}, "total_count": {"successful": 1}}
    result, made = bring_in("guidellm", report(tmp_path, found), tmp_path / "run", gpu="h100-sxm")
    assert result.summary["mean_ttft_ms"] == pytest.approx(50.0)
    assert sim.load_scenario(made / "scenario.yaml").model.path == "llama-3.1-8b"


def test_guidellms_newer_report_has_its_model_in_the_config(tmp_path: Path) -> None:
    found = benchmark([answered(0.0)])
    found["config"] = {"strategy": {"kind": "concurrent", "streams": 6}}
    found["metrics"]["request_totals"]["successful"] = 300
    path = report(tmp_path, found)
    newer = {"metadata": {"version": 2}, "config": {"spec": {"backend": {"model": MODEL}}}}
    path.write_text(json.dumps({**newer, "benchmarks": [found]}))
    _, made = bring_in("guidellm", path, tmp_path / "run", gpu="h100-sxm")
    scenario = sim.load_scenario(made / "scenario.yaml")
    assert scenario.model.path == "llama-3.1-8b"
    assert scenario.workload.arrivals.concurrency == 6


def test_of_a_sweep_one_benchmark_is_taken(tmp_path: Path) -> None:
    both = [benchmark([answered(0.0)]), benchmark([answered(0.0), answered(1.0)])]
    path = report(tmp_path, *both)
    last, _ = bring_in("guidellm", path, tmp_path / "last", gpu="h100-sxm")
    assert last.summary["completed"] == 2
    assert "2 benchmarks; this is number 2" in notes_of(last)
    first, _ = bring_in(
        "guidellm", path, tmp_path / "a", gpu="h100-sxm", choice=RecordingChoice(entry=1)
    )
    assert first.summary["completed"] == 1


def test_a_sample_of_guidellms_requests_leaves_the_metrics(tmp_path: Path) -> None:
    found = benchmark([answered(0.0)])
    found["metrics"]["request_totals"]["successful"] = 300
    result, made = bring_in("guidellm", report(tmp_path, found), tmp_path / "run", gpu="h100-sxm")
    assert result.summary["mean_ttft_ms"] == 50.0
    assert result.summary["p99_e2el_ms"] == pytest.approx(150.0)
    assert result.summary["completed"] == 300
    assert "has 1 of 300 requests (--sample-requests)" in notes_of(result)
    scenario = sim.load_scenario(made / "scenario.yaml")
    assert (scenario.workload.arrivals.kind, scenario.workload.arrivals.rate) == ("poisson", 5.0)
    assert scenario.workload.prompt_tokens.value == 100


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"benchmarks": 3}, "no list 'benchmarks': this is not a report of guidellm"),
        ({"benchmarks": []}, "benchmarks is an empty list"),
        ({"benchmarks": [benchmark([answered(0.0, prompt_tokens=None)])]}, "prompt_tokens is None"),
        (
            {"benchmarks": [benchmark([answered(0.0, time_to_first_token_ms=None)])]},
            "the answers were not streamed",
        ),
        ({"benchmarks": [benchmark([], requests={"successful": 4})]}, "requests.successful is 4"),
        ({"benchmarks": [benchmark([])]}, "has no requests"),
        ({"benchmarks": [benchmark([answered(float("nan"))])]}, "request_start_time is nan"),
    ],
)
def test_a_broken_report_of_guidellm_is_one_clear_error(
    tmp_path: Path, found: dict[str, Any], message: str
) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InfersimError, match=message):
        bring_in("guidellm", path, tmp_path / "run", gpu="h100-sxm")
    assert not (tmp_path / "run").exists()


# -- AIPerf ----------------------------------------------------------------------------------------


def line(at: float, **changes: Any) -> dict[str, Any]:
    """First token after 50 ms, two more after 10 and 30 ms."""
    metadata = {"request_start_ns": round((START + at) * 1e9), "benchmark_phase": "profiling"}
    metrics = {
        "input_sequence_length": {"value": 100, "unit": "tokens"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
        "time_to_first_token": {"value": 50.0, "unit": "ms"},
        "request_latency": {"value": 90.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [10.0, 30.0], "unit": "ms"},
    }
    return {
        "metadata": metadata | changes.pop("metadata", {}),
        "metrics": {k: v for k, v in (metrics | changes).items() if v is not None},
        "error": None,
    }


AIPERF_SUMMARY: dict[str, Any] = {
    "schema_version": "1.3",
    "aiperf_version": "0.10.0",
    "request_count": {"unit": "requests", "avg": 96.0},
    "request_latency": {"unit": "ms", "avg": 2617.0, "p50": 1560.0, "p99": 10438.0},
    "time_to_first_token": {"unit": "ms", "avg": 154.0, "p50": 136.0, "p99": 292.0},
    "inter_token_latency": {"unit": "ms", "avg": 5.6, "p50": 5.5, "p99": 7.0},
    "inter_chunk_latency": {"unit": "ms", "avg": 5.7, "p50": 5.4, "p99": 6.7},
    "request_throughput": {"unit": "requests/sec", "avg": 0.746},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 324.3},
    "benchmark_duration": {"unit": "sec", "avg": 128.7},
    "input_sequence_length": {"unit": "tokens", "avg": 2854.9},
    "output_sequence_length": {"unit": "tokens", "avg": 434.7},
    "input_config": {
        "models": {"items": [{"name": MODEL}]},
        "phases": [
            {"name": "warmup", "type": "concurrency", "concurrency": 9},
            {"name": "profiling", "type": "concurrency", "concurrency": 2},
        ],
    },
    "start_time": "2026-07-03T05:16:02.949937",
}


def export(folder: Path, *lines: dict[str, Any], summary: Any = AIPERF_SUMMARY) -> Path:
    place = folder / "artifacts"
    place.mkdir()
    if lines:
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (place / "profile_export.jsonl").write_text(text)
    if summary is not None:
        (place / "profile_export_aiperf.json").write_text(json.dumps(summary))
    return place


def test_aiperfs_lines_have_their_times_and_gaps(tmp_path: Path) -> None:
    failed = line(2.0) | {"error": {"code": 499, "type": "Cancelled", "message": "after 1 s"}}
    failed["metrics"] = {"error_isl": {"value": 100, "unit": "tokens"}}
    warm = line(-5.0, metadata={"benchmark_phase": "warmup"})
    turn = line(1.0, metadata={"turn_index": 1})
    place = export(tmp_path, warm, turn, line(0.0), failed)
    result, made = bring_in("aiperf", place, tmp_path / "run", gpu="h100-sxm")
    rows = pd.read_parquet(made / "requests.parquet")
    assert rows["arrival_s"].tolist() == pytest.approx([0.0, 1.0, 2.0], abs=1e-6)
    assert rows["status"].tolist() == ["completed", "completed", "failed"]
    assert rows["reason"].tolist()[2] == "failed: after 1 s"
    assert rows["e2el_s"].tolist()[:2] == pytest.approx([0.09, 0.09], abs=1e-6)
    assert result.summary["mean_itl_ms"] == pytest.approx(20.0)
    assert result.summary["mean_tpot_ms"] == pytest.approx(20.0, abs=1e-3)
    assert sim.load_scenario(made / "scenario.yaml").model.path == "llama-3.1-8b"  # by the summary
    assert "1 requests are later turns of a conversation" in notes_of(result)
    assert read_observed(made).date == "2026-03-02"


def test_without_chunks_aiperfs_gaps_are_unknown(tmp_path: Path) -> None:
    place = export(tmp_path, line(0.0, inter_chunk_latency=None), line(1.0))
    result, _ = bring_in("aiperf", place, tmp_path / "run", gpu="h100-sxm")
    assert result.summary["mean_itl_ms"] is None
    assert result.summary["mean_tpot_ms"] == pytest.approx(20.0, abs=1e-3)


def test_aiperfs_summary_is_compared_by_its_metrics(tmp_path: Path) -> None:
    place = export(tmp_path)
    done = CliRunner().invoke(app, ["observe", str(place), "--from", "aiperf", "--gpu", "h100-sxm",
                                    "-o", str(tmp_path / "run"), "--no-report"])  # fmt: skip
    assert done.exit_code == 0, done.output
    run = read_observed(tmp_path / "run")
    assert run.summary["mean_itl_ms"] == 5.7
    assert run.summary["mean_tpot_ms"] == 5.6  # its inter-token latency is one mean a request
    assert run.date == "2026-07-03"
    arrivals = run.scenario.workload.arrivals
    assert (arrivals.kind, arrivals.concurrency) == ("closed", 2)
    again = CliRunner().invoke(app, ["validate-run", str(run.path), "--no-page", "--json"])
    assert again.exit_code == 0, again.output
    assert len(json.loads(again.output)["figures"]) == 15


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"loadgen": {"request_rate": 4.0}}, {"kind": "poisson", "rate": 4.0}),
        (
            {"loadgen": {"request_rate": 4.0, "arrival_pattern": "constant"}},
            {"kind": "constant", "rate": 4.0},
        ),
        ({"loadgen": {"concurrency": 7}}, {"kind": "closed", "concurrency": 7}),
        ({"phases": [{"name": "profiling", "type": "poisson", "rate": 3}]},
         {"kind": "poisson", "rate": 3.0}),
        ({"phases": [{"kind": "warmup", "rate": 1}, {"kind": "profiling", "concurrency": 9}]},
         {"kind": "closed", "concurrency": 9}),
    ],
)  # fmt: skip
def test_how_aiperf_sent_requests(
    tmp_path: Path, load: dict[str, Any], expected: dict[str, Any]
) -> None:
    models = {"endpoint": {"model_names": [MODEL]}}
    place = export(tmp_path, summary=AIPERF_SUMMARY | {"input_config": models | load})
    _, made = bring_in("aiperf", place, tmp_path / "run", gpu="h100-sxm")
    found = sim.load_scenario(made / "scenario.yaml").workload.arrivals.model_dump()
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(0.0, time_to_first_token=None)], "were not streamed; run `aiperf profile` with"),
        ([line(0.0, request_latency={"value": 1, "unit": "ms"})], "request_latency is less than"),
        ([line(0.0, request_latency={"value": 1, "unit": "furlong"})], "a unit of ns, us, ms, s"),
        ([line(0.0, output_sequence_length={"value": 0})], "output_sequence_length is 0"),
        ([line(0.0, metadata={"request_start_ns": "now"})], "request_start_ns is 'now'"),
        ([line(0.0, metadata={"benchmark_phase": "warmup"})], "no request of the profiling phase"),
        ([line(0.0) | {"metrics": 3}], "metrics is 3; allowed: a mapping"),
        ([line(0.0) | {"error": "x"}], "none of the 1 requests was served"),
    ],
)
def test_a_broken_line_of_aiperf_is_one_clear_error(
    tmp_path: Path, lines: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InfersimError, match=message):
        bring_in("aiperf", export(tmp_path, *lines), tmp_path / "run", gpu="h100-sxm")
    assert not (tmp_path / "run").exists()


def test_what_aiperf_has_not_names_the_way_round(tmp_path: Path) -> None:
    (tmp_path / "profile_export_aiperf.csv").write_text("Metric,avg\n")
    with pytest.raises(InfersimError, match=r"no single requests; give profile_export\.jsonl"):
        bring_in("aiperf", tmp_path / "profile_export_aiperf.csv", tmp_path / "run", gpu="l4")
    with pytest.raises(InfersimError, match="a folder without"):
        bring_in("aiperf", tmp_path, tmp_path / "run", gpu="l4")
    place = export(tmp_path, summary=AIPERF_SUMMARY | {"input_config": {}})
    with pytest.raises(InfersimError, match="the model must be given; add --model"):
        bring_in("aiperf", place, tmp_path / "run", gpu="l4")
    with pytest.raises(InfersimError, match=r"give --set workload\.arrivals\.kind=poisson"):
        bring_in("aiperf", place, tmp_path / "run", gpu="l4", model="llama-3.1-8b")
