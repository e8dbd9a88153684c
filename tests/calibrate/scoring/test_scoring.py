"""Published measurements: what rows are taken to mean, how they are repeated, how errors add up."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

from calibrate.published_names import Unrepresentable, gpu_name, model_name, precision_name
from calibrate.scoring import Given, score_all
from calibrate.scoring.clients import AT_ONCE, KEPT, plausible
from calibrate.scoring.conditions import RANDOM_SKEW, Conditions, conditions
from calibrate.scoring.console import view
from calibrate.scoring.document import to_document
from calibrate.scoring.errors import errors_of, groups, kind, source
from calibrate.scoring.evidence import summary
from calibrate.scoring.facts import BASES, corrected, facts, facts_of
from calibrate.scoring.figures import measured
from calibrate.scoring.lengths import Lengths
from calibrate.scoring.predict import NOT_WARMED, Scored, case, run, together
from calibrate.scoring.presets import engine_name
from calibrate.scoring.report import markdown
from calibrate.scoring.table import NEEDED, OPTIONAL, Row, read_table
from sim.cli import app
from sim.errors import TraceError
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.specs.popularity import chances
from sim.terminal.console import as_text
from sim.units import show_time
from tests.places import SHARED

MEASURED = SHARED / "data" / "measured"

CLOSED = {
    "engine": "vllm",
    "engine_version": "0.14",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "2",
    "tp": "2",
    "pp": "1",
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "weight_dtype": "gemm=fp8 moe=fp8",
    "kv_dtype": "not stated",
    "isl": "100",
    "osl": "20",
    "batch_or_concurrency": "4",
    "request_rate_rps": "closed-loop",
    "n_requests": "rule: 10x concurrency",
    "arrival": "closed loop at fixed concurrency",
    "metric": "tpot_mean",
    "value": "18.0",
    "unit": "ms",
}


def row(**changes: str) -> Row:
    cells = dict.fromkeys((*NEEDED, *OPTIONAL), "") | CLOSED | changes
    return Row("table.csv", 2, cells)


def pool(known: Conditions) -> tuple[int, int, int]:
    """Tensor ranks, data ranks and expert ranks of the one pool."""
    found = known.document["fleet"][0]
    return found["tensor_parallel"], found["data_parallel"], found["expert_parallel"]


def requests(known: Conditions) -> int:
    found: int = known.document["run"]["requests"]
    return found


def kv_format(known: Conditions) -> str:
    found: str = known.document["precision"]["kv_cache"]
    return found


def write(path: Path, *rows: dict[str, str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(CLOSED))
        table.writeheader()
        table.writerows(CLOSED | changes for changes in rows)
    return path


STATIC = {
    "engine": "TensorRT-LLM",
    "engine_version": "0.9.0",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "1",
    "tp": "1",
    "model": "LLaMA 7B",
    "weight_dtype": "fp16",
    "kv_dtype": "fp16",
    "batch_or_concurrency": "8",
    "request_rate_rps": "static-batch",
    "n_requests": "8",
    "arrival": "single static batch",
    "metric": "output_throughput_per_gpu",
    "value": "700",
    "unit": "out_tok/s/GPU",
}


class TestNames:
    @pytest.mark.parametrize(
        ("published", "name"),
        [
            ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
            ("Qwen3-32B-FP8", "qwen3-32b"),
            ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
            ("Mistral 7B", "mistral-7b"),
            ("GPT-J 6B", "gpt-j-6b"),
            ("nvidia/Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b"),
            ("Meta-Llama-3-8B", "llama-3.1-8b"),
            ("llama2-70b-99", "llama-2-70b"),
            ("Llama-3.2-1B", "llama-3.2-1b"),
            ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
            ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-r1"),
            ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"),
            ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ],
    )
    def test_models(self, published: str, name: str) -> None:
        assert model_name(published) == name

    @pytest.mark.parametrize("published", ["Falcon-180B", "Llama-5-Maverick-FP8"])
    def test_other_models_are_named_in_the_reason(self, published: str) -> None:
        with pytest.raises(Unrepresentable, match=published):
            model_name(published)

    @pytest.mark.parametrize(
        ("published", "name"),
        [
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("A100-PCIe-80GB", "a100-pcie"),
            ("A100-SXM4-40GB", "a100-sxm-40gb"),
            ("H100 PCIe", "h100-pcie"),
            ("GH200 480GB", "gh200"),
            ("NVIDIA H200 141GB HBM3e", "h200-sxm"),
            ("B200-180GB", "b200-sxm"),
            ("L40S", "l40s"),
            ("NVIDIA L4", "l4"),
            ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
            ("AMD Instinct MI300X", "mi300x"),
        ],
    )
    def test_gpus(self, published: str, name: str) -> None:
        assert gpu_name(published) == name

    @pytest.mark.parametrize("published", ["V100", "GB30", "H30"])
    def test_other_gpus_are_not_taken_for_relatives(self, published: str) -> None:
        with pytest.raises(Unrepresentable):
            gpu_name(published)

    def test_formats(self) -> None:
        assert precision_name("int4-g32", unstated="bf16") == "int4"
        assert precision_name("bf16 (not restated)", unstated="fp8") == "bf16"
        assert precision_name("see doc", unstated="?") == "?"
        assert precision_name("gemm=nvfp4 moe=nvfp4", unstated="bf16") == "nvfp4"
        with pytest.raises(Unrepresentable, match="w4a8"):
            precision_name("gemm=w4a8 moe=w4a8", unstated="bf16")


class TestConditions:
    def test_a_closed_loop(self) -> None:
        known = conditions(row())
        assert (known.driver, known.size, requests(known)) == ("closed", 4, 40)
        assert (known.model, known.gpu, known.weights) == ("llama-3.1-70b", "h100-sxm", "fp8")
        assert (known.prompt, known.output) == (Lengths(100, 100), Lengths(20, 20))
        (kv_cache,) = known.assumed
        assert kv_cache == "the KV cache's format is not stated: bf16"

    def test_lengths_spread_as_the_notes_say(self) -> None:
        notes = "random dataset => lengths uniform in [0.8,1.0]*nominal (mean 0.9*nominal)"
        assert conditions(row(notes=notes, isl="1000")).prompt == Lengths(800, 1000)

    def test_what_is_known_of_mlperf(self) -> None:
        """Its prompts are of GSM8K, among others, which is no length; its lengths have a law."""
        cells = {"isl": "OpenOrca+GSM8K+MBXP mean ~ 377", "osl": "145.9 (tok/s / samples/s)"}
        sent = {"arrival": "Poisson", "request_rate_rps": "348", "n_requests": "15000"}
        read = row(engine="TensorRT-LLM (MLPerf harness)", model="mixtral-8x7b", **cells, **sent)
        known = conditions(read)
        assert known.prompt == Lengths(377, 377, varied=True)
        assert known.output == Lengths(146, 146, varied=True)
        inferred = conditions(read, outcomes=True)
        assert inferred.output == Lengths(146, 146, varied=True, p95=365)
        assert requests(known) == requests(inferred) == 348 * 2400
        law = inferred.document["workload"]["output_tokens"]
        assert law["p95"] == pytest.approx(2.5 * 146)
        offline = conditions(
            row(
                engine="TensorRT-LLM (MLPerf harness)",
                model="mixtral-8x7b",
                **cells,
                arrival="all at t=0",
                batch_or_concurrency="max_batch 896 per TP group",
            )
        )
        assert requests(offline) == pytest.approx(1.1 * 8 * 46 * 2400)
        limits = {"max_num_seqs": 896, "max_num_batched_tokens": 8192, "chunked_prefill": False}
        scheduler = offline.document["scheduler"]
        assert scheduler == limits | {"batching": "continuous", "policy": "max-utilization"}
        assert known.document["scheduler"]["max_num_batched_tokens"] == 16384

    def test_mlperf_streams_from_its_server_alone(self) -> None:
        """Both are the C++ runtime of 2024, whatever TensorRT's own version would say."""
        harness = {"engine": "TensorRT-LLM (MLPerf harness)", "engine_version": "TensorRT 10.2.0"}
        cells = harness | {"model": "llama2-70b-99", "request_rate_rps": "75"}
        server = conditions(row(**cells, arrival="Poisson"))
        assert (requests(server), engine_name(server.engine)) == (270_336, "tensorrt-llm-executor")
        offline = conditions(row(**cells, arrival="all at t=0"))
        assert (requests(offline), engine_name(offline.engine)) == (211_200, "tensorrt-llm-0.14")

    def test_gpus_stated_times_the_ranks_of_their_experts(self) -> None:
        """64 of one version stand for 8, as tensor ranks or data ranks; of others for 64."""
        cells = {"engine": "trtllm", "gpu": "H200-SXM-141GB", "model": "deepseek-ai/DeepSeek-V3"}
        cells |= {"n_gpus": "64", "ep": "8"}
        tensor = conditions(row(**cells, engine_version="1.1.0rc2.post2", tp="64"))
        assert (tensor.gpus, pool(tensor)) == (8, (8, 1, 8))
        data = conditions(row(**cells, engine_version="1.1.0rc2.post2", tp="1", dp_attn="64"))
        assert (data.gpus, pool(data)) == (8, (1, 8, 8))
        assert conditions(row(**cells, engine_version="1.2.0", tp="64")).gpus == 64

    def test_servers_whose_prompts_wait(self) -> None:
        """By the source's script: lengths of 1,024 on less than 8 GPUs alone."""
        notes = "InferenceMAX: lengths uniform in [0.8,1.0]*nominal"
        cells = {"engine": "trtllm", "gpu": "H200-SXM-141GB", "notes": notes}
        cells |= {"model": "meta-llama/Llama-3.1-70B", "isl": "1024"}
        wait = {"batch_wait_timeout_iters": 20, "batch_wait_max_tokens_ratio": 0.9}
        for tp, osl, waits in (("4", "1024", True), ("8", "1024", False), ("4", "8192", False)):
            known = conditions(row(**cells, tp=tp, n_gpus=tp, osl=osl))
            scheduler = known.document["scheduler"]
            assert (wait.items() <= scheduler.items()) is waits
            assert scheduler["max_num_batched_tokens"] == 16384
            assert not scheduler["chunked_prefill"]

    def test_servers_with_room_for_one_prompt(self) -> None:
        """Of DeepSeek-V3 under TensorRT-LLM, whose experts are on 8 GPUs though 1 is stated."""
        cells = {"engine": "trtllm", "gpu": "H200-SXM-141GB", "model": "deepseek-ai/DeepSeek-V3"}
        cells |= {"n_gpus": "8", "tp": "8", "ep": "1", "isl": "1024"}
        known = conditions(row(**cells, batch_or_concurrency="16"))
        assert (pool(known), kv_format(known)) == ((8, 1, 8), "fp8")
        assert known.document["scheduler"]["max_num_batched_tokens"] == 1024 + 16 + 64
        assert known.streamed == 10
        open_client = {"n_requests": "", "notes": "client not described"}
        ways = plausible(conditions(row(**cells | open_client)))
        assert (ways[KEPT].streamed, ways[AT_ONCE].streamed) == (10, 1)

    def test_servers_whose_data_ranks_wait_for_each_other(self) -> None:
        """DeepSeek-V3 with more than 32 clients and long prompts; DeepSeek-R1 as published."""
        cells = {"engine": "trtllm", "gpu": "H200-SXM-141GB", "model": "deepseek-ai/DeepSeek-V3"}
        cells |= {"n_gpus": "8", "tp": "8", "ep": "1", "isl": "8192"}
        for clients, data in (("32", 1), ("64", 8)):
            known = conditions(row(**cells, batch_or_concurrency=clients))
            assert pool(known)[:2] == (8 // data, data)
            wait = known.document["scheduler"].get("attention_dp_timeout_iters")
            assert wait == (60 if data > 1 else None)
        bench = {"engine": "TensorRT-LLM", "engine_version": ">=1.1", "gpu": "H200-SXM-141GB"}
        bench |= {"model": "deepseek-ai/DeepSeek-R1-0528", "tp": "8", "n_gpus": "8", "ep": "8"}
        bench |= {"dp_attn": "True", "request_rate_rps": "inf", "arrival": "all at t=0"}
        offline = conditions(row(**bench)).document
        assert offline["scheduler"]["attention_dp_timeout_iters"] == 60
        assert offline["kv_cache"]["allocator"] == "paged"

    def test_a_first_token_that_comes_with_others(self) -> None:
        """101 tokens of 10 ms after 100 ms: the tenth comes at 190 ms, the last at 1,100 ms."""
        run = {"mean_ttft_ms": 100, "mean_tpot_ms": 10, "completed": 3, "total_output_tokens": 303}
        assert together(run, 10) == {"mean_ttft_ms": 190, "mean_tpot_ms": pytest.approx(9.1)}
        assert together(run, 1) == {"mean_ttft_ms": 100, "mean_tpot_ms": 10}

    def test_lengths_known_by_their_mean(self) -> None:
        known = conditions(row(isl="OpenOrca mean 294.45", osl="290.3 (tok/s / samples/s)"))
        assert known.prompt == Lengths(294, 294, varied=True)
        assert known.output == Lengths(290, 290, varied=True)
        assert any("only the mean" in remark for remark in known.assumed)
        law = known.document["workload"]["prompt_tokens"]
        assert (law["kind"], law["mean"]) == ("lognormal", 294)
        assert conditions(row(isl="1,024", osl="200 (default)")).output == Lengths(200, 200)

    def test_means_of_texts_are_no_lengths(self) -> None:
        """ShareGPT's, of which a table states the means like numbers: no wave of requests ends all
        at once. The two other pairs of the same table are lengths."""
        triton = {"engine": "TensorRT-LLM + Triton tensorrtllm_backend"}
        texts = conditions(row(**triton, isl="202", osl="214"))
        assert texts.prompt == Lengths(202, 202, varied=True, p95=585.8)
        assert texts.output == Lengths(214, 214, varied=True, p95=535)
        assert any("ShareGPT" in remark for remark in texts.assumed)
        assert not any("only the mean" in remark for remark in texts.assumed)
        assert conditions(row(**triton, isl="467", osl="256")).output == Lengths(256, 256)
        assert conditions(row(isl="202", osl="214")).output == Lengths(214, 214)

    def test_settings_in_the_notes(self) -> None:
        known = conditions(row(notes="max-num-batched-tokens 16384, gpu-mem-util 0.85, and more"))
        assert known.document["scheduler"]["max_num_batched_tokens"] == 16384
        assert known.document["kv_cache"] == {"gpu_memory_utilization": 0.85}
        fraction = conditions(row(notes="kv frac 0.95 mostly"))
        assert fraction.document["kv_cache"] == {"gpu_memory_utilization": 0.95}

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"pp": "2", "n_gpus": "4", "dp_attn": "2", "tp": "1"}, "pipelines of 2 stages"),
            ({"ep": "4"}, "do not hold replicas of 2 x 1, with experts over 4"),
            ({"dp_attn": "4"}, "do not hold replicas of 2 x 4"),
            ({"tp": "P0x(tp2) D0x(tp2)", "n_gpus": "5"}, "no whole number of workers"),
            ({"tp": "P0x(tp8 etp2 ep2) D0x(tp8)"}, "laid out as 'tp8 etp2 ep2'"),
            ({"model": "Falcon-180B"}, "not in the catalogue"),
            ({"gpu": "V100"}, "not in the catalogue"),
            ({"gpu": "H1000"}, "not in the catalogue"),
            ({"tp": "x"}, "tp 'x': expected a number of at least 1"),
            ({"n_gpus": "0"}, "n_gpus '0': expected a number of at least 1"),
            ({"isl": "0"}, "prompt lengths of 0 tokens are none"),
            ({"value": "inf"}, "no positive figure"),
            ({"isl": "as in the dataset"}, "prompt lengths"),
            ({"osl": "up to 290"}, "output lengths"),
            ({"batch_or_concurrency": "many"}, "number of requests"),
            (
                {"arrival": "as it pleases"},
                "none of the known kinds: closed loop, all at t=0, static",
            ),
            ({"metric": "mean_tpot"}, "did you mean 'tpot_mean'"),
            ({"metric": "rate"}, "rates output_throughput, total_throughput"),
            ({"request_rate_rps": "2", "arrival": "Poisson", "n_requests": ""}, "is not stated"),
            ({"n_gpus": "3"}, "do not hold replicas"),
            ({"engine": "llama.cpp"}, "no preset"),
            (
                {"metric": "power_all_gpus", "unit": "mW"},
                "the unit 'mW' of power_all_gpus is none of ms, s, us",
            ),
            ({"metric": "power_all_gpus", "unit": "W"}, "is not predicted"),  # not of steady state
            ({"metric": "scheduled_rate", "unit": "req/s"}, "is a condition of the measurement"),
            ({"metric": "loadgen_score", "unit": "tok/s"}, "not predicted"),
            ({"value": "-3"}, "no positive figure"),
            ({"value": "fast"}, "no positive figure"),
        ],
    )
    def test_what_cannot_be_repeated_has_its_reason(
        self, changes: dict[str, str], reason: str
    ) -> None:
        found = case(row(**changes))
        assert reason in found.reason
        assert found.figure is None

    @pytest.mark.parametrize("notes", ["", "InferenceMAX protocol"])
    def test_a_stated_cache_format_is_taken_as_stated(self, notes: str) -> None:
        assert kv_format(conditions(row(kv_dtype="fp8", notes=notes))) == "fp8"

    @pytest.mark.parametrize(
        ("model", "p50", "p90", "p99"),
        [("llama2-70b-99.9", 250, 524, 926), ("mixtral-8x7b", 114, 283, 594)],
    )
    def test_the_tail_of_answers_agrees_with_the_percentiles_it_is_known_by(
        self, model: str, p50: float, p90: float, p99: float
    ) -> None:
        """Of a lognormal law with a 95th percentile of so many means, ratios of percentiles are
        those that the source publishes."""
        read = row(engine="TensorRT-LLM (MLPerf)", model=model)
        known = conditions(read, outcomes=True)
        assert any(f"{p50} (p50), {p90} (p90) and {p99} (p99)" in each for each in known.assumed)
        assert conditions(read).output.p95 is None
        assert known.output.p95 is not None
        z90, z95, z99 = norm.ppf([0.9, 0.95, 0.99])
        sigma = z95 - (z95**2 - 2 * np.log(known.output.p95 / known.output.mean)) ** 0.5
        assert np.exp(z90 * sigma) == pytest.approx(p90 / p50, rel=0.1)
        assert np.exp(z99 * sigma) == pytest.approx(p99 / p50, rel=0.1)

    @pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
    def test_a_pass_has_what_the_engine_chooses_by_itself_where_nothing_is_said(
        self, engine: str
    ) -> None:
        """8,192 tokens: what vLLM chooses on an H100, and the default of TensorRT-LLM's
        max_num_tokens (llmapi/llm_args.py, BuildConfig)."""
        known = conditions(row(engine=engine))
        assert known.document["scheduler"] == {"batching": "continuous"}
        assert load_scenario(known.document).scheduler.max_num_batched_tokens == 8192

    @pytest.mark.parametrize(
        ("engine", "version", "told"),
        [
            ("vllm", "0.6.2", "nothing is known of vllm 0.6.2: the nearest release, vLLM 0.8,"),
            ("vllm", "0.11.0", None),
            ("sglang", "0.4.3", "nothing is known of sglang 0.4.3"),
            ("sglang", "0.5.6", None),
            ("TensorRT-LLM", "0.12.0", "nothing is known of tensorrt-llm 0.12.0"),
            ("TensorRT-LLM", "1.0.0", None),
        ],
    )
    def test_a_release_without_a_preset_is_said(
        self, engine: str, version: str, told: str | None
    ) -> None:
        known = case(row(engine=engine, engine_version=version)).known
        assert known is not None
        found = [each for each in known.assumed if "nothing is known of" in each]
        assert len(found) == (told is not None)
        assert all(each.startswith(told or "") for each in found)

    def test_what_is_scored_is_what_a_run_predicts(self) -> None:
        """Also under an engine whose first tokens wait for the launch of the next prompts."""
        known = conditions(row(engine="sglang", engine_version="0.5.6"))
        predicted, summary = run(known), simulate(load_scenario(known.document)).summary
        assert not isinstance(predicted, str)
        numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
        assert numbers
        assert {key: predicted.figures[key] for key in numbers} == numbers

    def test_where_a_publication_is_known_better(self) -> None:
        old = {"engine_version": "0.6.1", "tp": "4", "n_gpus": "4"}
        factors = [
            found.figure and found.figure.factor
            for cells in (old, old | {"engine_version": "0.8.0"})
            for outcomes in (True, False)
            for found in (case(row(**STATIC | cells), outcomes=outcomes),)
        ]
        assert factors == [1, 1 / 4, 1 / 4, 1 / 4]  # only later results show it


class TestPresets:
    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({}, "vllm"),
            ({"engine": "SGLang"}, "sglang"),
            ({"engine": "trtllm", "engine_version": "1.0.0rc3"}, "tensorrt-llm"),
            (STATIC, "tensorrt-llm-0.9"),
            (STATIC | {"engine_version": "0.7.1", "model": "LLaMA 70B"}, "tensorrt-llm-0.9"),
            (STATIC | {"engine_version": "0.14.0", "arrival": "all at t=0"}, "tensorrt-llm-0.14"),
            (STATIC | {"engine_version": "0.17", "arrival": "all at t=0"}, "tensorrt-llm-bench"),
            (
                STATIC | {"engine_version": "0.20", "arrival": "all at t=0"},
                "tensorrt-llm-pytorch",
            ),
            ({"engine": "TensorRT-LLM + Triton", "engine_version": "0.14"}, "tensorrt-llm-triton"),
        ],
    )
    def test_engine_release_and_driver_choose(self, changes: dict[str, str], name: str) -> None:
        assert engine_name(conditions(row(**changes)).engine) == name

    def test_grouped_heads_that_are_read_again_are_inferred(self) -> None:
        changes = STATIC | {"engine_version": "0.7.1", "model": "LLaMA 70B"}
        found = conditions(row(**changes), outcomes=True)
        assert engine_name(found.engine) == "tensorrt-llm-0.7-groups-of-8"

    @pytest.mark.parametrize(
        ("version", "notes", "ahead", "marlin"),
        [
            ("0.11.0", "", None, False),
            ("0.11.0", "async-scheduling", True, False),
            ("0.11.0", "InferenceMAX, async-scheduling", True, True),
            ("0.15.0", "InferenceMAX", None, True),
        ],
    )
    def test_what_is_known_of_vllm_apart_from_its_release(
        self, version: str, notes: str, ahead: bool | None, marlin: bool
    ) -> None:
        oss = {"model": "openai/gpt-oss-120b", "engine_version": version, "notes": notes}
        document = conditions(row(**oss)).document
        assert document["engine"] == f"vllm@{version}"
        assert document["scheduler"].get("async_scheduling") is ahead
        assert document.get("moe_backend") == ("marlin" if marlin else None)


class TestFacts:
    def test_every_fact_changes_a_row_and_says_how_it_is_known(self) -> None:
        for each in facts():
            assert each.basis in BASES
            assert each.where
            assert each.why
            assert each.source
            assert each.cells or each.settings
            assert set(each.where) <= {*NEEDED, *OPTIONAL}
            assert set(each.cells) <= {*NEEDED, *OPTIONAL, "streamed", "warmed"}

    def test_what_was_read_off_results_is_left_out_of_the_headline(self) -> None:
        cells = {"engine": "trtllm", "source_path": "silicon_sample.csv", "notes": "aic-auto-gap"}
        stated, inferred = (conditions(row(**cells), outcomes=each) for each in (False, True))
        clients = [each.document["workload"]["arrivals"] for each in (stated, inferred)]
        assert [each["concurrency"] for each in clients] == [4, 5]
        assert stated.under({"workload.arrivals.concurrency": 5}).scenario == inferred.scenario
        assert not any("one request more" in each for each in stated.assumed)

    def test_both_predictions_are_given(self, tmp_path: Path) -> None:
        """A request more in flight makes the first token come later; rows without such a fact have
        one prediction."""
        cells = {"engine": "trtllm", "metric": "ttft_mean", "value": "500"}
        gap = {"source_path": "silicon_sample.csv", "notes": "aic-auto-gap", "n_requests": ""}
        path = tmp_path / "table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*CLOSED, "source_path", "notes"])
            table.writeheader()
            table.writerows([CLOSED | cells | gap, CLOSED | cells])
        rows = score_all([path], jobs=1)
        inferred, stated = to_document(rows)["rows"]
        assert inferred["inferred"] > inferred["predicted"]
        assert stated["inferred"] is None
        [errors] = [group.errors["ttft"] for group in groups(rows, kind)]
        assert errors.inferred is not None
        assert (errors.inferred.count, errors.count) == (1, 2)
        assert errors.inferred.signed_median > errors.signed_median
        assert "as inferred" in markdown(summary(rows))
        assert "read off the measured results" in as_text(view(rows))

    def test_servers_that_were_not_warmed_up_are_a_kind_of_their_own(self, tmp_path: Path) -> None:
        """By the day of a run, and only for first tokens."""
        cells = {"model": "deepseek-ai/DeepSeek-V3", "source_path": "silicon_sample.csv"}
        servers = {"engine": "sglang", "gpu": "H200-SXM-141GB", "tp": "8", "n_gpus": "8"}
        days = ("B 2025-11-18", "B 2026-01-26", "B 2026-01-27", "B 2026-03-25", "B")
        runs = [
            CLOSED | cells | servers | {"completeness": day, "metric": "ttft_mean"} for day in days
        ]
        runs.append(runs[0] | {"metric": "tpot_mean"})
        path = tmp_path / "table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*CLOSED, "source_path", "completeness"])
            table.writeheader()
            table.writerows(runs)
        scored = score_all([path], jobs=1)
        cold = "closed loop without a warm-up, sglang, experts"
        warm = "closed loop, sglang, experts"
        assert [kind(each) for each in scored] == [
            *[(cold,)] * 2,
            *[(warm,)] * 3,
            (warm,),
        ]
        driven = [each.at.driven for each in scored if each.at is not None]
        assert driven == [NOT_WARMED] * 2 + ["closed loop"] * 3 + [NOT_WARMED]

    def test_a_sum_of_numbers_is_one_of_the_row(self) -> None:
        cells = {"engine": "trtllm", "gpu": "H200-SXM-141GB", "model": "deepseek-ai/DeepSeek-V3"}
        read = row(**cells, tp="8", n_gpus="8", isl="1024", batch_or_concurrency="16")
        found = facts_of(read, outcomes=False)
        assert corrected(read, found)["kv_dtype"] == "fp8"
        tokens = conditions(read).document["scheduler"]["max_num_batched_tokens"]
        assert tokens == 1024 + 16 + 64


class TestRepeats:
    """Scenarios are the measurement: what is known of their outcome by hand."""

    def run(self, **changes: str) -> Any:
        return simulate(load_scenario(conditions(row(**changes)).document))

    def test_a_static_batch_is_one_batch(self) -> None:
        result = self.run(**STATIC)
        table = result.requests
        assert len(table) == 8
        assert table["finish_s"].nunique() == 1
        assert (table["scheduled_s"] == 0).all()

    def test_a_closed_loop_never_has_more_in_flight(self) -> None:
        result = self.run()
        table = result.requests
        for arrival in table["arrival_s"]:
            assert ((table["arrival_s"] <= arrival) & (table["finish_s"] > arrival)).sum() <= 4
        assert len(table) == 40

    def test_an_offline_run_beyond_memory_waits_and_never_preempts(self) -> None:
        offline = STATIC | {"engine_version": "0.17", "arrival": "all at t=0", "isl": "2000"}
        result = self.run(**offline | {"n_requests": "300"})
        assert result.summary["infersim"]["preemptions"] == 0
        assert result.summary["infersim"]["batch"]["peak_running"] < 300
        assert result.summary["completed"] == 300


class TestErrors:
    def scored(self, pairs: list[tuple[float, float]]) -> list[Scored]:
        return [Scored(row(), None, "vllm", "tpot", m, p, "") for m, p in pairs]

    def test_by_hand(self) -> None:
        found = errors_of(self.scored([(1, 1.1), (2, 1.8), (4, 4.8), (10, 10.3)]))
        assert found.count == 4
        assert found.signed_median == pytest.approx(6.5)
        assert found.median == pytest.approx(10)
        assert found.p90 == pytest.approx(10 + 0.7 * 10)
        assert found.rank_correlation == pytest.approx(1)

    def test_an_order_reversed(self) -> None:
        assert errors_of(self.scored([(1, 3), (2, 2), (3, 1)])).rank_correlation == -1
        assert errors_of(self.scored([(1, 3), (2, 2)])).rank_correlation is None

    def test_skipped_rows_are_counted_with_their_reasons(self) -> None:
        rows = [*self.scored([(1, 1.1)]), Scored(row(), None, "", None, None, None, "why not")]
        (group,) = groups(rows, source)
        assert (group.scored, group.skipped) == (1, {"why not": 1})
        assert group.errors["tpot"].count == 1

    def test_kinds_tell_multi_head_from_grouped(self) -> None:
        for model, name in (("LLaMA 7B", "multi-head"), ("Mistral 7B", "grouped queries")):
            static = row(**STATIC | {"model": model})
            scored = Scored(static, conditions(static), "x", None, None, None, "")
            assert kind(scored) == (f"static batch, {name}",)


class TestExperts:
    """Mixtures of experts: their formats, and how publishers state who holds them."""

    def known(self, **changes: str) -> Any:
        found = case(row(**changes)).known
        assert found is not None
        return found

    def test_formats_are_those_of_the_checkpoint(self) -> None:
        oss = self.known(model="openai/gpt-oss-120b", weight_dtype="gemm=nvfp4 moe=nvfp4")
        formats = oss.document["precision"]
        assert (formats["weights"], formats["experts"]) == ("bf16", "mxfp4")
        assert any("mxfp4" in each for each in oss.assumed)
        deepseek = self.known(model="deepseek-ai/DeepSeek-V3", weight_dtype="gemm=fp8 moe=fp8")
        assert deepseek.document["precision"]["weights"] == "fp8-block"
        assert "experts" not in deepseek.document["precision"]  # alike
        assert deepseek.document["precision"]["activations"] == "fp8"

    def test_all_that_is_known_of_a_row_holds(self) -> None:
        """A model's formats and a publication's client are known apart, and apply together."""
        cells = {"engine": "trtllm", "source_path": "silicon_sample.csv", "notes": "aic-auto-gap"}
        read = row(model="openai/gpt-oss-120b", **cells)
        both = conditions(read, outcomes=True).document
        assert both["precision"]["experts"] == "mxfp4"
        assert both["scheduler"]["max_num_batched_tokens"] == 100 + 4 + 1500
        assert len(facts_of(read, outcomes=True)) == 5
        maxed = conditions(
            row(engine="trtllm", model="deepseek-ai/DeepSeek-V3", notes="InferenceMAX")
        )  # blocks are scaled as the model runs
        assert maxed.document["precision"]["quantisation"] == "dynamic"

    def test_servers_that_a_tool_started(self) -> None:
        """It gives an iteration a prompt, a token of each client and 1,500 more; prompts
        of TensorRT-LLM are not cut, and those of Qwen3-235B have one length, whatever notes say."""
        tool = {"source_path": "silicon_sample.csv", "notes": "aic-auto-gap analysis"}
        served = self.known(engine="trtllm", **tool, batch_or_concurrency="64").document
        prompt = served["workload"]["prompt_tokens"]["value"]
        assert served["scheduler"]["max_num_batched_tokens"] == prompt + 64 + 1500
        assert not served["scheduler"]["chunked_prefill"]
        notes = "lengths uniform in [0.8,1.0]*nominal (the usual protocol of this source)"
        qwen = {"engine": "vllm", "model": "Qwen/Qwen3-235B-A22B-FP8", "notes": notes}
        supposed = self.known(**qwen).document
        assert supposed["workload"]["prompt_tokens"]["kind"] == "uniform"
        for engine in ("vllm", "sglang"):
            cells = qwen | {"engine": engine, "source_path": "silicon_sample.csv"}
            found = self.known(**cells).document
            assert found["workload"]["prompt_tokens"]["kind"] == "fixed"
            assert load_scenario(found).scheduler.chunked_prefill
            assert found["precision"]["kv_cache"] == "fp8"
        assert supposed["precision"]["kv_cache"] == "bf16"

    @pytest.mark.parametrize(
        ("engine", "version", "ahead"),
        [
            *(("vllm", "0.14.1", True), ("vllm", "0.18.0", True), ("vllm", "1.0.0", True)),
            *(("vllm", "0.13.0", False), ("vllm", "0.2.1", False), ("vllm", "", True)),
            ("trtllm", "1.0.0rc3", True),
        ],
    )
    def test_releases_that_plan_ahead(self, engine: str, version: str, ahead: bool) -> None:
        """vLLM does so from 0.14 on: it is a choice of the release, as of a run."""
        known = self.known(engine=engine, engine_version=version)
        assert load_scenario(known.document).scheduler.plans_ahead == ahead

    @pytest.mark.parametrize(
        ("cells", "layout"),
        [
            ({"n_gpus": "4", "tp": "4", "ep": "4", "dp_attn": "1"}, (4, 1, 4)),
            ({"n_gpus": "8", "tp": "8", "ep": "8", "dp_attn": "True"}, (1, 8, 8)),
            ({"n_gpus": "8", "tp": "8", "ep": "not stated", "dp_attn": "enabled"}, (1, 8, 8)),
            ({"n_gpus": "4", "tp": "1", "ep": "4", "dp_attn": "4"}, (1, 4, 4)),
            ({"n_gpus": "8", "tp": "2", "ep": "", "dp_attn": ""}, (2, 1, 1)),
        ],
    )
    def test_layouts(self, cells: dict[str, str], layout: tuple[int, int, int]) -> None:
        known = self.known(model="Qwen3-235B-A22B", **cells)
        assert pool(known) == layout
        fleet = known.document["fleet"][0]
        assert fleet["replicas"] * layout[0] * layout[1] == int(cells["n_gpus"])

    def test_clients_that_keep_every_slot_busy(self) -> None:
        """As many requests as slots in flight, prompts of a service whose lengths are published."""
        known = self.known(
            arrival="all at once, max_num_seqs running, steady state",
            isl="lm-arena-chat prompts (lengths not published)",
            n_requests="64",
        )
        assert (known.driver, known.size, known.prompt.mean) == ("closed", 4, 354)
        assert requests(known) == 64
        assert any("LMSYS-Chat-1M" in each for each in known.assumed)

    def test_settings_that_a_source_starts_its_servers_with(self) -> None:
        """Marlin for gpt-oss, no data ranks for MiniMax, SGLang's chunk and memory."""
        maxed = {"engine": "vllm", "engine_version": "0.18.0", "gpu": "H100-SXM5-80GB"}
        oss = {"model": "openai/gpt-oss-120b", "notes": "InferenceMAX protocol"}
        assert self.known(**maxed, **oss).document["moe_backend"] == "marlin"
        assert "moe_backend" not in self.known(**maxed | oss | {"notes": ""}).document
        ranks = {"model": "MiniMaxAI/MiniMax-M2.5", "n_gpus": "16", "tp": "4", "ep": "16"}
        known = self.known(**maxed, **ranks, dp_attn="4")
        assert (known.gpus, pool(known)) == (4, (4, 1, 4))
        sglang = {"engine": "sglang", "gpu": "H200-SXM-141GB", "model": "deepseek-ai/DeepSeek-V3"}
        cut = self.known(**sglang, tp="8", n_gpus="8")
        assert cut.document["scheduler"]["max_num_batched_tokens"] == 32768
        assert cut.document["kv_cache"] == {
            "gpu_memory_utilization": 0.82,
            "enable_prefix_caching": False,
        }

    @pytest.mark.parametrize(
        ("version", "gpu", "backend"),
        [
            ("0.5.6.post2", "H200-SXM-141GB", "triton"),
            ("0.5.9", "H200-SXM-141GB", None),  # of releases of the tool that ask for e4m3
            ("0.5.6.post2", "B200-SXM", None),  # where e5m2 does not bring Triton
        ],
    )
    def test_a_cache_in_e5m2_brings_attention_by_triton(
        self, version: str, gpu: str, backend: str | None
    ) -> None:
        cells = {"engine": "sglang", "engine_version": version, "gpu": gpu}
        model = {"model": "Qwen/Qwen3-235B-A22B-FP8", "source_path": "silicon_sample.csv"}
        served = conditions(row(**cells, **model), outcomes=True)
        assert served.document.get("attention_backend") == backend
        assert kv_format(served) == "fp8"
        assert "attention_backend" not in self.known(**cells, **model).document

    def test_random_tokens_choose_experts_unevenly(self) -> None:
        """As unevenly as was measured of them, in clients' and offline runs of models with experts;
        published data sets are of texts."""
        model = {"model": "Qwen3-235B-A22B"}
        found = self.known(**model).document["model"]
        assert found == {"path": "qwen3-235b-a22b", "expert_skew": RANDOM_SKEW}
        assert self.known().document["model"] == "llama-3.1-70b"
        energy = self.known(**model, source_repo="ml-energy/leaderboard")
        assert energy.document["model"] == "qwen3-235b-a22b"
        law = chances(128, 8, RANDOM_SKEW)
        chance = np.sort(np.repeat(law.chance, law.number.astype(int)))
        ranks = np.arange(1, len(chance) + 1)
        gini = ((2 * ranks - len(chance) - 1) * chance).sum() / (len(chance) * chance.sum())
        assert 0.29 < gini < 0.38

    def test_static_scales_where_the_publication_is_known_for_them(self) -> None:
        named = {"engine": "trtllm", "notes": "InferenceMAX: lengths uniform in [0.8,1.0]*nominal"}
        assert self.known(**named).document["precision"]["quantisation"] == "static"
        assert self.known().document["precision"]["quantisation"] == "dynamic"


class TestTable:
    def test_power_and_energy_are_those_of_the_steady_state(self) -> None:
        steady = {"arrival": "all at once, max_num_seqs running, steady state"}
        power = case(row(metric="power_all_gpus", unit="W", **steady)).figure
        assert power is not None
        assert (power.quantity, power.key, power.factor) == ("power", "steady_power", 1.0)
        energy = case(row(metric="energy_per_output_token", unit="J", **steady)).figure
        assert energy is not None
        assert (energy.quantity, energy.key) == ("energy", "steady_energy")
        whole = case(row(metric="energy_per_output_token", unit="J")).figure
        assert whole is not None
        assert whole.key == "joules_per_output_token"

    def test_energy_is_power_over_the_tokens_of_a_second(self) -> None:
        """While all clients are busy, where the rate by Little's law is nearly that of tokens."""
        steady = {"arrival": "all at once, max_num_seqs running, steady state"}
        small = {"batch_or_concurrency": "8", "n_requests": "80", "isl": "200", "osl": "100"}
        known = conditions(row(**steady, **small))
        found = run(known)
        assert not isinstance(found, str)
        power, energy = (found.figures[key] for key in ("steady_power", "steady_energy"))
        rate = found.figures["steady_rate"]
        assert power is not None
        assert rate is not None
        assert energy == pytest.approx(power / rate, rel=0.05)
        assert 140 < power / known.gpus < 700

    def test_units(self) -> None:
        assert measured(row(value="18.0", unit="ms")) == pytest.approx(0.018)
        assert measured(row(value="1,250.5", unit="tok/s")) == pytest.approx(1250.5)

    def test_scored_from_a_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", {}, {"metric": "ttft_mean"}, {"model": "Falcon-180B"})
        tpot, ttft, moe = score_all([path], jobs=1)
        assert tpot.error is not None
        assert abs(tpot.error) < 0.2
        assert ttft.predicted is not None
        assert 0.01 < ttft.predicted < 0.2
        assert moe.error is None
        assert (tpot.row.line, moe.row.line) == (2, 4)
        found = to_document([tpot, ttft, moe])
        assert (found["scored"], found["skipped"]) == (2, 1)
        assert found["rows"][2]["reason"] == "the model Falcon-180B is not in the catalogue"
        assert json.loads(json.dumps(found, allow_nan=False)) == found

    def test_on_the_command_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", {}, {"model": "Falcon-180B"})
        shown = CliRunner().invoke(app, ["score", str(path), "--jobs", "1"])
        assert shown.exit_code == 0
        assert "1 of 2 rows predicted" in shown.stdout
        assert max(map(len, shown.stdout.splitlines())) <= 88
        assert "Not predicted, and why" in shown.stdout
        assert "1  the model Falcon-180B is not in the catalogue" in shown.stdout
        found = json.loads(
            CliRunner().invoke(app, ["score", str(path), "--json", "--jobs", "1"]).stdout
        )
        (group, moe) = found["groups"]
        assert group["model"] == "meta-llama/Llama-3.1-70B-Instruct"
        assert group["errors"]["tpot"]["count"] == 1
        assert moe["reasons"] == {"the model Falcon-180B is not in the catalogue": 1}

    def test_without_any_prediction_the_command_fails(self, tmp_path: Path) -> None:
        """After it has printed why, and written its page."""
        table = write(tmp_path / "t.csv", {"model": "Falcon-180B"})
        page = tmp_path / "page.md"
        done = CliRunner().invoke(app, ["score", str(table), "--jobs", "1", "-o", str(page)])
        assert done.exit_code == 1
        assert "1  the model Falcon-180B is not in the catalogue" in done.stdout
        assert "error: no row was predicted: the reasons are above" in done.stderr
        assert "0 of 1 published rows" in page.read_text()

    def test_models_with_experts_can_be_left_out(self, tmp_path: Path) -> None:
        cells = [{}, {"model": "openai/gpt-oss-120b"}, {"model": "Falcon-180B"}]
        path = write(tmp_path / "t.csv", *cells)
        dense = score_all([path], jobs=1, dense=True)
        assert [row.row["model"] for row in dense] == [
            row.row["model"] for row in score_all([path], jobs=1) if "oss" not in row.row["model"]
        ]
        page = tmp_path / "page.md"
        args = ["score", str(path), "--jobs", "1", "--dense", "-o", str(page)]
        assert CliRunner().invoke(app, args).exit_code == 0
        assert "tables of dense models. Made by `infersim score --dense`" in page.read_text()
        none = write(tmp_path / "n.csv", {"model": "openai/gpt-oss-120b"})
        done = CliRunner().invoke(app, ["score", str(none), "--dense"])
        assert done.exit_code == 1
        assert done.stderr == "error: the tables have no rows of dense models\n"

    def test_few_rows_are_shown_under_each_way_of_sending_requests(self, tmp_path: Path) -> None:
        cells = {"n_requests": "", "isl": "256", "osl": "32", "metric": "ttft_mean"}
        path = write(tmp_path / "t.csv", cells, {"isl": "256", "osl": "32"})
        shown = as_text(view(rows := score_all([path], jobs=1)))
        unknown, known = rows
        assert unknown.ways
        assert not known.ways
        least, most = (show_time(end(unknown.ways.values())) for end in (min, max))
        assert f"predicted {least} to {most}, 90 % band" in shown
        for name in unknown.ways:
            assert shown.count(f"  {name}") >= 2  # with its figure, and with its errors
        assert f"predicted {show_time(known.predicted or 0)} (" in shown
        assert "1  10 requests per client" in shown
        described = to_document(rows)["clients"]
        assert [group["client"] for group in described] == [
            "clients that are not described",
            "clients that are described",
        ]

    def test_a_page_of_markdown(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", {}, {"tp": "8", "n_gpus": "8"}, {"model": "A|B"})
        page = tmp_path / "page.md"
        args = ["score", str(path), "--jobs", "1", "--output", str(page)]
        assert CliRunner().invoke(app, args).exit_code == 0
        text = page.read_text()
        assert "2 of 3 published rows are predicted" in text
        assert "1 rows: the model A|B is not in the catalogue" in text
        fitted = next(line for line in text.splitlines() if "host time of `vllm`" in line)
        assert "2 and 4 GPUs" in fitted
        lost = ["score", str(path), "--jobs", "1", "-o", str(tmp_path / "no" / "page.md")]
        assert CliRunner().invoke(app, lost).exit_code == 1

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "no column 'engine'"),
            ("engine,gpu\n", "no column 'engine_version'"),
            (",".join((*NEEDED, "engine")) + "\n", "there twice"),
            (",".join(NEEDED) + "\na,b\n", ":2: 2 cells under 15 columns"),
            (",".join(NEEDED) + "\n" + "x" * 200_000, "field larger"),
        ],
    )
    def test_broken_files(self, tmp_path: Path, text: str, complaint: str) -> None:
        path = tmp_path / "t.csv"
        path.write_text(text)
        with pytest.raises(TraceError, match=complaint):
            read_table(path)
        assert CliRunner().invoke(app, ["score", str(path)]).exit_code == 2

    def test_missing_and_binary_files(self, tmp_path: Path) -> None:
        binary = tmp_path / "b.csv"
        binary.write_bytes(b"\xff\xfe\x00")
        for path in (tmp_path / "none.csv", tmp_path, binary):
            with pytest.raises(TraceError, match=path.name):
                score_all([path], jobs=1)


LOG_META = {
    "model": "meta-llama/Llama-3.1-8B",
    "vllm_version": "0.19.0",
    "engine_kwargs": {
        "tensor_parallel_size": 1,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "max_model_len": 4096,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
    },
    "kv_cache": {"num_gpu_blocks": 1000, "block_size": 16, "enable_prefix_caching": True},
    "hardware": {"device_name": "NVIDIA H100 80GB HBM3", "device_count": 1},
}


def with_settings(**changes: object) -> dict[str, Any]:
    """The log's meta data with other settings of the engine."""
    settings: Any = LOG_META["engine_kwargs"]
    return LOG_META | {"engine_kwargs": settings | changes}


def write_log(folder: Path, requests: list[dict[str, Any]], meta: object = LOG_META) -> Path:
    folder.mkdir()
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "requests.jsonl").write_text("\n".join(json.dumps(r) for r in requests))
    return folder


def request(at: float, **changes: float | None) -> dict[str, Any]:
    """Queued 1,000 s on another clock; its first of 11 tokens after 30 ms, one every 8 ms."""
    return {
        "input_toks": 500,
        "output_toks": 11,
        "arrival_time": 1.7e9 + at,
        "queued_ts": 1000 + at,
        "first_token_ts": 1000.03 + at,
        "last_token_ts": 1000.11 + at,
    } | changes


class TestReplay:
    def test_the_same_requests_again(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log", [request(float(at)) for at in range(5)])
        rows = {scored.row["metric"]: scored for scored in score_all([log], jobs=1)}
        assert rows["ttft_mean"].measured == pytest.approx(0.03)
        assert rows["tpot_mean"].measured == pytest.approx(0.008)
        assert rows["e2el_p90"].measured == pytest.approx(0.11)
        tpot = rows["tpot_mean"].predicted
        assert tpot is not None
        assert tpot == pytest.approx(0.0065, rel=0.2)
        # alone in the engine: prefill and the host of one request, nothing of a server
        ttft = rows["ttft_mean"].predicted
        assert ttft is not None
        assert 0.008 < ttft < 0.025
        assert rows["ttft_mean"].known is not None
        assert rows["ttft_mean"].known.assumed == ("its prefix cache is left out",)

    def test_an_unknown_gpu_is_a_reason(self, tmp_path: Path) -> None:
        meta = LOG_META | {"hardware": {"device_name": "V100", "device_count": 1}}
        rows = score_all([write_log(tmp_path / "log", [request(0)], meta)], jobs=1)
        assert {scored.reason for scored in rows} == {"the GPU V100 is not in the catalogue"}

    @pytest.mark.parametrize(
        ("requests", "meta", "complaint"),
        [
            ([], LOG_META, "holds no request"),
            ([request(0, queued_ts=float("nan"))], LOG_META, "jsonl:1: queued_ts"),
            ([{"input_toks": 3.0}], LOG_META, "no .output_toks. in this row"),
            ([request(0, last_token_ts=1.0)], LOG_META, "last_token_ts is 1.0; allowed: first_tok"),
            ([request(0), request(1, output_toks=0)], LOG_META, "jsonl: 1 requests failed"),
            ([request(0)], {"model": "x"}, "does not say on which GPU it ran .*; add --gpu NAME"),
            ([request(0)], [1], "not a JSON object"),
            (
                [request(0)],
                LOG_META | {"engine_kwargs": "x"},
                "engine_kwargs is 'x'; allowed: a map",
            ),
            ([request(0)], LOG_META | {"hardware": 3}, "hardware is 3; allowed: a mapping"),
            (
                [request(0)],
                LOG_META | {"kv_cache": {"num_gpu_blocks": "7"}},
                "num_gpu_blocks is '7'",
            ),
            ([request(0)], LOG_META | {"vllm_version": 3}, "vllm_version is 3; allowed: a text"),
            (
                [request(0)],
                with_settings(max_model_len=1.5),
                "max_model_len is 1.5; allowed: a whole",
            ),
            ([request(0)], with_settings(dtype="int3"), "dtype is 'int3'; known: bfloat16"),
        ],
    )
    def test_broken_logs(
        self, tmp_path: Path, requests: list[dict[str, Any]], meta: object, complaint: str
    ) -> None:
        with pytest.raises(TraceError, match=complaint):
            score_all([write_log(tmp_path / "log", requests, meta)], jobs=1)

    def test_a_damaged_text_is_one_clear_error(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log", [request(0)])
        (log / "meta.json").write_bytes(b'{"model": "\xff\xfe"}')
        with pytest.raises(TraceError, match=r"meta\.json:1: .*UTF-8"):
            score_all([log], jobs=1)

    def test_an_older_log_is_taken_with_what_it_lacks(self, tmp_path: Path) -> None:
        requests = [request(float(at), arrival_time=None) for at in range(5)]
        older = {"model": "meta-llama/Llama-3.1-8B", "engine_kwargs": {"max_num_seqs": 8}}
        log = write_log(tmp_path / "log", requests, older)
        given = Given(gpu="h100-sxm", num_gpu_blocks=1000)
        rows = {scored.row["metric"]: scored for scored in score_all([log], jobs=1, given=given)}
        tpot = rows["tpot_mean"]
        assert tpot.reason == ""
        assert tpot.predicted == pytest.approx(0.0065, rel=0.2)
        assert tpot.known is not None
        told = "; ".join(tpot.known.assumed)
        for expected in (
            "max_num_batched_tokens is not stated",
            "block_size is not stated",
            "max_model_len is not stated: 511",
            "no row has an arrival_time",
        ):
            assert expected in told
        assert "max_num_seqs" not in told
        assert "KV blocks" not in told
        (log / "meta.json").unlink()
        with pytest.raises(
            TraceError, match="does not say which model it served; add --model NAME"
        ):
            score_all([log], jobs=1, given=given)
        both = given._replace(model="llama-3.1-8b", num_gpu_blocks=None)
        (found, *_) = score_all([log], jobs=1, given=both)
        assert found.reason == ""
        assert found.known is not None
        assert any("KV blocks are not stated" in each for each in found.known.assumed)

    def test_the_command_passes_on_what_is_given(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log", [request(float(at)) for at in range(3)], {})
        options = ["--gpu", "h100-sxm", "--model", "llama-3.1-8b", "--num-gpu-blocks", "1000"]
        done = CliRunner().invoke(app, ["score", str(log), "--json", *options])
        assert done.exit_code == 0, done.output
        assert all(row["predicted"] for row in json.loads(done.stdout)["rows"])
        done = CliRunner().invoke(app, ["score", str(log), "--json"])
        assert done.exit_code == 2
        assert "add --gpu NAME" in done.output

    def test_a_quantised_log_is_predicted_as_such(self, tmp_path: Path) -> None:
        rows = score_all(
            [write_log(tmp_path / "a", [request(0)], with_settings(quantization="fp8"))], jobs=1
        )
        assert rows[0].known is not None
        assert rows[0].known.weights == "fp8"
        rows = score_all(
            [write_log(tmp_path / "b", [request(0)], with_settings(quantization="awq"))], jobs=1
        )
        assert "quantization awq does not tell" in rows[0].reason


@pytest.mark.slow
@pytest.mark.skipif(not MEASURED.exists(), reason="the published measurements are not at hand")
class TestPublished:
    """The bounds that the project sets itself on the published measurements it knows."""

    def errors(self, *names: str) -> dict[str, Any]:
        rows = score_all([MEASURED / name for name in names], jobs=2)
        return {group.name[0]: group.errors for group in groups(rows, kind)}

    def test_static_batches_and_batch_1(self) -> None:
        found = self.errors("static_batch_trtllm.csv", "batch1_gptfast.csv")
        heads = found["static batch, multi-head"]["throughput"]
        groups_of_heads = found["static batch, grouped queries"]["throughput"].inferred
        for errors in (heads, groups_of_heads):
            assert (errors.median <= 8, errors.p90 <= 22) == (True, True)
        assert found["batch 1, 16 bits"]["throughput"].median <= 8
        assert found["batch 1, 16 bits"]["throughput"].p90 <= 15
        assert found["batch 1, quantised"]["throughput"].median <= 12
        assert found["batch 1, quantised"]["throughput"].p90 <= 25

    @pytest.mark.thorough
    def test_closed_loop_and_online(self) -> None:
        found = self.errors("closed_loop.csv", "online_trtllm.csv")
        vllm, served = found["closed loop, vllm"], found["closed loop, tensorrt-llm"]
        assert (vllm["tpot"].median <= 12, vllm["tpot"].p90 <= 20) == (True, True)
        assert (vllm["ttft"].median <= 5, vllm["ttft"].p90 <= 15) == (True, True)
        assert (served["tpot"].median <= 5, served["tpot"].p90 <= 15) == (True, True)
        # a request more in flight, which only results show, is most of what the stated ones lack
        assert served["ttft"].inferred.median <= 17 < served["ttft"].median <= 40
        for errors in (vllm, served):
            assert errors["tpot"].rank_correlation >= 0.985
        online = found["online, tensorrt-llm-triton"]
        assert (online["ttft"].median <= 10, online["ttft"].p90 <= 25) == (True, True)
        assert (online["itl"].median <= 8, online["itl"].p90 <= 15) == (True, True)

    def test_a_replay(self) -> None:
        rows = score_all([MEASURED / "vllm_rtx4090_llama-3.1-8b"], jobs=1)
        errors = {scored.row["metric"]: scored.error for scored in rows}
        assert all(error is not None for error in errors.values())
        assert abs(errors["tpot_mean"] or 1) <= 0.05
        assert abs(errors["e2el_mean"] or 1) <= 0.05
        assert abs(errors["ttft_mean"] or 1) <= 0.10


def test_what_does_not_fit_into_a_line_goes_on_further_in(tmp_path: Path) -> None:
    long = "the nightly build of a release whose name is as long as " * 2
    shown = as_text(view(score_all([write(tmp_path / "t.csv", STATIC | {"engine": "vllm",
        "engine_version": long.strip()})], jobs=1)))  # fmt: skip
    lines = shown.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("t.csv, vllm, the night"))
    assert lines[first + 1].startswith("    ")
    assert lines[first + 2].startswith(("    ", "  throughput "))
