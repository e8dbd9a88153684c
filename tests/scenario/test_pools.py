"""Pools of a fleet: which settings rule each."""

from typing import Any

import pytest

from sim.errors import InfersimError, UsageError
from sim.scenario import load_scenario
from sim.scenario.pools import only, pools_of

SMALL = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2, "tensor_parallel": 4, "name": "first"},
    "scheduler": {"max_num_seqs": 17},
    "kv_cache": {"block_size": 32},
    "engine": "sglang",
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 512},
        "output_tokens": {"kind": "fixed", "value": 128},
    },
}


class TestSettings:
    def test_of_the_only_pool_are_the_scenarios(self) -> None:
        scenario = load_scenario(SMALL)
        (pool,) = scenario.pools
        assert (pool.name, pool.gpu, pool.replicas, pool.gpus) == ("first", "h100-sxm", 2, 8)
        assert (pool.engine, pool.max_model_len) == ("sglang@0.5.23", 4096)
        assert pool.scheduler == scenario.scheduler
        assert pool.kv_cache == scenario.kv_cache
        assert scenario.override({pool.key("replicas"): 3}).replicas == 3

    def test_number_replicas_through_all_pools(self) -> None:
        scenario = load_scenario(SMALL)
        (pool,) = scenario.fleet
        both = scenario.model_copy(
            update={"fleet": (pool, pool.model_copy(update={"replicas": 3}))}
        )
        assert [each.numbers for each in pools_of(both)] == [range(2), range(2, 5)]
        assert both.replicas == 5
        with pytest.raises(UsageError, match="expected one pool, got 2"):
            _ = both.only_pool

    def test_only_takes_one(self) -> None:
        assert only(["main"]) == "main"
        with pytest.raises(UsageError, match="expected one pool, got 0"):
            only([])


@pytest.mark.parametrize(
    ("tensor", "written", "expert"),
    [(8, True, 8), (8, "yes", 8), (8, False, 1), (8, 1, 1), (8, 4, 4), (1, True, 1), (4, "2", 2)],
)
def test_experts_are_spread_over_all_gpus_none_or_groups(
    tensor: int, written: object, expert: int
) -> None:
    fleet = {"gpu": "h100-sxm", "tensor_parallel": tensor, "expert_parallel": written}
    layout = load_scenario(SMALL | {"fleet": fleet}).only_pool.layout
    assert (layout.tensor, layout.expert, layout.gpus) == (tensor, expert, tensor)


def test_an_engine_batches_by_its_own_rule_where_it_can() -> None:
    def policy(**changes: Any) -> str | None:
        small = {key: SMALL[key] for key in ("model", "workload")}
        return load_scenario({**small, "fleet": {"gpu": "h100-sxm"}, **changes}).scheduler.policy

    assert policy(engine="sglang") == "sglang"
    assert policy(engine="vllm") is None
    assert policy(engine="sglang", scheduler={"policy": "vllm"}) == "vllm"
    assert policy(engine="sglang", scheduler={"long_prefill_token_threshold": 64}) is None
    assert policy(engine="sglang", kv_cache={"allocator": "contiguous"}) is None
    cached = {"enable_prefix_caching": True}
    assert policy(engine="sglang", kv_cache=cached) == "sglang"
    assert policy(engine="sglang", kv_cache={**cached, "host_memory": "1GiB"}) is None
    assert policy(engine="sglang", fleet={"gpu": "h100-sxm", "pipeline_parallel": 2}) is None
    assert policy(engine="sglang", scheduler={"batching": "static"}) is None
    with pytest.raises(InfersimError, match="key of `policy: vllm`"):
        policy(scheduler={"policy": "sglang", "long_prefill_token_threshold": 64})


def test_tensorrt_llm_plans_ahead_unless_said_otherwise_or_by_another_rule() -> None:
    def ahead(**knobs: Any) -> bool:
        small = {key: SMALL[key] for key in ("model", "workload")}
        fleet = {"gpu": "h100-sxm"}
        document = {**small, "fleet": fleet, "engine": "tensorrt-llm", "scheduler": knobs}
        return load_scenario(document).scheduler.plans_ahead

    assert ahead()
    assert ahead(chunked_prefill=False)
    assert not ahead(async_scheduling=False)
    assert not ahead(policy="vllm")
    assert not ahead(batching="static")
