"""llama.cpp: formats of GGUF, passes in micro-batches, slots over one context, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import sim
from sim import catalog
from sim.cost import CostModel
from sim.cost.operators import Operator
from sim.errors import ScenarioError, UsageError
from sim.memory import PagedAllocator
from sim.planning.fleet.launch import launch_commands
from sim.pools import PreparedPool
from sim.request import Request
from sim.scenario import load_scenario
from sim.schedulers import Limits, make_scheduler
from sim.setup import prepare
from sim.specs.deployment import Deployment
from sim.specs.engine import GgufKernels
from sim.specs.layout import Layout
from sim.specs.precision import GGUF, precision_bytes
from tests.gpus import data_sheet

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "precision": {"weights": "q4_k_m"},
    "fleet": {"gpu": "rtx-4090"},
    "engine": "llama.cpp",
    "max_model_len": 8192,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 700},
        "output_tokens": {"kind": "fixed", "value": 16},
    },
    "run": {"requests": 8},
}
MATRICES = 6_979_321_856  # of Llama-3.1-8B's layers
VOCABULARY = 525_336_576  # of its embedding, and of its LM head again
NORMS = 266_240


def pool(changes: dict[str, object] | None = None) -> PreparedPool:
    return prepare(load_scenario(BASE).override(changes or {})).only


def deployed(**formats: Any) -> Deployment:
    """Llama-3.1-8B on a card of 1 TB/s and 400 int8 TOP/s without latencies, half of both used."""
    gpu = data_sheet("rtx-4090")
    gpu = replace(gpu, bandwidth=1e12, peak_flops={**gpu.peak_flops, "int8": 4e14})
    gpu = replace(gpu, efficiency=replace(gpu.efficiency, operator_latency=0.0))
    engine = replace(catalog.engine("llama.cpp"), gguf=GgufKernels(0.5, 0.5))
    return Deployment(catalog.model("llama-3.1-8b"), gpu, engine, **formats)


def operators(d: Deployment, tokens: float) -> dict[str, Operator]:
    return {each.name: each for each in CostModel(d).by_size.per_token(tokens)}


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("q4_0", 18 * 8 / 32),
        ("q4_1", 20 * 8 / 32),
        ("q5_0", 22 * 8 / 32),
        ("q5_1", 24 * 8 / 32),
        ("q8_0", 34 * 8 / 32),
        ("q6_k", 210 * 8 / 256),
        ("q4_k_m", 4.8944),
    ],
)
def test_bits_of_a_weight(name: str, bits: float) -> None:
    assert precision_bytes(name) * 8 == pytest.approx(bits, rel=1e-12)


def test_a_file_in_q4_k_m_is_as_large_as_published() -> None:
    """4.58 GiB of Llama-3.1-8B, embedding and LM head included (tools/quantize/README.md)."""
    d = deployed(weights="q4_k_m")
    by_hand = (MATRICES + 2 * VOCABULARY) * 4.8944 / 8 + NORMS * 2
    assert d.weight_bytes() == pytest.approx(by_hand, rel=1e-12)
    assert d.weight_bytes() / 2**30 == pytest.approx(4.58, abs=0.01)


def test_weights_are_read_first_and_multiplied_then() -> None:
    d = deployed(weights="q4_0")
    down = operators(d, 64.0)["down projection"]
    k, n, layers = 14336, 4096, 32
    traffic = (k * n * 0.5625 + 64 * (k * 1 + n * 2)) * layers
    assert down.bytes == pytest.approx(traffic, rel=1e-12)
    expected = traffic / 0.5e12 + 2 * 64 * k * n * layers / 2e14
    assert down.seconds == pytest.approx(expected, rel=1e-12)
    (head, *_) = CostModel(d).by_size.per_output(1.0)
    assert head.bytes == pytest.approx(VOCABULARY * 0.5625 + 4096 + 128_256 * 2, rel=1e-12)


def test_an_iteration_reads_the_weights_once_for_each_micro_batch() -> None:
    """1,300 tokens are passes of 512, 512 and 276; 512 tokens and fewer are one pass."""
    d = deployed(weights="q4_0")
    many, full, rest = (operators(d, float(m)) for m in (1300, 512, 276))
    for name, each in many.items():
        parts = 2 * full[name].seconds + rest[name].seconds
        assert each.seconds == pytest.approx(parts, rel=1e-9)
        assert each.bytes == pytest.approx(2 * full[name].bytes + rest[name].bytes, rel=1e-9)
    whole = CostModel(replace(d, engine=replace(d.engine, micro_batch=0)))
    once = {each.name: each for each in whole.by_size.per_token(1024.0)}
    twice = operators(d, 1024.0)
    assert all(twice[name].seconds == 2 * full[name].seconds for name in full)
    assert sum(o.bytes for o in twice.values()) > sum(o.bytes for o in once.values())
    for each in whole.by_size.per_token(512.0):
        assert each.seconds == pytest.approx(full[each.name].seconds, rel=1e-12)


def test_micro_batches_follow_each_other_through_cards_that_have_layers_each() -> None:
    """Of two cards the first of 512, 512 and 276 tokens takes both, each further one half of its
    time more; what is one pass takes as long as on one card."""
    one = deployed(weights="q4_0")
    two = replace(one, layout=Layout(split=2))
    many, full, rest = (operators(one, float(m)) for m in (1300, 512, 276))
    for name, each in operators(two, 1300.0).items():
        parts = full[name].seconds + (full[name].seconds + rest[name].seconds) / 2
        assert each.seconds == pytest.approx(parts, rel=1e-9)
        assert (each.flops, each.bytes) == (many[name].flops, many[name].bytes)
    assert operators(two, 276.0) == rest


def test_decodes_come_first_and_a_long_prompt_takes_the_rest() -> None:
    found = pool()
    assert (found.limits.max_num_seqs, found.limits.max_num_batched_tokens) == (4, 2048)
    limits = Limits(
        max_num_seqs=4,
        max_num_batched_tokens=2048,
        max_model_len=8192,
        scheduler_reserve_full_isl=found.limits.scheduler_reserve_full_isl,
    )
    scheduler = make_scheduler("continuous", limits, PagedAllocator(8192, 1))
    for number, prompt in enumerate((100, 100, 3000, 50, 10)):
        scheduler.submit(Request(number, 0.0, prompt, 99))
    steps = []
    for now in range(3):
        plan = scheduler.schedule(float(now))
        assert plan is not None
        steps.append((plan.decode, [(c.request.id, c.tokens) for c in plan.chunks]))
        scheduler.complete(plan, 1, now + 1.0)
    assert steps[0] == (0, [(0, 100), (1, 100), (2, 1848)])  # 2,048 tokens; the fourth waits
    assert steps[1] == (2, [(2, 1152), (3, 50)])  # decodes first; no slot is left for the fifth
    assert steps[2] == (4, [])


def test_slots_share_the_context_or_have_a_part_each() -> None:
    shared, parts = pool(), pool({"kv_cache.allocator": "contiguous", "max_model_len": 4096})
    assert shared.kv_tokens == 8192  # -c, though 24 GB would hold 100,000
    assert parts.kv_tokens == 4 * 4096
    memory = shared.capacity
    logits = 512 * 128_256 * 4  # of a whole micro-batch
    inside = 512 * (2 * 4096 + 3 * 14336) * 2
    assert memory.activations == pytest.approx(logits + inside, rel=1e-12)
    assert memory.reserve == pytest.approx(1.4 * 2**30)
    assert memory.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    narrow = pool({"precision.kv_cache": "q8_0"}).capacity
    assert narrow.kv_bytes_per_token == 2 * 32 * 8 * 128 * 1.0625


def test_a_context_that_does_not_fit_is_what_the_memory_holds() -> None:
    found = pool({"model": "qwen2.5-32b", "max_model_len": 32768}).capacity
    left = found.memory - found.weights - found.activations - found.reserve
    assert found.tokens == int(left // found.kv_bytes_per_token) < 32768


def test_it_runs_on_one_card_and_reuses_prefixes() -> None:
    scenario = load_scenario(BASE)
    assert scenario.kv_cache.enable_prefix_caching
    result = sim.simulate(scenario)
    assert result.summary["completed"] == 8
    q8 = sim.simulate(scenario.override({"precision.weights": "q8_0"}))
    assert q8.summary["mean_tpot_ms"] > 1.3 * result.summary["mean_tpot_ms"]


def test_what_does_not_go_together_is_refused() -> None:
    for layout in ("tensor_parallel", "pipeline_parallel"):
        with pytest.raises(UsageError, match=r"llama\.cpp splits a model over GPUs by layers"):
            pool({f"fleet.0.{layout}": 2})
    with pytest.raises(UsageError, match="q4_k_m is a format of GGUF files"):
        pool({"engine": "vllm"})
    with pytest.raises(UsageError, match="q8_0 is a format of GGUF files"):
        pool({"engine": "vllm", "precision.weights": "bf16", "precision.kv_cache": "q8_0"})
    for key, name in (("activations", "q8_0"), ("kv_cache", "q6_k")):
        with pytest.raises(ScenarioError, match=f"'{name}' is not supported yet"):
            pool({f"precision.{key}": name})
    assert all(precision_bytes(name) < 2 for name in GGUF)


def test_the_command_that_starts_it() -> None:
    found = launch_commands(load_scenario(BASE).override({"precision.kv_cache": "q8_0"}))
    assert found["llama.cpp"] == (
        "llama-server -m MODEL.gguf -c 8192 -np 4 --kv-unified -b 2048 -ub 512 -fa on "
        "--cache-type-k q8_0 --cache-type-v q8_0"
    )
    assert "vllm" not in found
    own = {"kv_cache.allocator": "contiguous", "scheduler.max_num_seqs": 8}
    found = launch_commands(load_scenario(BASE).override(own))
    assert found["llama.cpp"].startswith("llama-server -m MODEL.gguf -c 65536 -np 8 -b 2048")


def test_cards_that_work_in_turn_are_one_with_the_memory_of_all() -> None:
    card = {"model": "qwen3-32b", "fleet": {"gpu": "rtx-3090"}, "max_model_len": 2048}
    short = {**BASE["workload"], "prompt_tokens": 100}  # all of a burst are one micro-batch
    one = load_scenario(BASE | card | {"workload": short})
    alone, both = (
        sim.simulate(each).summary for each in (one, one.override({"fleet.0.layer_split": 2}))
    )
    assert both["mean_tpot_ms"] == alone["mean_tpot_ms"]
    assert both["infersim"]["gpus"] == 2
    caches = [prepare(one.override({"fleet.0.layer_split": n})).only.capacity for n in (1, 2)]
    weights = 32.76e9 * 4.8944 / 8  # bytes
    assert caches[1].kv_cache - 2 * caches[0].kv_cache == pytest.approx(weights, rel=0.01)
    spent = [each["infersim"]["energy"]["joules_per_output_token"] for each in (alone, both)]
    assert spent[0] < spent[1] < 2 * spent[0]


def test_cards_in_turn_are_of_llama_cpp_alone() -> None:
    two = {"fleet": {"gpu": "rtx-4090", "layer_split": 2}, "precision": {}, "engine": "vllm"}
    with pytest.raises(UsageError, match=r"layer_split: GPUs that work in turn are llama.cpp's"):
        sim.simulate(load_scenario(BASE | two))
