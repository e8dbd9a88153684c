"""Whose server a record is of: what it names, what is assumed, and which preset stands for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sim
from calibrate.validation.observed import read_observed
from sim.commands.observe_records import bring_in
from sim.errors import TraceError, UsageError
from tests.calibrate.recordings.test_recordings import META, bench, log

SGLANG: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "max_concurrency": 64,
    "sharegpt_output_len": None,
    "duration": 50.0,
    "completed": 200,
    "total_input_tokens": 60_000,
    "total_output_tokens": 30_000,
    "total_output_tokens_retokenized": 29_900,
    "output_throughput": 600.0,
    "mean_e2e_latency_ms": 1900.0,
    "median_e2e_latency_ms": 1500.0,
    "p99_e2e_latency_ms": 6000.0,
    "mean_ttft_ms": 80.0,
    "median_ttft_ms": 60.0,
    "mean_itl_ms": 11.0,
}
MEDIANS = ("mean_ttft_ms", "mean_itl_ms", "p99_e2e_latency_ms")


def line(folder: Path, *without: str, **changes: Any) -> Path:
    path = folder / "sglang.jsonl"
    found = {key: value for key, value in (SGLANG | changes).items() if key not in without}
    path.write_text(json.dumps(found) + "\n")
    return path


def read(kind: str, path: Path, folder: Path, *overrides: str, **given: Any) -> tuple[Any, ...]:
    """The result, its scenario, the text of that, and the manifest."""
    result, made = bring_in(kind, path, folder / "run", overrides=overrides, **given)
    text = (made / "scenario.yaml").read_text()
    manifest = json.loads((made / "manifest.json").read_text())
    return result, sim.load_scenario(made / "scenario.yaml"), text, manifest


def notes_of(result: Any) -> str:
    return " ".join(result.summary["infersim"]["notes"])


@pytest.mark.parametrize(
    ("backend", "others", "name", "preset", "assumed"),
    [
        ("vllm", {}, "vllm", "vllm@0.33", True),  # the client's own default
        ("openai-chat", {}, "vllm", "vllm@0.33", True),
        (None, {}, "vllm", "vllm@0.33", True),
        ("sglang", {}, "sglang", "sglang@0.5.23", False),
        ("sglang-oai", {}, "sglang", "sglang@0.5.23", False),
        ("vllm", {"total_output_tokens_retokenized": 9}, "vllm", "vllm@0.33", False),
        ("tensorrt-llm", {}, "tensorrt-llm", "tensorrt-llm@1.4", False),
        ("lmdeploy", {}, "lmdeploy", "vllm@0.33", False),
        (
            "openai",
            {"engine": "SGLang", "engine_version": "0.4.1"},
            "sglang",
            "sglang@0.5.6",
            False,
        ),
        ("openai", {"engine": "vllm", "vllm_version": "0.10.2"}, "vllm", "vllm@0.10.2", False),
    ],
)
def test_the_engine_is_the_one_that_a_record_names(
    tmp_path: Path, backend: str | None, others: dict[str, Any], name: str, preset: str,
    assumed: bool,
) -> None:  # fmt: skip
    path = bench(tmp_path, backend=backend, **others)
    result, scenario, text, manifest = read("vllm-bench", path, tmp_path, gpu="h100-sxm")
    assert scenario.engine == preset
    engine = manifest["engine"]
    assert (engine["name"], engine["preset"], engine["assumed"]) == (name, preset, assumed)
    for told in (text.partition("version: 1")[0], notes_of(result)):
        assert ("does not name the engine: vLLM is assumed" in told) == assumed
    unknown = name == "lmdeploy" or others.get("engine_version") == "0.4.1"
    assert ("how far its predictions are off is not known" in notes_of(result)) == unknown
    said = f"taken for {name}" if assumed else f"that {name}"
    assert said in scenario.description
    assert said in text.splitlines()[0]


@pytest.mark.parametrize("key", ["engine", "fleet.0.engine"])
def test_a_given_engine_is_said_everywhere(tmp_path: Path, key: str) -> None:
    path = bench(tmp_path, backend="vllm")
    result, scenario, text, manifest = read(
        "vllm-bench", path, tmp_path, f"{key}=sglang", gpu="h100-sxm"
    )
    assert scenario.only_pool.engine == "sglang@0.5.23"
    assert "vllm" not in text
    assert "that sglang served" in scenario.description
    assert manifest["engine"]["name"] == "sglang"
    assert manifest["engine"]["assumed"] is False
    assert "sglang" in result.summary["infersim"]["provenance"]


@pytest.mark.parametrize(
    ("version", "preset", "known"),
    [("0.6.3", "vllm@0.8", False), ("0.11.0", "vllm@0.11.0", True), ("0.99", "vllm@0.33", False)],
)
def test_a_log_is_simulated_by_the_preset_of_its_release(
    tmp_path: Path, version: str, preset: str, known: bool
) -> None:
    place = log(tmp_path, meta=META | {"vllm_version": version})
    result, scenario, text, _ = read("log", place, tmp_path)
    assert scenario.engine == preset
    assert f"vllm {version}" in text.splitlines()[0]
    assert ("is not known" in text.splitlines()[1]) == (not known)
    assert preset.replace("vllm@", "vLLM ") in notes_of(result)


@pytest.mark.parametrize(
    ("model", "spread", "expected"),
    [
        ("Qwen/Qwen3-30B-A3B", True, (1, 2, True)),
        ("Qwen/Qwen3-30B-A3B", False, (1, 2, False)),
        ("Qwen/Qwen3-8B", True, (2, 1, False)),
        ("Qwen/Qwen3-8B", None, (2, 1, False)),
    ],
)
def test_data_ranks_are_one_engine_with_experts_and_replicas_without(
    tmp_path: Path, model: str, spread: bool | None, expected: tuple[int, int, bool]
) -> None:
    asked = {"data_parallel_size": 2, "enable_expert_parallel": spread}
    meta = META | {"model": model, "engine_kwargs": asked}
    _, scenario, _, _ = read("log", log(tmp_path, meta=meta), tmp_path)
    pool = scenario.fleet[0]
    assert (pool.replicas, pool.data_parallel, pool.expert_parallel) == expected


def test_what_is_not_in_a_record_is_said_to_be_assumed(tmp_path: Path) -> None:
    path = bench(tmp_path)
    result, _, text, manifest = read(
        "vllm-bench", path, tmp_path, "fleet.tensor_parallel=2", gpu="h100-sxm"
    )
    assumed = manifest["assumed"]
    assert assumed["fleet.0.replicas"] == 1
    assert assumed["precision.weights"] == "bf16"
    assert assumed["scheduler.max_num_seqs"] == 1024
    assert "fleet.0.tensor_parallel" not in assumed  # given
    for told in (text, notes_of(result)):
        assert "scheduler.max_num_seqs=1024" in told


def test_what_a_log_states_is_not_assumed(tmp_path: Path) -> None:
    _, _, _, manifest = read("log", log(tmp_path), tmp_path)
    assert set(manifest["assumed"]) == {"fleet.0.replicas"} | {
        "kv_cache.enable_prefix_caching"  # it was on, and cannot be replayed
    }


def test_metadata_is_used_or_named(tmp_path: Path) -> None:
    told = {"gpu": "NVIDIA L40S", "decode_replicas": "4", "tp": 2, "quantization": "fp8"}
    result, scenario, _, manifest = read("vllm-bench", bench(tmp_path, **told), tmp_path)
    pool = scenario.fleet[0]
    assert (pool.gpu, pool.replicas, pool.tensor_parallel) == ("l40s", 4, 2)
    assert "also states quantization 'fp8', of which nothing is used" in notes_of(result)
    assert manifest["conditions"]["quantization"] == "fp8"
    with pytest.raises(TraceError, match="tp is 'two'; allowed: a whole number from 1"):
        bring_in("vllm-bench", bench(tmp_path, tp="two"), tmp_path / "other", gpu="l40s")
    with pytest.raises(UsageError, match="the GPU must be given"):
        bring_in("vllm-bench", bench(tmp_path, gpu="my card"), tmp_path / "other")


def test_a_result_of_sglang_has_its_own_names(tmp_path: Path) -> None:
    result, scenario, _, _ = read("vllm-bench", line(tmp_path), tmp_path, gpu="h100-sxm",
                                  model="llama-3.1-8b")  # fmt: skip
    assert scenario.engine == "sglang@0.5.23"
    summary = result.summary
    assert [summary[f"{rank}_e2el_ms"] for rank in ("mean", "median", "p99")] == [1900, 1500, 6000]
    assert summary["output_throughput"] == 600
    assert summary["request_throughput"] == 200 / 50
    assert summary["total_token_throughput"] == 90_000 / 50


def test_medians_alone_are_a_result(tmp_path: Path) -> None:
    path = line(tmp_path, *MEDIANS)
    result, _, _, _ = read("vllm-bench", path, tmp_path, gpu="h100-sxm", model="llama-3.1-8b")
    summary = result.summary
    assert summary["mean_ttft_ms"] is None
    assert (summary["median_ttft_ms"], summary["mean_e2el_ms"]) == (60, 1900)
    with pytest.raises(TraceError, match="this is not a result of"):
        bring_in("vllm-bench", line(tmp_path, *(key for key in SGLANG if key.endswith("_ms"))),
                 tmp_path / "none", gpu="h100-sxm", model="llama-3.1-8b")  # fmt: skip


SERVER: dict[str, Any] = {
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "version": "0.5.9",
    "tp_size": 4,
    "dp_size": 1,
    "chunked_prefill_size": 8192,
    "max_running_requests": None,
    "internal_states": [{}],
}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (SERVER, (4, 1, 1, 8192)),
        (SERVER | {"dp_size": 2}, (4, 1, 2, 8192)),
        (
            SERVER | {"dp_size": 2, "enable_dp_attention": True, "model_path": "Qwen3-30B-A3B"},
            (2, 2, 1, 4096),
        ),
        ({"prefill": [{}], "decode": [SERVER]}, (4, 1, 1, 8192)),
    ],
)
def test_a_result_of_sglang_has_its_server_info(
    tmp_path: Path, server: dict[str, Any], expected: tuple[int, ...]
) -> None:
    path = line(tmp_path, server_info=server, total_throughput=1790.0, accept_length=2.5)
    result, scenario, _, _ = read("vllm-bench", path, tmp_path, gpu="h100-sxm")
    pool = scenario.fleet[0]
    found = (pool.tensor_parallel, pool.data_parallel, pool.replicas)
    assert (*found, scenario.scheduler.max_num_batched_tokens) == expected
    assert scenario.engine == "sglang@0.5.9"
    assert scenario.model.path in ("llama-3.1-8b", "qwen3-30b-a3b")
    assert result.summary["total_token_throughput"] == 1790
    assert "accept_length 2.5, of which nothing is used" in notes_of(result)


EMPTY = {
    "output_lens": [3, 0, 4, 1],
    "ttfts": [0.05, 0.0, 0.03, 0.04],
    "errors": ["", "", "", ""],
    "completed": 4,
}


@pytest.mark.parametrize(
    ("mean", "errors", "note", "refused"),
    [
        (30.0, EMPTY["errors"], True, False),  # of all four
        (40.0, EMPTY["errors"], False, False),  # of those with tokens
        (35.0, EMPTY["errors"], False, True),
        (30.0, ["", "no such host", "", ""], False, True),  # it did not complete
        (30.0, "absent", True, False),
    ],
)
def test_requests_that_completed_without_a_token_are_counted_apart(
    tmp_path: Path, mean: float, errors: Any, note: bool, refused: bool
) -> None:
    path = bench(tmp_path, **EMPTY | {"mean_ttft_ms": mean, "errors": errors})
    if refused:
        with pytest.raises(TraceError, match="is not the mean_ttft_ms"):
            bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
        return
    result, _, _, _ = read("vllm-bench", path, tmp_path, gpu="h100-sxm")
    assert result.summary["mean_ttft_ms"] == pytest.approx(40.0)
    assert (result.summary["completed"], result.summary["failed"]) == (3, 0 if note else 1)
    assert ("1 request completed without a token" in notes_of(result)) == note
    assert ("1 request failed" in notes_of(result)) != note


@pytest.mark.parametrize("empty", [True, False])
def test_rates_of_approximated_times_are_of_the_requests_that_got_tokens(
    tmp_path: Path, empty: bool
) -> None:
    """Over the duration of the file, which is measured; so are goodput and cost."""
    ran = {"request_rate": 4.0, "max_concurrency": None, "start_times": "absent", "duration": 4.0}
    ran |= {"request_throughput": 1.0, "output_throughput": 2.0, "total_token_throughput": 99.0}
    lists = EMPTY | {"mean_ttft_ms": 30.0}
    if not empty:
        lists |= {"output_lens": [3, 2, 4, 1], "itls": [[0.01, 0.03], [0.02], [0.02] * 3, []]}
        lists |= {"ttfts": [0.05, 0.03, 0.03, 0.04], "mean_ttft_ms": 37.5}
    path = bench(tmp_path, **lists, **ran)
    result, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm")
    summary, served = result.summary, 3 if empty else 4
    assert (summary["completed"], summary["failed"], summary["duration"]) == (served, 0, 4.0)
    assert summary["request_throughput"] == summary["request_goodput"] == served / 4
    assert summary["output_throughput"] == 2.0
    tokens = summary["total_input_tokens"] + summary["total_output_tokens"]
    assert summary["total_token_throughput"] == (pytest.approx(tokens / 4) if empty else 99.0)
    own = summary["infersim"]
    assert own["verdict"]["text"] == f"Observed: {served} of {served} requests were completed."
    cost = own["cost"]
    assert cost["usd"] == pytest.approx(cost["usd_per_gpu_hour"] * 4 / 3600)
    assert read_observed(made).failed == 0


def test_a_summary_that_says_nothing_of_arrivals_is_offered_clients_too(tmp_path: Path) -> None:
    path = line(tmp_path, "request_rate")
    with pytest.raises(UsageError, match=r"kind=closed --set workload\.arrivals\.concurrency=N"):
        bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm", model="llama-3.1-8b")
    asked = ["workload.arrivals.kind=closed", "workload.arrivals.concurrency=8"]
    _, scenario, _, _ = read("vllm-bench", path, tmp_path, *asked, gpu="h100-sxm",
                             model="llama-3.1-8b")  # fmt: skip
    assert scenario.workload.arrivals.concurrency == 8
