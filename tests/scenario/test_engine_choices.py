"""What a scenario leaves out is what the release of its engine chooses on the GPU of each pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.errors import InfersimError
from sim.scenario import Scenario
from sim.setup import prepare
from tests.places import VLLM

WORKLOAD = {
    "arrivals": {"kind": "poisson", "rate": 6},
    "prompt_tokens": {"kind": "fixed", "value": 512},
    "output_tokens": {"kind": "fixed", "value": 32},
}


def loaded(**keys: Any) -> Scenario:
    """A small scenario with these keys in place of its own."""
    base = {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "workload": WORKLOAD}
    return sim.load_scenario({**base, "run": {"requests": 20, "warmup": 0}, **keys})


def chosen(engine: str, gpu: str, **keys: Any) -> tuple[int, int, float]:
    """Requests and tokens of an iteration, and the share of memory."""
    scenario = loaded(engine=engine, fleet={"gpu": gpu, **keys})
    knobs, cache = scenario.scheduler, scenario.kv_cache
    return knobs.max_num_seqs, knobs.max_num_batched_tokens, cache.gpu_memory_utilization


SMALL, LARGE, LARGEST = (256, 2048), (1024, 8192), (1024, 16384)


@pytest.mark.parametrize(
    ("gpu", "limits"),
    [
        ("h100-sxm", {"0.8": LARGE, "0.31": LARGE, "0.32": LARGE, "0.33": LARGE}),
        ("b200-sxm", {"0.8": LARGE, "0.31": LARGE, "0.32": LARGEST, "0.33": LARGEST}),
        ("a100-sxm-80gb", {"0.8": SMALL, "0.31": SMALL, "0.32": SMALL, "0.33": SMALL}),
        ("l40s", {"0.8": SMALL, "0.31": SMALL, "0.32": SMALL, "0.33": SMALL}),
    ],
)
def test_limits_of_vllm_by_card_and_release(gpu: str, limits: dict[str, tuple[int, int]]) -> None:
    for release, expected in limits.items():
        assert chosen(f"vllm@{release}", gpu)[:2] == expected, release


def test_gb10_is_a_small_gpu_from_0_33_on(tmp_path: Path) -> None:
    path = tmp_path / "gb10.yaml"
    path.write_text("extends: h100-sxm\ntitle: NVIDIA GB10\nmemory: 119GiB\n")
    assert chosen("vllm@0.32", str(path))[:2] == LARGE
    assert chosen("vllm@0.33", str(path))[:2] == SMALL


@pytest.mark.parametrize(
    ("release", "share", "whole", "ahead"),
    [
        ("0.13", 0.9, False, None),
        ("0.14", 0.9, False, True),
        ("0.18", 0.9, False, True),
        ("0.19", 0.9, True, True),
        ("0.20", 0.9, True, True),
        ("0.21", 0.92, True, True),
        ("0.33", 0.92, True, True),
    ],
)
@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s"])
def test_what_else_releases_of_vllm_chose(
    gpu: str, release: str, share: float, whole: bool, ahead: bool | None
) -> None:
    scenario = loaded(engine=f"vllm@{release}", fleet={"gpu": gpu})
    assert scenario.kv_cache.gpu_memory_utilization == share
    assert scenario.scheduler.scheduler_reserve_full_isl is whole
    assert scenario.scheduler.async_scheduling is ahead
    assert scenario.kv_cache.enable_prefix_caching
    assert scenario.kv_cache.block_size == 16


def test_an_engine_without_choices_leaves_what_the_schema_says() -> None:
    scenario = loaded(engine=VLLM)
    knobs, cache = scenario.scheduler, scenario.kv_cache
    assert (knobs.max_num_seqs, knobs.max_num_batched_tokens) == (256, 8192)
    assert (cache.gpu_memory_utilization, cache.enable_prefix_caching) == (0.9, False)
    assert knobs.async_scheduling is None


STATED = {
    "scheduler": {
        "max_num_seqs": 17,
        "max_num_batched_tokens": 333,
        "chunked_prefill": False,
        "scheduler_reserve_full_isl": False,
        "async_scheduling": False,
    },
    "kv_cache": {
        "gpu_memory_utilization": 0.5,
        "block_size": 8,
        "enable_prefix_caching": False,
    },
}


def test_a_stated_key_wins() -> None:
    scenario = loaded(**STATED)
    for section, values in STATED.items():
        for key, value in values.items():
            assert getattr(getattr(scenario, section), key) == value, key


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.13", "sglang", "tensorrt-llm"])
def test_null_is_as_left_out(engine: str) -> None:
    keys = {section: dict.fromkeys(values) for section, values in STATED.items()}
    left_out = loaded(engine=engine)
    assert loaded(engine=engine, **keys) == left_out
    in_pool = loaded(engine=engine, fleet={"gpu": "h100-sxm", **keys})
    assert in_pool.pools == left_out.pools


def test_null_in_a_pool_is_what_the_scenario_says() -> None:
    fleet = {"gpu": "h100-sxm", "scheduler": {"max_num_seqs": None}}
    assert loaded(fleet=fleet, scheduler={"max_num_seqs": 17}).pools[0].scheduler.max_num_seqs == 17


def test_values_are_read_as_they_are_spelled() -> None:
    text = loaded(scheduler={"max_num_batched_tokens": "1e2"}, fleet={"gpu": "h100-sxm"})
    assert (text.scheduler.max_num_seqs, text.scheduler.max_num_batched_tokens) == (100, 100)
    off = loaded(engine="tensorrt-llm", kv_cache={"enable_prefix_caching": "off"})
    assert off.scheduler.policy == "guaranteed-no-evict"
    eight = {"gpu": "h100-sxm", "tensor_parallel": "8"}
    of_text, of_number = (
        loaded(engine="sglang", fleet={**eight, "tensor_parallel": n}) for n in ("8", 8)
    )
    assert of_text == of_number


@pytest.mark.parametrize("value", [[], [1], {}, {"a": 1}, -1, 1.5, True, "x", 10**400])
@pytest.mark.parametrize(
    "key",
    [
        *("scheduler.policy", "scheduler.order", "scheduler.batching"),
        *("scheduler.max_num_batched_tokens", "kv_cache.allocator", "speculative.method"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(key: str, value: object) -> None:
    section, _, name = key.partition(".")
    with pytest.raises(InfersimError):
        loaded(engine="sglang", **{section: {name: value}})


def test_no_more_sequences_than_an_iteration_has_tokens() -> None:
    def most(tokens: int, engine: str = "vllm", **keys: Any) -> int:
        return loaded(
            engine=engine, **{"scheduler": {"max_num_batched_tokens": tokens}} | keys
        ).scheduler.max_num_seqs

    assert [most(n) for n in (1, 100, 1024, 4096)] == [1, 100, 1024, 1024]
    assert most(512, "tensorrt-llm") == 512
    assert most(512, "sglang") == 2048  # whose decodes have iterations of their own
    mixed = {"max_num_batched_tokens": 512, "enable_mixed_chunk": True}
    assert most(512, "sglang", scheduler=mixed) == 512
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance": {"rates": [0.8, 0.6, 0.5]}}
    assert most(1024, speculative=drafts) == 256  # 3 drafts and the token itself
    drafter = {**drafts, "method": "draft_model", "draft_model": "llama-3.2-1b"}
    assert most(1000, speculative=drafter) == 200  # which takes one more


def test_a_pool_has_the_choices_of_its_own_gpu() -> None:
    pools = [{"name": "large", "gpu": "h100-sxm"}, {"name": "small", "gpu": "l40s"}]
    for fleet in (pools, pools[::-1]):
        scenario = loaded(fleet=fleet)
        found = {
            pool.name: (pool.scheduler.max_num_seqs, pool.scheduler.max_num_batched_tokens)
            for pool in scenario.pools
        }
        assert found == {"large": LARGE, "small": SMALL}
        assert sim.load_scenario(scenario.resolved()) == scenario
        fewer = scenario.override({"scheduler.max_num_seqs": 40})
        assert [pool.scheduler.max_num_seqs for pool in fewer.pools] == [40, 40]
        sim.simulate(scenario)


def test_a_pool_has_the_choices_of_its_own_engine() -> None:
    pools = [
        {"name": "one", "gpu": "h100-sxm"},
        {"name": "other", "gpu": "h100-sxm", "engine": "vllm@0.13"},
        {"name": "third", "gpu": "h100-sxm", "scheduler": {"max_num_seqs": 9}},
    ]
    scenario = loaded(fleet=pools)
    shares = [pool.kv_cache.gpu_memory_utilization for pool in scenario.pools]
    assert shares == [0.92, 0.9, 0.92]
    assert [pool.scheduler.plans_ahead for pool in scenario.pools] == [True, False, True]
    assert [pool.scheduler.max_num_seqs for pool in scenario.pools] == [1024, 1024, 9]
    assert [pool.engine for pool in scenario.pools] == ["vllm@0.33", "vllm@0.13", "vllm@0.33"]
    assert sim.load_scenario(scenario.resolved()) == scenario


ROLES = [{"name": role, "role": role, "gpu": "h100-sxm"} for role in ("prefill", "decode")]
DRAFTS = {"method": "eagle", "num_tokens": 2, "acceptance": {"rates": [0.8, 0.6]}}
NGRAM = {"method": "ngram", "num_tokens": 2, "acceptance_rate": 0.5}
TABLE = {"method": "eagle", "num_tokens": 2, "acceptance": {"rates": [0.8, 0.6]}}
TWO = {"gpu": "h100-sxm", "pipeline_parallel": 2}
HYBRID, WINDOWS = "qwen3-next-80b-a3b", "gpt-oss-120b"


@pytest.mark.parametrize(
    ("keys", "left_out"),
    [
        ({"fleet": ROLES}, {"async"}),
        ({"fleet": ROLES, "engine": "sglang"}, {"async", "policy"}),
        ({"fleet": ROLES, "engine": "tensorrt-llm"}, {"async", "policy", "prefixes"}),
        ({"fleet": TWO}, {"async"}),
        ({"fleet": TWO, "engine": "sglang"}, {"async", "policy"}),
        ({"scheduler": {"order": "priority"}}, {"async"}),
        ({"scheduler": {"order": "priority"}, "model": WINDOWS}, {"async", "prefixes"}),
        ({"speculative": NGRAM}, {"async"}),
        ({"speculative": DRAFTS}, set()),
        ({"speculative": DRAFTS, "engine": "sglang", "scheduler": {"policy": "vllm"}}, {"async"}),
        ({"speculative": DRAFTS, "model": WINDOWS}, {"async", "prefixes"}),
        ({"speculative": DRAFTS, "scheduler": {"order": "fcfs"}}, set()),
        (
            {
                "model": HYBRID,
                "engine": "vllm@0.22",
                "fleet": {"gpu": "h100-sxm", "tensor_parallel": 4},
            },
            {"prefixes"},
        ),
        ({"model": WINDOWS}, set()),
        ({"model": WINDOWS, "engine": "sglang"}, {"prefixes"}),
        ({"model": WINDOWS, "fleet": {**TWO}}, {"async", "prefixes"}),
        (
            {"kv_cache": {"host_memory": "10GiB", "preemption": "swap"}},
            {"async", "prefixes"},
        ),
        (
            {"kv_cache": {"host_memory": "10GiB", "enable_prefix_caching": True}},
            {"async"},
        ),
        ({"kv_cache": {"allocator": "contiguous"}}, {"prefixes"}),
        (
            {"kv_cache": {"allocator": "contiguous"}, "engine": "sglang"},
            {"async", "policy", "prefixes"},
        ),
        ({"scheduler": {"batching": "static"}}, {"async", "prefixes"}),
        (
            {"scheduler": {"batching": "request"}, "engine": "sglang"},
            {"async", "policy", "prefixes"},
        ),
        ({"scheduler": {"policy": "vllm-v0"}}, {"async"}),
        ({"engine": "tensorrt-llm"}, {"prefixes"}),
        ({"engine": "tensorrt-llm", "scheduler": {"order": "priority"}}, {"prefixes"}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
def test_a_choice_that_is_not_modelled_with_the_rest_is_left_out(
    keys: dict[str, Any], left_out: set[str]
) -> None:
    scenario = loaded(**keys)
    first, last = scenario.pools[0], scenario.pools[-1]
    own = scenario.engine.partition("@")[0]
    rules = {"vllm": None, "sglang": "sglang", "tensorrt-llm": "guaranteed-no-evict"}
    asked = keys.get("scheduler", {}).get("policy", rules[own])
    assert (first.scheduler.policy == asked) == ("policy" not in left_out or asked is None)
    assert first.scheduler.plans_ahead == ("async" not in left_out)
    assert first.kv_cache.enable_prefix_caching == ("prefixes" not in left_out)
    assert not (last.role == "decode" and last.kv_cache.enable_prefix_caching)
    assert sim.load_scenario(scenario.resolved()) == scenario
    result = sim.simulate(scenario)
    assert result.summary["completed"] == 20


@pytest.mark.parametrize(("engine", "size"), [("vllm", 16), ("sglang", 16), (VLLM, 16)])
def test_pools_of_one_phase_have_blocks_of_one_size(engine: str, size: int) -> None:
    """KV is handed over block by block: all have those of the scenario's engine."""
    for first, last in (("sglang", "vllm"), ("vllm", VLLM), (VLLM, "tensorrt-llm")):
        pools = [{**ROLES[0], "engine": first}, {**ROLES[1], "engine": last}]
        scenario = loaded(engine=engine, fleet=pools)
        assert [pool.kv_cache.block_size for pool in scenario.pools] == [size, size]
        assert sim.load_scenario(scenario.resolved()) == scenario
    stated = loaded(engine=engine, fleet=pools, kv_cache={"block_size": 32})
    assert [pool.kv_cache.block_size for pool in stated.pools] == [32, 32]


ORDER = """
from sim.schedulers.orders import Priority


class Mine(Priority):
    name = "mine"
"""


def test_an_order_of_ones_own_may_preempt_by_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(ORDER)
    scenario = loaded(scheduler={"order": "ranks:Mine"})
    assert scenario.scheduler.async_scheduling is None
    assert sim.simulate(scenario).summary["completed"] == 20


def test_host_time_is_of_the_release_where_planning_ahead_is_not_modelled() -> None:
    """A release that plans ahead takes 0.3 ms in pools of one phase as well, and 1 ms where it does
    not plan ahead: told so, or for n-gram drafts."""

    def host(**keys: Any) -> float:
        return prepare(loaded(**keys)).pools[0].deployment.engine.per_iteration

    assert host() == host(fleet=ROLES) == host(fleet=TWO) == pytest.approx(0.3e-3)
    slow = host(speculative=NGRAM), host(scheduler={"async_scheduling": False})
    assert slow == pytest.approx((1e-3, 1e-3))
    assert host(engine="vllm@0.13") == pytest.approx(1e-3)
    assert host(engine="vllm@0.13", scheduler={"async_scheduling": True}) == pytest.approx(0.3e-3)


def test_static_share_of_sglang_by_hand() -> None:
    """MiB: 512, 1.5 a token of a chunk, 2 a sequence of the largest graph, 128 a GPU. H100 with
    81,559 MiB: 512 + 12,288 + 512 + 128 = 13,440 on one GPU, and 512 + 12,288 + 1,024 + 1,024 =
    14,848 on eight. B200, 16,384 tokens: 512 + 24,576 + 1,024 + 128 = 26,240."""
    for gpu, tensor, reserved in (("h100-sxm", 1, 13_440), ("h100-sxm", 8, 14_848)):
        memory = prepare(loaded(fleet={"gpu": gpu})).only.deployment.gpu.memory / 2**20
        fleet = {"gpu": gpu, "tensor_parallel": tensor}
        share = loaded(engine="sglang", fleet=fleet).kv_cache.gpu_memory_utilization
        assert share == round((memory - reserved) / memory, 3)
    memory = prepare(loaded(fleet={"gpu": "b200-sxm"})).only.deployment.gpu.memory / 2**20
    assert chosen("sglang", "b200-sxm") == (2048, 16384, round((memory - 26_240) / memory, 3))


def test_static_share_of_sglang_goes_by_what_is_asked_for() -> None:
    memory = prepare(loaded()).only.deployment.gpu.memory / 2**20

    def reserved(**keys: Any) -> float:
        share = loaded(engine="sglang", **keys).kv_cache.gpu_memory_utilization
        return (1 - share) * memory

    def about(expected: float) -> Any:
        return pytest.approx(expected, abs=memory * 0.0005)

    assert reserved() == about(13_440)
    assert reserved(scheduler={"max_num_batched_tokens": 16384}) == about(13_440 + 12_288)
    assert reserved(scheduler={"max_num_batched_tokens": 512}) == about(10 * 1024)  # at least
    assert reserved(scheduler={"chunked_prefill": False}) == about(13_440 + 12_288)
    by_vllm = {"policy": "vllm"}
    assert reserved(scheduler=by_vllm, speculative=DRAFTS) == about(13_440 + 2048)
    assert reserved(scheduler=by_vllm, speculative=NGRAM) == about(13_440)
    fleet = {"gpu": "h100-sxm", "data_parallel": 8, "expert_parallel": True}
    experts = {"model": "qwen3-30b-a3b", "fleet": fleet}
    assert reserved(**experts) == about(14_848 + 512 * 8 * 4.5)


def test_where_sglang_would_find_no_memory_the_share_is_that_of_the_schema() -> None:
    uncut = loaded(engine="sglang", fleet={"gpu": "a10g"}, scheduler={"chunked_prefill": False})
    assert uncut.kv_cache.gpu_memory_utilization == 0.9


@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [("b200-sxm", 16384), ("h100-sxm", 8192), ("l40s", 4096), ("rtx-4090", 4096)],
)
def test_chunks_of_sglang_by_memory(gpu: str, tokens: int) -> None:
    assert chosen("sglang", gpu)[1] == tokens


def test_chunks_of_older_sglang_on_a_gpu_of_24_gib() -> None:
    assert chosen("sglang@0.5.17", "rtx-4090")[1] == 2048
    assert loaded(engine="sglang").kv_cache.block_size == 1


def test_choices_of_tensorrt_llm() -> None:
    scenario = loaded(engine="tensorrt-llm")
    assert chosen("tensorrt-llm", "h100-sxm") == (2048, 8192, 0.9)
    assert not scenario.scheduler.chunked_prefill
    assert scenario.kv_cache.block_size == 32
    assert scenario.scheduler.plans_ahead
    assert not loaded(engine="tensorrt-llm", scheduler={"policy": "vllm"}).scheduler.plans_ahead
