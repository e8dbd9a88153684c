"""Limits of an iteration that TensorRT-LLM's own benchmark sets, by its list and by its rules."""

from __future__ import annotations

import pytest

from calibrate.scoring.bench_limits import (
    BenchLimits,
    benchmarked,
    capacity,
    limited,
    rounded,
    ruled,
    tuned,
)
from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.table import NEEDED, OPTIONAL, Row
from sim import catalog
from sim.memory.capacity import Capacity
from sim.pools import prepare_pool
from sim.scenario import load_scenario

OFFLINE = {
    "engine": "TensorRT-LLM",
    "engine_version": "0.17",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "1",
    "tp": "1",
    "pp": "1",
    "model": "LLaMA-v3.1-8B",
    "weight_dtype": "fp8",
    "kv_dtype": "fp8",
    "isl": "1000",
    "osl": "1000",
    "batch_or_concurrency": "engine max (KV/max_batch bound)",
    "request_rate_rps": "inf",
    "n_requests": "3000",
    "arrival": "all at t=0",
    "metric": "output_throughput",
    "value": "1000",
    "unit": "out_tok/s",
}


def known(**changes: str) -> Conditions:
    cells = dict.fromkeys((*NEEDED, *OPTIONAL), "") | OFFLINE | changes
    return conditions(Row("table.csv", 2, cells))


def scheduler(found: Conditions) -> tuple[int, int]:
    limits = found.document["scheduler"]
    return limits["max_num_seqs"], limits["max_num_batched_tokens"]


def prepared(found: dict[str, object]) -> Capacity:
    """The memory of the one pool of a scenario."""
    scenario = load_scenario(found)
    return prepare_pool(scenario, scenario.only_pool).capacity


class TestList:
    def test_by_model_and_ranks(self) -> None:
        """The 1,024 tokens of four GPUs bind before the 2,048 requests do."""
        cells = {"engine_version": "0.14.0", "model": "LLaMA-v3.1-70B", "n_gpus": "4", "tp": "4"}
        found = benchmarked(known(**cells, isl="128", osl="128"))
        assert scheduler(found) == (1024, 1024)
        assert any("2,048 requests and 1,024 tokens" in each for each in found.assumed)

    def test_places_are_those_of_the_list(self) -> None:
        """Memory for long requests binds before them, and less of it is left."""
        found = benchmarked(known(engine_version="0.14.0", isl="20000", osl="2000"))
        assert scheduler(found) == (2048, 8192)

    def test_an_entry_of_one_length(self) -> None:
        """4,096 tokens have 2,048 places on two GPUs, of which 1,024 tokens let as many run; what
        the others keep is taken from the cache. All other lengths have 256."""
        cells = {"engine_version": "0.14.0", "model": "LLaMA-v3.1-70B", "n_gpus": "2", "tp": "2"}
        own = known(**cells, isl="2048", osl="2048", notes="kv frac 0.95 mostly")
        long, other = benchmarked(own), benchmarked(known(**cells, isl="500", osl="2000"))
        assert scheduler(other) == (256, 1024)
        assert scheduler(long) == (1024, 1024)
        share = long.document["kv_cache"]["gpu_memory_utilization"]
        assert share < 0.95
        beyond = 2 * 1024 * 128_256 * 4  # copies of so many logits
        pool = prepared(limited(own, 1024, 1024).document)
        expected = 0.95 * (1 - beyond / (pool.memory - pool.taken))
        assert share == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(
        "cells",
        [
            {"engine_version": "0.14.0", "n_gpus": "2", "tp": "2"},
            {"engine": "TensorRT-LLM + Triton"},
            {"engine": "TensorRT-LLM (MLPerf harness)", "model": "llama2-70b-99"},
            {"engine": "vllm", "engine_version": "0.14.0"},
            {"request_rate_rps": "4", "arrival": "Poisson"},
        ],
    )
    def test_others_stay_as_they_are(self, cells: dict[str, str]) -> None:
        stated = known(**cells)
        assert benchmarked(stated) == stated


class TestRule:
    def test_by_hand(self) -> None:
        """95 % of what 8.03 B parameters of a byte leave holds some 560 requests of 2,000 tokens,
        of 64 KiB in fp8: 640 in steps of 128. Twice as many tokens are below the least."""
        fit = 0.95 * (catalog.gpu("h100-sxm").memory - 8.03e9) / (2**16 * 2000)
        assert 550 < fit < 570
        assert ruled(known()) == tuned(fit, 1.0) == BenchLimits(640, 2048)

    def test_answers_shorter_than_prompts_fill_iterations(self) -> None:
        assert tuned(300, 16) == BenchLimits(384, 5120)
        assert tuned(300, 1) == BenchLimits(384, 2048)
        assert tuned(10, 16).requests == 64
        assert tuned(9000, 100) == BenchLimits(4096, 32768)
        assert tuned(1000, 1, stages=2) == BenchLimits(512, 2048)

    def test_kv_heads_are_copied_where_ranks_outnumber_them(self) -> None:
        """Sixteen GPUs have twice the memory of eight, and two copies of each of 8 KV heads."""
        long = {"isl": "20000", "osl": "2000"}
        fits = [ruled(known(**long, n_gpus=n, tp=n)) for n in ("4", "8", "16")]
        assert [each and each.requests for each in fits] == [224, 512, 512]

    def test_data_ranks_count_as_tensor_ranks(self) -> None:
        together = known(n_gpus="2", tp="2")
        spread = together.under({"fleet.tensor_parallel": 1, "fleet.data_parallel": 2})
        assert ruled(spread) == ruled(together)

    def test_latent_attention_counts_as_the_keys_and_values_of_all_heads(self) -> None:
        """671 B parameters of a byte in 8 x 141 GB, 61 layers of 128 heads of 7168 / 128 numbers:
        250 requests of 2,000 tokens in nine tenths of the rest."""
        cells = {"model": "DeepSeek-R1", "gpu": "H200-SXM-141GB", "n_gpus": "8", "tp": "8"}
        stated = known(**cells, engine_version="1.1", kv_dtype="fp8")
        own = stated.under({"kv_cache.gpu_memory_utilization": 0.9})
        free = 0.9 * (8 * catalog.gpu("h200-sxm").memory - catalog.model(own.model).parameters)
        fit = free / (2 * 61 * 128 * 56 * 2000)
        assert ruled(own) == tuned(fit, 1.0)

    def test_two_numbers_of_four_bits_are_one_of_a_checkpoint(self) -> None:
        """19.7 B of gpt-oss-20b's 20.9 B are experts in mxfp4, counted as 10.5 B; the rule takes
        two bytes for each all the same."""
        own = known(model="gpt-oss-20b", engine_version="1.1", weight_dtype="mxfp4")
        model = catalog.model(own.model)
        experts = sum(w.parameters for w in model.weights() if w.role == "experts")
        stored = model.parameters - experts + experts * (1 / 2 + 1 / 32)
        free = 0.95 * (catalog.gpu(own.gpu).memory - 2 * stored)
        token = 2 * model.num_layers * 8 * 64 * 1
        assert ruled(own) == tuned(free / token / 2000, 1.0)

    def test_with_pytorch_an_iteration_has_room_for_a_prompt_and_all_requests(self) -> None:
        found = benchmarked(known(engine_version="1.0", isl="5000", osl="500"))
        limits = ruled(known(engine_version="1.0", isl="5000", osl="500"))
        assert limits is not None
        assert scheduler(found) == (limits.requests, max(limits.tokens, 5000 + limits.requests))

    def test_the_executor_in_c_rounds_down(self) -> None:
        found = benchmarked(known())
        assert rounded(capacity(found)) == 512
        assert scheduler(found) == (512, 2048)
        assert scheduler(benchmarked(known(engine_version="1.0"))) == (640, 2048)

    def test_rounding_by_hand(self) -> None:
        """As NVIDIA's own test has it, and where nothing is near."""
        asked = (143, 335, 671, 831, 1279, 1663, 2049, 1665)
        assert [rounded(each) for each in asked] == [128, 256, 512, 768, 1024, 1536, 2048, 1665]
