"""Results of clients that only sum a run up, taken in and compared with predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from calibrate.recordings.recording import RecordingChoice
from calibrate.validation.observed import read_observed
from sim.cli import app
from sim.commands.observe_records import bring_in
from sim.errors import InfersimError, TraceError, UsageError

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CLOSED = ("workload.arrivals.kind=closed", "workload.arrivals.concurrency=4")


def written(folder: Path, name: str, found: Any) -> Path:
    path = folder / name
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    return path


def taken(kind: str, path: Path, folder: Path, *overrides: str, **given: Any) -> Any:
    """The summary of the run, its scenario, and its notes."""
    result, made = bring_in(kind, path, folder / "run", overrides=overrides, **given)
    notes = " ".join(result.summary["infersim"]["notes"])
    return result.summary, sim.load_scenario(made / "scenario.yaml"), notes


def closed(scenario: Any) -> int | None:
    """The number of clients; None for other arrivals."""
    arrivals = scenario.workload.arrivals
    return arrivals.concurrency if arrivals.kind == "closed" else None


# -- InferenceX ------------------------------------------------------------------------------------

AGG: dict[str, Any] = {
    "hw": "h200-nv",
    "conc": 8,
    "image": "vllm/vllm-openai:v0.18.0",
    "model": "openai/gpt-oss-120b",
    "framework": "vllm",
    "precision": "fp4",
    "spec_decoding": "none",
    "disagg": False,
    "is_multinode": False,
    "isl": 1024,
    "osl": 64,
    "tp": 4,
    "ep": 1,
    "dp_attention": "false",
    "tput_per_gpu": 1000.0,
    "output_tput_per_gpu": 60.0,
    "median_ttft": 0.2,
    "p99_ttft": 0.5,
    "median_tpot": 0.004,
    "median_intvty": 250.0,
}


def test_a_result_of_inferencex_states_its_server(tmp_path: Path) -> None:
    summary, scenario, notes = taken("inferencex", written(tmp_path, "agg.json", AGG), tmp_path)
    assert (summary["median_ttft_ms"], summary["p50_ttft_ms"], summary["p99_ttft_ms"]) == (
        pytest.approx(200),
        pytest.approx(200),
        pytest.approx(500),
    )
    assert summary["mean_ttft_ms"] is None
    assert summary["total_token_throughput"] == 4000
    assert summary["completed"] is None
    assert (scenario.engine, scenario.model.path) == ("vllm@0.18.0", "gpt-oss-120b")
    pool = scenario.fleet[0]
    assert (pool.gpu, pool.tensor_parallel, closed(scenario)) == ("h200-sxm", 4, 8)
    assert scenario.precision.experts == "mxfp4"
    assert "how many requests there were: 80 are assumed" in notes


def test_medians_without_means_are_compared(tmp_path: Path) -> None:
    path = written(tmp_path, "agg.json", AGG)
    done = CliRunner().invoke(app, ["observe", str(path), "--from", "inferencex",
                                    "-o", str(tmp_path / "run")])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "warning" not in done.output
    run = str(read_observed(tmp_path / "run").path)
    again = CliRunner().invoke(app, ["validate-run", run, "--no-page", "--json"])
    assert again.exit_code == 0, again.output
    found = json.loads(again.output)
    assert [row["figure"] for row in found["figures"]] == [
        *("p50_ttft_ms", "p99_ttft_ms", "p50_tpot_ms"),
        *("output_throughput", "total_token_throughput"),
    ]
    checked = CliRunner().invoke(app, ["validate-run", run, "--no-page", "--check", "900"])
    assert "Check passed: within 900 %: p50_ttft_ms" in checked.output
    shown = CliRunner().invoke(app, ["validate-run", run, "-o", str(tmp_path / "page.html")])
    assert shown.exit_code == 0, shown.output
    assert "no page" not in shown.output


def test_ranks_and_formats_of_inferencex(tmp_path: Path) -> None:
    changes = {"dp_attention": "true", "ep": 8, "tp": 8, "precision": "fp8", "framework":
               "dynamo-sglang", "model": "deepseek-ai/DeepSeek-R1-0528"}  # fmt: skip
    rows = [AGG, AGG | changes | {"spec_decoding": "mtp"}]
    _, scenario, notes = taken("inferencex", written(tmp_path, "rows.json", rows), tmp_path)
    pool = scenario.fleet[0]
    assert (pool.tensor_parallel, pool.data_parallel, pool.expert_parallel) == (1, 8, True)
    assert scenario.precision.weights == "fp8-block"
    assert scenario.engine.startswith("sglang@")
    assert "2 results; this is number 2" in notes
    assert "speculative decoding ('mtp')" in notes


def test_a_row_of_the_dashboard_has_its_metrics_apart(tmp_path: Path) -> None:
    metrics = {"mean_ttft": 0.1, "tput_per_gpu": 100.0}
    row = {"hardware": "b300", "model": MODEL, "framework": "vllm", "precision": "fp8",
           "decode_tp": 2, "decode_ep": 1, "isl": 1024, "osl": 1024, "conc": 4, "disagg": False,
           "metrics": metrics}  # fmt: skip
    summary, scenario, _ = taken("inferencex", written(tmp_path, "row.json", row), tmp_path)
    assert summary["mean_ttft_ms"] == pytest.approx(100)
    assert summary["total_token_throughput"] == 200
    assert scenario.precision.weights == "fp8"


def test_pools_of_inferencex_must_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, "agg.json", AGG | {"disagg": True, "num_prefill_gpu": 4})
    with pytest.raises(UsageError, match=r"num_prefill_gpu 4\).*give --server SCENARIO"):
        bring_in("inferencex", path, tmp_path / "run")


# -- inference-perf --------------------------------------------------------------------------------


def spread(mean: float) -> dict[str, float]:
    return {"mean": mean, "min": 0.0, "median": mean / 2, "p90": mean * 2, "p99": mean * 3}


STAGE: dict[str, Any] = {
    "benchmark_time_seconds": 10.0,
    "load_summary": {"count": 21, "requested_rate": 2.0, "achieved_rate": 2.1},
    "successes": {
        "count": 20,
        "latency": {
            "request_latency": spread(1.0),
            "time_to_first_token": spread(0.05),
            "time_per_output_token": spread(0.01),
            "inter_token_latency": spread(0.01),
        },
        "throughput": {"output_tokens_per_sec": 180.0, "requests_per_sec": 2.0},
        "prompt_tokens": {"total": 4000.0, "mean": 200.0},
        "output_len": spread(90.0),
    },
    "failures": {"count": 1},
}


def stages(folder: Path) -> Path:
    place = folder / "reports"
    place.mkdir()
    for number in (2, 10):
        load = STAGE["load_summary"] | {"requested_rate": float(number)}
        written(place, f"stage_{number}_lifecycle_metrics.json", STAGE | {"load_summary": load})
    return place


def test_a_stage_of_inference_perf(tmp_path: Path) -> None:
    place = stages(tmp_path)
    summary, scenario, notes = taken(
        "inference-perf", place, tmp_path, gpu="h100-sxm", model="llama-3.1-8b"
    )
    assert (summary["completed"], summary["failed"], summary["duration"]) == (20, 1, 10.0)
    assert (summary["mean_ttft_ms"], summary["p50_ttft_ms"]) == (50, 25)
    assert (summary["p99_e2el_ms"], summary["mean_itl_ms"]) == (3000, None)
    arrivals = scenario.workload.arrivals
    assert (arrivals.kind, arrivals.rate) == ("constant", 10.0)
    assert scenario.workload.prompt_tokens.value == 200
    assert "a constant rate is assumed" in notes
    assert "2 stages; this is number 2" in notes


def test_the_configuration_next_to_a_stage(tmp_path: Path) -> None:
    place = stages(tmp_path)
    server = f"server: {{type: sglang, model_name: {MODEL}}}"
    (place / "config.yaml").write_text(f"load: {{type: poisson}}\n{server}\n")
    path = place / "stage_2_lifecycle_metrics.json"
    _, scenario, notes = taken("inference-perf", path, tmp_path, gpu="h100-sxm")
    assert (scenario.workload.arrivals.kind, scenario.model.path) == ("poisson", "llama-3.1-8b")
    assert scenario.engine.startswith("sglang@")
    assert "is assumed (" not in notes


def test_clients_of_a_stage_and_a_joined_summary(tmp_path: Path) -> None:
    given = {"gpu": "h100-sxm", "model": "llama-3.1-8b"}
    load = {"count": 20, "requested_rate": 5.0, "concurrency": 16}
    path = written(tmp_path, "stage_0_lifecycle_metrics.json", STAGE | {"load_summary": load})
    assert closed(taken("inference-perf", path, tmp_path, **given)[1]) == 16
    joined = written(tmp_path, "summary.json", STAGE | {"load_summary": {"count": 20}})
    with pytest.raises(UsageError, match=r"load_summary has neither .* workload\.arrivals"):
        bring_in("inference-perf", joined, tmp_path / "other", gpu="h100-sxm", model=MODEL)
    with pytest.raises(InfersimError, match="a folder without stage_0"):
        bring_in("inference-perf", tmp_path / "run", tmp_path / "other")
    choice = RecordingChoice(entry=3)
    with pytest.raises(UsageError, match="allowed: 1 to 2"):
        bring_in("inference-perf", stages(tmp_path), tmp_path / "other", choice=choice)


# -- llmperf ---------------------------------------------------------------------------------------

FLAT: dict[str, Any] = {
    "model": MODEL,
    "num_concurrent_requests": 5,
    "results_inter_token_latency_s_mean": 0.02,
    "results_ttft_s_quantiles_p50": 0.2,
    "results_ttft_s_quantiles_p99": 0.4,
    "results_ttft_s_mean": 0.25,
    "results_ttft_s_stddev": 0.05,
    "results_end_to_end_latency_s_mean": 3.0,
    "results_number_input_tokens_mean": 550.0,
    "results_number_output_tokens_mean": 150.0,
    "results_number_errors": 2,
    "results_mean_output_throughput_token_per_s": 200.0,
    "results_num_completed_requests": 150,
    "results_num_completed_requests_per_min": 78.0,
    "timestamp": 1703135943,
}


def response(ttft: float, latency: float, outputs: int, **changes: Any) -> dict[str, Any]:
    return {
        "error_code": None,
        "ttft_s": ttft,
        "end_to_end_latency_s": latency,
        "number_input_tokens": 50,
        "number_output_tokens": outputs,
    } | changes


def test_a_summary_of_llmperf(tmp_path: Path) -> None:
    path = written(tmp_path, "x_summary.json", FLAT)
    summary, scenario, _ = taken("llmperf", path, tmp_path, gpu="h100-sxm")
    assert (summary["mean_ttft_ms"], summary["p99_ttft_ms"], summary["std_ttft_ms"]) == (
        pytest.approx(250),
        pytest.approx(400),
        pytest.approx(50),
    )
    assert (summary["mean_tpot_ms"], summary["mean_itl_ms"]) == (None, None)
    assert summary["request_throughput"] == pytest.approx(1.3)
    assert (summary["completed"], summary["failed"], closed(scenario)) == (150, 2, 5)
    assert read_observed(tmp_path / "run").date == "2023-12-21"


def test_single_responses_of_llmperf_have_a_tpot(tmp_path: Path) -> None:
    rows = [response(0.1, 1.1, 11), response(0.3, 0.3, 1), response(0, 0, 0, error_code=500)]
    path = written(tmp_path, "x_individual_responses.json", rows)
    given = {"gpu": "h100-sxm", "model": "llama-3.1-8b"}
    with pytest.raises(UsageError, match="num_concurrent_requests is None"):
        bring_in("llmperf", path, tmp_path / "run", **given)
    written(tmp_path, "x_summary.json", FLAT)
    summary, scenario, _ = taken("llmperf", path, tmp_path, gpu="h100-sxm")
    assert summary["mean_ttft_ms"] == pytest.approx(200)
    assert summary["mean_tpot_ms"] == pytest.approx(100)
    assert (summary["completed"], summary["failed"], closed(scenario)) == (2, 1, 5)
    assert scenario.workload.output_tokens.value == 6


# -- GenAI-Perf ------------------------------------------------------------------------------------

EXPORT: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 17.0},
    "request_latency": {"unit": "ms", "avg": 5000.0, "p50": 4900.0, "p99": 5900.0, "std": 90.0},
    "time_to_first_token": {"unit": "ns", "avg": 2e8},
    "inter_token_latency": {"unit": "ms", "avg": 2.2},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 4400.0},
    "output_sequence_length": {"unit": "tokens", "avg": 256.4},
    "input_sequence_length": {"unit": "tokens", "avg": 200.9},
    "input_config": {"model": [MODEL], "backend": "tensorrtllm", "concurrency": 100},
}
TABLE = """Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),"1,146.31",249.48,"3,485.23","3,457.97",3.0,3.0,3.0,640.07,286.52
Request Latency (ms),"6,406.20",5.0,5.0,"9,436.13",5.0,5.0,5.0,5.0,5.0
Output Sequence Length,174.45,164.00,187.00,186.22,183.10,180.10,177.00,174.00,171.75
Input Sequence Length (tokens),"3,000.05",1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0

Metric,Value
Output Token Throughput (per sec),261.25
Request Count (count),40.00
"""


def test_the_export_of_genai_perf(tmp_path: Path) -> None:
    path = written(tmp_path, "profile_export_genai_perf.json", EXPORT)
    summary, scenario, _ = taken("genai-perf", path, tmp_path, gpu="h100-sxm")
    assert (summary["mean_ttft_ms"], summary["mean_tpot_ms"]) == (pytest.approx(200), 2.2)
    assert (summary["p50_e2el_ms"], summary["median_e2el_ms"]) == (4900, 4900)
    assert summary["completed"] is None
    assert (closed(scenario), scenario.run.requests) == (100, 1000)
    assert scenario.engine.startswith("tensorrt-llm@")


@pytest.mark.parametrize(
    ("stimulus", "expected"),
    [({"concurrency": 3}, ("closed", 3)), ({"request_rate": [2.5]}, ("constant", 2.5))],
)
def test_how_genai_perf_sent_requests(tmp_path: Path, stimulus: Any, expected: Any) -> None:
    asked = {"model_names": [MODEL], "perf_analyzer": {"stimulus": stimulus},
             "endpoint": {"backend": "vllm"}}  # fmt: skip
    path = written(tmp_path, "x.json", EXPORT | {"input_config": asked})
    _, scenario, _ = taken("genai-perf", path, tmp_path, gpu="h100-sxm")
    arrivals = scenario.workload.arrivals
    assert (arrivals.kind, getattr(arrivals, "concurrency", None) or arrivals.rate) == expected


def test_the_table_of_genai_perf_has_no_load(tmp_path: Path) -> None:
    path = written(tmp_path, "profile_export_genai_perf.csv", TABLE)
    given = {"gpu": "h100-sxm", "model": "llama-3.1-8b"}
    with pytest.raises(UsageError, match="neither concurrency nor rate is stated"):
        bring_in("genai-perf", path, tmp_path / "run", **given)
    summary, scenario, _ = taken("genai-perf", path, tmp_path, *CLOSED, **given)
    assert (summary["mean_ttft_ms"], summary["p99_e2el_ms"]) == (1146.31, 9436.13)
    assert (summary["completed"], summary["output_throughput"]) == (40, 261.25)
    assert (scenario.workload.prompt_tokens.value, scenario.run.requests) == (3000, 40)


# -- trtllm-bench ----------------------------------------------------------------------------------

REPORT: dict[str, Any] = {
    "engine": {
        "model": MODEL,
        "version": "1.2.0",
        "backend": "Pytorch",
        "dtype": "bfloat16",
        "kv_cache_dtype": "FP8",
        "quantization": "FP8",
    },
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1},
    "world_info": {
        "tp_size": 2,
        "pp_size": 1,
        "ep_size": 1,
        "max_batch_size": 64,
        "max_num_tokens": 4096,
        "kv_cache_percentage": 0.8,
    },
    "request_info": {
        "num_requests": 300,
        "avg_num_concurrent_requests": 63.1,
        "avg_input_length": 128.0,
        "avg_output_length": 64.4,
    },
    "performance": {
        "total_latency_ms": 4800.0,
        "avg_request_latency_ms": 900.0,
        "request_throughput_req_s": 62.5,
        "system_output_throughput_tok_s": 4000.0,
        "request_latency_percentiles_ms": {"p50": 880.0, "p99": 990.0, "average": 900.0},
    },
    "streaming_metrics": {
        "avg_ttft_ms": 30.0,
        "avg_tpot_ms": 7.0,
        "ttft_percentiles": {"p50": 29.0, "p90": 40.0, "p95": 44.0, "p99": 50.0},
    },
}


def test_a_report_of_trtllm_bench_states_its_engine(tmp_path: Path) -> None:
    path = written(tmp_path, "report.json", REPORT)
    with pytest.raises(UsageError, match=r"avg_num_concurrent_requests is 63\.1"):
        bring_in("trtllm-bench", path, tmp_path / "run")
    summary, scenario, notes = taken("trtllm-bench", path, tmp_path, *CLOSED)
    assert (summary["mean_e2el_ms"], summary["p50_e2el_ms"], summary["duration"]) == (900, 880, 4.8)
    assert (summary["mean_ttft_ms"], summary["p95_ttft_ms"]) == (30, 44)
    pool, precision = scenario.fleet[0], scenario.precision
    assert (pool.gpu, pool.tensor_parallel) == ("h100-sxm", 2)
    assert (precision.weights, precision.kv_cache) == ("fp8", "fp8")
    assert (scenario.scheduler.max_num_seqs, scenario.scheduler.max_num_batched_tokens) == (
        64,
        4096,
    )
    assert scenario.engine == "tensorrt-llm@1.2.0"
    assert "in one process with the engine" in notes
    odd = REPORT | {"engine": REPORT["engine"] | {"quantization": "W4A8_AWQ"}}
    with pytest.raises(UsageError, match="quantization is 'W4A8_AWQ'"):
        bring_in("trtllm-bench", written(tmp_path, "odd.json", odd), tmp_path / "other",
                 overrides=CLOSED)  # fmt: skip


# -- which format a file is of ---------------------------------------------------------------------

LOOKS: dict[str, Any] = {
    "inferencex": AGG,
    "inference-perf": STAGE,
    "llmperf": FLAT,
    "genai-perf": EXPORT,
    "trtllm-bench": REPORT,
    "vllm-bench": {"duration": 1.0, "completed": 3, "total_input_tokens": 9, "backend": "sglang"},
    "guidellm": {"metadata": {}, "benchmarks": []},
    "aiperf": {"aiperf_version": "0.13.0", "request_latency": {}, "input_config": {}},
}


@pytest.mark.parametrize("kind", LOOKS)
def test_an_error_names_the_format_of_the_file(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "result.json", LOOKS[kind])
    told = f"this looks like a result of {kind}: --from {kind}"
    for other in set(LOOKS) - {kind, "aiperf"}:
        if (kind, other) == ("aiperf", "genai-perf"):
            continue  # which came before it, and reads it as far as it goes
        with pytest.raises(TraceError, match=told):
            bring_in(other, path, tmp_path / "run")


def test_rows_and_tables_are_recognised(tmp_path: Path) -> None:
    for text, kind in ((json.dumps([response(0.1, 0.2, 3)]), "llmperf"), (TABLE, "genai-perf")):
        path = written(tmp_path, "result", text)
        with pytest.raises(TraceError, match=f"--from {kind}"):
            bring_in("guidellm", path, tmp_path / "run")
    with pytest.raises(TraceError) as error:
        bring_in("guidellm", written(tmp_path, "x", "{}"), tmp_path / "run")
    assert "looks like" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "found", "message"),
    [
        ("inferencex", AGG | {"conc": 0}, "conc is 0"),
        ("inferencex", AGG | {"isl": None}, "isl is None"),
        ("inferencex", "[1]", "not a list of results"),
        ("inference-perf", STAGE | {"successes": {"count": 0}}, "successes: count is 0"),
        ("inference-perf", STAGE | {"successes": 3}, "successes is 3; allowed: a mapping"),
        ("llmperf", "[", "not JSON"),
        ("llmperf", [response(0.1, 0.2, 1, error_code=1)], "none of the 1 requests was served"),
        ("llmperf", FLAT | {"results_num_completed_requests": 0}, "results_num_completed_requests"),
        ("genai-perf", EXPORT | {"input_sequence_length": 1}, "input_sequence_length is 1"),
        ("trtllm-bench", REPORT | {"performance": []}, "performance is \\[\\]; allowed: a mapping"),
    ],
)
def test_a_broken_result_is_one_clear_error(
    tmp_path: Path, kind: str, found: Any, message: str
) -> None:
    with pytest.raises(InfersimError, match=message):
        bring_in(kind, written(tmp_path, "result.json", found), tmp_path / "run", gpu="h100-sxm")
    assert not (tmp_path / "run").exists()
