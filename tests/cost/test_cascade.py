"""Attention that reads once what all requests share: when, how much, and how long it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.cost import CostModel
from sim.cost.batches import Batches
from sim.cost.cascade import CascadeRule
from sim.cost.model import SHARED_PREFIX
from sim.errors import UsageError
from sim.growth.leaps import READ_ONCE
from sim.iteration import Batch, Part
from sim.memory.caching import CachingAllocator
from sim.request import Request
from sim.setup import prepare

H100 = CascadeRule(query_heads=32, kv_heads=8, sms=132)


def scenario(**changes: Any) -> sim.Scenario:
    given: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "engine": "vllm-cascade",
        "kv_cache": {"enable_prefix_caching": True},
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": 32},
            "prompt_tokens": {"kind": "uniform", "low": 4010, "high": 4100},
            "output_tokens": {"kind": "uniform", "low": 20, "high": 90},
            "shared_prefix": {"tokens": 4000, "groups": 1},
        },
        "run": {"requests": 80, "warmup": 0},
    }
    return sim.load_scenario({**given, **changes})


@pytest.mark.parametrize(
    ("prefix", "requests", "prompts", "pays"),
    [
        (255, 64, False, False),
        (256, 64, False, True),
        (8000, 7, True, False),
        (8000, 8, True, True),
        # 63 tiles of keys, one wave of 32 blocks: against 128 and 136 blocks a tile on 132 SMs
        (8000, 16, False, False),
        (8000, 17, False, True),
    ],
)
def test_it_pays_as_in_vllm(prefix: int, requests: int, prompts: bool, pays: bool) -> None:
    assert H100.pays(prefix, requests, prompts=prompts) is pays


def test_heads_without_groups_always_pay() -> None:
    assert CascadeRule(32, 32, 132).pays(256, 8, prompts=False)


def test_common_is_what_all_holders_have_in_one_copy() -> None:
    kv = CachingAllocator(100, 16)
    first, second, alone = (
        Request(n, 0.0, 100, 9, prefix=prefix)
        for n, prefix in enumerate([((7, 64),), ((7, 48), (8, 90)), ()])
    )
    assert kv.common_tokens() == 0
    for request, tokens in ((first, 100), (second, 52)):
        kv.cached(request)
        assert kv.allocate(request, tokens)
    assert kv.common_tokens() == 48
    kv.cached(alone)
    assert kv.allocate(alone, 100)
    assert kv.common_tokens() == 0
    kv.free(alone)
    kv.free(second)
    assert kv.common_tokens() == 64


def cost() -> CostModel:
    return prepare(scenario()).only.cost


def test_the_prefix_is_read_once_and_the_rest_by_each() -> None:
    model, plain = cost().sharing(4000), cost()
    batch = Batch(32, 32 * 4050)
    shared, own = (
        {o.name: o for o in model.pass_operators(batch)}[name]
        for name in (SHARED_PREFIX, "decode attention")
    )
    whole = {o.name: o for o in plain.pass_operators(batch)}["decode attention"]
    token = 131_072  # bytes of llama-3.1-8b in 16 bits
    assert whole.bytes == pytest.approx(token * 32 * 4051, rel=0.01)
    assert own.bytes == pytest.approx(token * 32 * 51, rel=0.2)  # queries and results included
    assert shared.bytes == pytest.approx(token * 4000, rel=0.05)
    assert shared.flops + own.flops == pytest.approx(whole.flops, rel=1e-6)
    assert model.seconds(batch) < plain.seconds(batch)


def test_lines_iterations_and_operators_say_the_same() -> None:
    model = cost().sharing(4000)
    for batch in (
        Batch(32, 32 * 4050),
        Batch(40, 40 * 4100),
        Batch(20, 20 * 4090, [Part(50, 4000), Part(64, 4016)], 2),
    ):
        operators = sum(float(o.seconds) for o in model.pass_operators(batch))
        plain = sum(float(o.seconds) for o in cost().pass_operators(batch))
        gaps = cost().seconds(batch) - plain  # between kernels, and what the host adds
        assert model.seconds(batch) - operators == pytest.approx(gaps, abs=1e-6)


def test_a_run_reads_once_what_its_engine_would() -> None:
    results = {leap: sim.simulate(scenario(), leap=leap) for leap in (True, False)}
    plans = results[True].record.plans
    assert results[False].record.requests.tobytes() == results[True].record.requests.tobytes()
    once = plans[READ_ONCE]
    decodes = plans["prefill_seqs"] == 0
    assert set(once.tolist()) == {0, 4000}
    assert (once[decodes & (plans["computed"] >= 17)] == 4000).all()
    assert (once[decodes & (plans["computed"] <= 16)] == 0).all()
    model, batches = prepare(scenario()).only.cost, Batches.of(plans)
    took = sum(ran.each(ran.operator.seconds) for ran in model.operators(batches, each=True))
    rest = (plans["end"] - plans["start"]) / plans["iterations"] - took
    assert np.ptp(rest[decodes & (plans["computed"] == 32)]) < 1e-9
    plain = sim.simulate(scenario(engine="vllm")).summary["mean_tpot_ms"]
    assert results[True].summary["mean_tpot_ms"] < 0.8 * plain


def test_without_a_prefix_cache_nothing_is_shared() -> None:
    off = {"enable_prefix_caching": False}
    with_it, without = (
        sim.simulate(scenario(engine=engine, kv_cache=off)).summary["mean_tpot_ms"]
        for engine in ("vllm-cascade", "vllm")
    )
    assert with_it == without


def test_what_is_not_modelled_with_it_is_refused() -> None:
    with pytest.raises(UsageError, match="reads a prefix that all requests share once, which is"):
        sim.simulate(scenario(fleet={"gpu": "h100-sxm", "pipeline_parallel": 2}))


def test_a_run_without_a_prefix_cache_says_that_nothing_is_read_once() -> None:
    told = "set kv_cache.enable_prefix_caching to true"
    for caching in (False, True):
        found = sim.simulate(scenario(kv_cache={"enable_prefix_caching": caching}))
        assert any(told in note for note in found.summary["infersim"]["notes"]) is not caching
