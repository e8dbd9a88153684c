"""A run on several pools: its metrics are those of the same replicas in one pool."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from sim import catalog
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.loop.recorder import REJECTED
from sim.metrics.bands.confidence import provenance
from sim.metrics.fleet.energy import pool_energy
from sim.metrics.record.pools import combined, mean, total
from sim.metrics.record.run_record import RunRecord
from sim.metrics.words.slo_text import headroom_sentences
from sim.pools import PreparedPool
from sim.result import Result
from sim.scenario import Scenario, load_scenario
from sim.setup import Setup, prepare
from sim.simulation import play, simulate
from sim.units import show_utilisation
from sim.workload import build
from tests.places import VLLM

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 3},
    "engine": VLLM,
    "kv_cache": {"num_gpu_blocks": 500},
    "scheduler": {"max_num_seqs": 24},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 24},
        "prompt_tokens": {"kind": "lognormal", "mean": 700, "cv": 1, "max": 4000},
        "output_tokens": {"kind": "lognormal", "mean": 200, "cv": 0.7, "max": 900},
    },
    "max_model_len": 4500,
    "slo": {"ttft": "2s", "tpot": "40ms"},
    "run": {"requests": 500},
}


def part(pool: PreparedPool, index: int, first: int, replicas: int) -> PreparedPool:
    """Some of the replicas of ``pool`` as a pool of their own."""
    name = f"pool {index}"
    settings = replace(pool.settings, index=index, first=first, replicas=replicas, name=name)
    return replace(pool, settings=settings)


def parted(setup: Setup) -> Setup:
    """``setup`` with its first replica in one pool, and the others in a second one."""
    pool = setup.only
    return replace(setup, pools=(part(pool, 0, 0, 1), part(pool, 1, 1, pool.replicas - 1)))


def run(scenario: Scenario, setup: Setup) -> RunRecord:
    return play(setup, build(scenario, scenario.seed), leap=True, stop=Stop())


@cache
def records() -> tuple[RunRecord, RunRecord]:
    """The run on one pool, and on two."""
    scenario = load_scenario(SCENARIO)
    setup = prepare(scenario)
    return run(scenario, setup), run(scenario, parted(setup))


def flat(value: object, at: str = "") -> dict[str, object]:
    """Each number and text of a document, by the keys that lead to it."""
    if isinstance(value, dict):
        return {k: v for key, each in value.items() for k, v in flat(each, f"{at}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, each in enumerate(value) for k, v in flat(each, f"{at}.{i}").items()}
    return {at: value}


def test_requests_and_plans_are_the_same() -> None:
    one, two = records()
    assert two.requests.tobytes() == one.requests.tobytes()
    assert two.plans.tobytes() == one.plans.tobytes()


def test_the_parts_are_the_whole() -> None:
    """Every plan and every request that was accepted is in the part of the pool that had it."""
    _, record = records()
    first, second = record.parts
    assert set(first.plans["replica"]) == {0}
    assert set(second.plans["replica"]) == {1, 2}
    assert len(first.plans) + len(second.plans) == len(record.plans)
    places = np.concatenate([first.places, second.places])
    accepted = np.flatnonzero(record.requests["status"] != REJECTED)
    assert sorted(places.tolist()) == accepted.tolist()
    assert 0 < len(accepted) < len(record.requests)
    assert record.replicas == record.gpus == 3


@pytest.mark.parametrize("name", ["summary", "charts"])
def test_metrics_of_all_pools_are_those_of_the_run(name: str) -> None:
    """What the traffic asks of the capacity differs a little: how much slower than full batches a
    replica was is found from the plans of its own pool."""
    documents = [getattr(Result(record), name) for record in records()]
    if name == "summary":
        assert len(documents[1]["infersim"].pop("pools")) == 2
        for document in documents:
            del document["infersim"]["routing"]  # counts over the mean of a pool
        assert len(documents[1]["infersim"]["verdict"].pop("by_pool")) == 2
    else:
        assert len(documents[1].pop("fleet")["pools"]) == 2  # one pool needs no chart of pools
    one, two = map(flat, documents)
    assert one.keys() == two.keys()
    own = ("verdict.utilisation", "verdict.headroom")
    for key, value in one.items():
        if isinstance(value, float):
            rough = key.startswith(tuple(f".infersim.{each}" for each in own))
            assert two[key] == pytest.approx(value, rel=0.01 if rough else 1e-9), key
        elif not key.startswith(".infersim.verdict.text"):
            assert two[key] == value, key


def test_parts_of_latency_are_the_same() -> None:
    one, two = (Result(record).requests for record in records())
    for name in one.columns:
        if one[name].dtype == np.float64:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-12, err_msg=name)
        else:
            assert two[name].equals(one[name]), name
    assert (one["preemptions"] > 0).any()


class TestDifferentPools:
    """Two pools of different GPUs: each metric counts what its own pool was."""

    @staticmethod
    @cache
    def record() -> RunRecord:
        scenario = load_scenario(SCENARIO)
        small = prepare(scenario.override({"fleet.0.gpu": "a100-sxm-80gb"})).only
        big, others = parted(prepare(scenario)).pools
        return run(
            scenario, Setup(scenario, (big, part(small, 1, others.settings.first, others.replicas)))
        )

    def test_price_and_energy_are_sums(self) -> None:
        record = self.record()
        own = Result(record).summary["infersim"]
        prices = [catalog.gpu(name).price_per_hour for name in ("h100-sxm", "a100-sxm-80gb")]
        assert None not in prices
        h100, a100 = prices
        assert own["cost"]["usd"] == pytest.approx((h100 + 2 * a100) * record.duration / 3600)
        pools = [pool_energy(each) for each in record.parts]
        joules = sum(each.busy + each.idle for each in pools)
        outputs = int(record.requests["generated"][record.completed].sum())
        assert own["energy"]["joules_per_output_token"] == pytest.approx(joules / outputs)
        assert own["energy"]["peak_watts_per_gpu"] == max(each.most for each in pools)
        idle = [0.17 * 400 * (each.span - each.durations.sum()) for each in record.parts[1:]]
        assert pools[1].idle == pytest.approx(idle[0])

    def test_utilisation_is_of_what_all_gpus_could_do(self) -> None:
        record = self.record()
        big, small = (each.pool.deployment.gpu.bandwidth for each in record.parts)
        moved = sum(each.attribution.bytes for each in record.parts)
        found = Result(record).summary["infersim"]["utilisation"]
        assert found["mbu"] == pytest.approx(moved / record.duration / (big + 2 * small))

    def test_what_differs_is_named_or_left_out(self) -> None:
        record = self.record()
        own = Result(record).summary["infersim"]
        assert own["gpu"] == "h100-sxm, a100-sxm-80gb"
        assert own["memory"]["weights_bytes"] is not None
        assert own["cost"]["origin"] == "list"
        for each in record.parts:
            assert provenance(each.pool.deployment) in own["provenance"]
        assert Result(record).charts["roofline"] is None


def test_one_pool_is_not_rounded() -> None:
    record, _ = records()
    (whole,) = record.parts
    assert whole.plans is record.plans
    assert total([whole.attribution]) == whole.attribution
    assert mean([0.1], [7]) == 0.1
    assert combined([{"a": 1, "b": 2}, {"a": 1, "b": 3}]) == {"a": 1, "b": None}


POOLS: dict[str, Any] = {
    **SCENARIO,
    "fleet": [
        {"name": "fast", "gpu": "h100-sxm"},
        {
            "name": "slow",
            "gpu": "l40s",
            "replicas": 2,
            "engine": "sglang",
            "scheduler": {"max_num_seqs": 8},
            "kv_cache": {"num_gpu_blocks": 300, "block_size": 16},
        },
    ],
    "max_model_len": 4500,
    "run": {"requests": 300},
}


class TestByPool:
    """A scenario of two pools, and what its summary says of each."""

    @staticmethod
    @cache
    def result() -> Result:
        return simulate(POOLS)

    def test_a_pool_has_its_own_settings_and_the_scenarios_for_the_rest(self) -> None:
        fast, slow = prepare(load_scenario(POOLS)).pools
        assert (fast.limits.max_num_seqs, slow.limits.max_num_seqs) == (24, 8)
        assert (fast.capacity.num_gpu_blocks, slow.capacity.num_gpu_blocks) == (500, 300)
        assert (fast.settings.scheduler.rule, slow.settings.scheduler.rule) == ("vllm", "sglang")
        assert fast.limits.max_model_len == slow.limits.max_model_len == 4500

    def test_the_pools_add_up_to_the_run(self) -> None:
        summary = self.result().summary
        fast, slow = summary["infersim"]["pools"]
        assert fast["completed"] + slow["completed"] == summary["completed"] > 0
        assert fast["share"] + slow["share"] == pytest.approx(1)
        for key in ("output_throughput", "request_throughput"):
            assert fast[key] + slow[key] == pytest.approx(summary[key])
        assert fast["usd"] + slow["usd"] == pytest.approx(summary["infersim"]["cost"]["usd"])
        assert summary["infersim"]["preemptions"] == fast["preemptions"] + slow["preemptions"]

    def test_the_verdict_names_the_pool_that_limits(self) -> None:
        """The fleet's utilisation lies between those of its pools, and is their mean by what each
        could serve."""
        verdict = self.result().summary["infersim"]["verdict"]
        fast, slow = verdict["by_pool"]
        assert fast < verdict["utilisation"] < slow
        assert "Pool slow limits" in verdict["text"]

    def test_leaps_change_nothing(self) -> None:
        steps = simulate(POOLS, leap=False)
        assert steps.record.requests.tobytes() == self.result().record.requests.tobytes()

    def test_a_scenario_of_its_resolved_values_is_equal(self) -> None:
        scenario = load_scenario(POOLS)
        assert load_scenario(scenario.resolved()) == scenario

    def test_what_lays_out_one_pool_refuses_two(self) -> None:
        with pytest.raises(UsageError, match="expected one pool, got 2"):
            _ = load_scenario(POOLS).only_pool


def test_a_router_that_does_not_look_overloads_the_slower_pool() -> None:
    """Half of the traffic is more than the L40S serves, while both together could serve all."""
    chat = {
        "model": "llama-3.1-8b",
        "fleet": [{"name": "new", "gpu": "h100-sxm"}, {"name": "old", "gpu": "l40s"}],
        "max_model_len": 8192,
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 24},
            "prompt_tokens": {"kind": "fixed", "value": 600},
            "output_tokens": {"kind": "fixed", "value": 250},
        },
        "run": {"requests": 1500},
    }
    blind, looking = (
        simulate({**chat, "router": router}).summary["infersim"]["verdict"]
        for router in ("round-robin", "least-outstanding")
    )
    assert blind["utilisation"] < 0.9
    assert blind["by_pool"][1] > 1
    assert (blind["state"], looking["state"]) == ("overloaded", "stable")
    assert blind["text"].startswith("Overloaded: the router sends one pool more than it can serve")
    assert blind["slo_headroom"] is None
    (shrink,) = headroom_sentences(blind)
    less = show_utilisation(1 - 1 / blind["by_pool"][1])
    assert less in shrink
    assert shrink.endswith(", or the router to deal more evenly.")
    assert looking["slo_headroom"] == pytest.approx(1 / looking["utilisation"] - 1, rel=1e-3)


def test_pools_that_are_alike_are_prepared_once() -> None:
    """Names, numbers and weights do not change what a replica is; its scheduler does."""
    pools = [{"name": f"p{at}", "gpu": "h100-sxm", "replicas": at + 1} for at in range(3)]
    pools[2]["scheduler"] = {"max_num_seqs": 7}
    scenario = load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": pools,
            "max_model_len": 4096,
            "workload": {
                "arrivals": {"kind": "poisson", "rate": 1},
                "prompt_tokens": {"kind": "fixed", "value": 10},
                "output_tokens": {"kind": "fixed", "value": 10},
            },
        }
    )
    one, two, three = prepare(scenario).pools
    assert one.cost is two.cost
    assert one.capacity is two.capacity
    assert (one.replicas, two.replicas) == (1, 2)
    assert three.capacity is not one.capacity
    assert three.limits.max_num_seqs == 7


def test_each_replica_that_prefills_has_the_requests_that_it_prefilled() -> None:
    scenario = {
        "model": "llama-3.1-8b",
        "fleet": [
            {"name": "prompts", "role": "prefill", "gpu": "h100-sxm", "replicas": 2},
            {"name": "answers", "role": "decode", "gpu": "h100-sxm"},
        ],
        "transfer": {"bandwidth": "100GB/s"},
        "router": "round-robin",
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 10},
            "prompt_tokens": {"kind": "fixed", "value": 500},
            "output_tokens": {"kind": "fixed", "value": 20},
        },
        "run": {"requests": 40},
    }
    dealt = simulate(scenario).summary["infersim"]["routing"]
    assert [each["requests"] for each in dealt["replicas"]] == [20, 20, 40]
    assert dealt["requests_over_mean"] == 1.0
