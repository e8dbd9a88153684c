"""What vLLM takes besides weights, against its own start-up lines on an H100.

Figures in GiB are "torch peak memory increase", "non-torch forward increase memory" and "Available
KV cache memory" of vLLM 0.19.0 with 0.95 of the memory, 8,192 tokens an iteration and 1,024
sequences (llm-d-incubation/llm-d-planner, accuracy report at 8f9dbb8d).
"""

from __future__ import annotations

from typing import Any

import pytest

from sim import catalog
from sim.memory.capacity import Capacity, capacity
from sim.specs.deployment import Deployment
from sim.specs.layout import Layout

GIB = 2.0**30


def memory_of(model: str, tensor: int = 1, gpu: str = "h100-sxm", **given: Any) -> Capacity:
    """The memory of one GPU under vLLM; ``given`` are settings and the ``release``."""
    asked = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024} | given
    release = asked.pop("release", "0.19")
    formats = {"weights": "bf16", "activations": "bf16", "kv_cache": "bf16"}
    d = Deployment(
        model=catalog.model(model),
        gpu=catalog.gpu(gpu, kernels="vllm"),
        engine=catalog.engine(f"vllm@{release}"),
        layout=Layout(tensor=tensor),
        **formats,
    )
    return capacity(d, block_size=16, gpu_memory_utilization=0.95, num_gpu_blocks=None, **asked)


@pytest.mark.parametrize(
    ("model", "tensor", "activations", "reserve"),
    [
        ("llama-3.1-8b", 1, 1.89, 0.25),
        ("llama-3.1-8b", 4, 1.89, 2.13),
        ("qwen2.5-7b", 1, 2.21, 0.24),
        ("gemma-2-9b", 1, 3.64, 0.25),
        ("phi-4", 1, 1.52, 0.25),
        ("qwen2.5-72b", 2, 2.29, 2.09),
        ("mixtral-8x7b", 2, 1.21, 2.07),
        ("deepseek-v2-lite", 1, 1.93, 0.26),
        ("qwen3-30b-a3b", 1, 2.68, 0.27),
    ],
)
def test_the_largest_pass_takes_what_the_engine_says(
    model: str, tensor: int, activations: float, reserve: float
) -> None:
    memory = memory_of(model, tensor)
    assert memory.activations / GIB == pytest.approx(activations, rel=0.07)
    assert memory.reserve / GIB == pytest.approx(reserve, abs=0.05)


def test_experts_by_triton_keep_no_buffers_which_is_not_modelled() -> None:
    """2.87 GiB of gpt-oss-20b on 2 GPUs (same report), without the quarter of a GiB of buffers."""
    assert 1.05 < memory_of("gpt-oss-20b", 2).activations / GIB / 2.87 < 1.1


def test_the_kv_cache_is_what_the_engine_says() -> None:
    assert memory_of("llama-3.1-8b").kv_cache / GIB == pytest.approx(58.11, rel=0.005)
    assert memory_of("qwen2.5-7b").kv_cache / GIB == pytest.approx(58.53, rel=0.005)


def test_sampling_sorted_before_0_17() -> None:
    """Qwen3-14B took 5.64 GiB in 0.16 and 2.23 in 0.17 (same report)."""
    assert memory_of("qwen3-14b", release="0.16").activations / GIB == pytest.approx(5.64, rel=0.02)
    assert memory_of("qwen3-14b", release="0.17").activations / GIB == pytest.approx(2.23, rel=0.02)


def test_cards_without_nvlink_share_layers_without_its_buffers() -> None:
    assert memory_of("llama-3.1-8b", 2, "l40s").reserve == memory_of("llama-3.1-8b").reserve


def test_graphs_count_since_0_21() -> None:
    """51 sizes of decodes and 51 of prompts, of which the first is larger; fewer where fewer
    sequences run, none where there are no graphs."""
    before, since = (
        memory_of("llama-3.1-8b", release="0.20"),
        memory_of("llama-3.1-8b", release="0.21"),
    )
    each = 6 * 2.0**20
    assert since.reserve - before.reserve == pytest.approx(0.35 * GIB + 101 * each)
    few = memory_of("llama-3.1-8b", release="0.21", max_num_seqs=8)
    assert since.reserve - few.reserve == pytest.approx((102 - 4 - 5) * each)


def test_more_requests_decode_than_are_in_their_prompts_behind_windows() -> None:
    """Engines count 8,192 tokens in flight for each request; one that decodes has its window."""
    behind, plain = memory_of("gpt-oss-20b"), memory_of("llama-3.1-8b")
    assert behind.decoding(8192) > 1.5 * behind.max_concurrency(8192)
    assert plain.decoding(8192) == plain.max_concurrency(8192)
