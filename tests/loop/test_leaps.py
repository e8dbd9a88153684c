"""Leaps change nothing: the same token times, to the last bit, as one event per iteration."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.growth.steady import SteadyRun
from sim.memory import ContiguousAllocator, PagedAllocator
from sim.metrics.latency.gaps import Gaps
from sim.request import TrafficClass
from sim.routers import ROUTERS
from sim.schedulers import Limits, Scheduler, make_scheduler
from sim.schedulers.orders import ORDERS
from tests.harness import Arriving, LineTimer, Played, play
from tests.places import MODELS

POLICIES = ["static", "request", "continuous", "prefill-first"]
WITHOUT_TREE = [name for name in ORDERS if not ORDERS[name].by_prefix]  # lpm: test_radix
TICK = 2.0**-7


@st.composite
def schedulers(draw: st.DrawFn) -> Callable[[], Scheduler]:
    policy = draw(st.sampled_from(POLICIES))
    seats = draw(st.integers(1, 6))
    budget = draw(st.integers(max(seats, 20), 60))  # a prompt is at most 20 tokens long
    blocks, size = draw(st.integers(14, 60)), draw(st.sampled_from([1, 2, 4, 16]))
    contiguous = draw(st.booleans())
    reserve = draw(st.booleans())
    timeout = draw(st.integers(0, 40)) * TICK
    whole = policy in ("static", "request")  # where fair shares are refused
    order = draw(st.sampled_from([o for o in WITHOUT_TREE if not whole or o != "fair"]))
    threshold = draw(st.sampled_from([0, 0, 2, 5, 9]))

    def make() -> Scheduler:
        limits = Limits(seats, budget, 40, reserve, timeout, threshold)
        tokens = max(blocks * size, 80)
        kv = (
            ContiguousAllocator(tokens, 40)
            if contiguous
            else PagedAllocator(-(-tokens // size), size)
        )
        batching = "continuous" if policy == "prefill-first" else policy
        rule = "vllm-v0" if policy == "prefill-first" else "vllm"
        return make_scheduler(batching, limits, kv, order=order, rule=rule)

    return make


classes = st.builds(
    TrafficClass,
    index=st.just(0),
    name=st.just(""),
    priority=st.integers(0, 2),
    deadline=st.integers(0, 90).map(lambda n: n * TICK),
)
lengths = st.tuples(st.integers(1, 20), st.integers(1, 20), classes)
prices = st.builds(
    LineTimer,
    fixed=st.sampled_from([TICK, 3 * TICK]),
    sequence=st.sampled_from([0.0, TICK / 4]),
    context=st.sampled_from([0.0, TICK / 64]),
    token=st.sampled_from([0.0, TICK / 8]),
    bend=st.one_of(st.none(), st.integers(10, 100)),
)
# arrivals on the grid that iterations end on, so that ties are the rule
open_traffic = st.lists(
    st.tuples(
        st.integers(0, 200).map(lambda n: n * TICK), st.integers(1, 20), st.integers(1, 20), classes
    ),
    min_size=1,
    max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[:3]))
closed_traffic = st.tuples(
    st.integers(1, 8),
    st.integers(0, 8).map(lambda n: n * TICK),
    st.lists(lengths, min_size=1, max_size=25),
)


def assert_same(leaps: Played, steps: Played) -> None:
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.unfinished == steps.unfinished
    mine, theirs = leaps.recorder.request_rows(), steps.recorder.request_rows()
    assert mine.tobytes() == theirs.tobytes()
    assert gap_counts(leaps) == gap_counts(steps)


def gap_counts(played: Played) -> dict[float, float]:
    counts: dict[float, float] = {}
    gaps = Gaps.recorded(played.recorder.plan_rows(), played.recorder.gap_rows()).written_out()
    for gap, count in zip(*gaps, strict=True):
        if count:
            counts[float(gap)] = counts.get(float(gap), 0) + float(count)
    return counts


@given(
    traffic=st.one_of(open_traffic, closed_traffic),
    scheduler=schedulers(),
    price=prices,
    replicas=st.integers(1, 4),
    router=st.sampled_from([*ROUTERS, "tests.own_routers:Nosy"]),
    horizon=st.one_of(st.none(), st.integers(1, 400).map(lambda n: n * TICK / 2)),
)
def test_same_token_times_with_and_without_leaps(
    traffic: list[Arriving],
    scheduler: Callable[[], Scheduler],
    price: LineTimer,
    replicas: int,
    router: str,
    horizon: float | None,
) -> None:
    runs = [
        play(
            traffic,
            scheduler,
            price,
            leap=leap,
            replicas=replicas,
            router=router,
            horizon=horizon,
        )
        for leap in (True, False)
    ]
    assert_same(*runs)
    if horizon is None:
        for replica in runs[0].replicas:
            assert replica.outstanding == 0
            assert replica.scheduler.kv.reserved == 0


@given(traffic=open_traffic, scheduler=schedulers(), price=prices)
def test_recorded_gaps_are_those_of_the_tokens(
    traffic: list[Arriving], scheduler: Callable[[], Scheduler], price: LineTimer
) -> None:
    played = play(traffic, scheduler, price, leap=True)
    seen: dict[float, float] = {}
    for times in played.tokens.values():
        for gap in np.diff(times).tolist():
            seen[gap] = seen.get(gap, 0) + 1
    recorded = gap_counts(played)
    assert sum(recorded.values()) == sum(seen.values())
    assert sorted(recorded) == pytest.approx(sorted(seen), abs=1e-12)  # dyadic: no rounding
    assert recorded == seen


RULES = [{"policy": "vllm"}, {"chunked_prefill": False}, {"policy": "vllm-v0"}]
BATCHED = [
    (batching, order, rule)
    for batching in ("static", "request", "continuous")
    for order in WITHOUT_TREE
    for rule in (RULES if batching == "continuous" else [{}])
    if batching == "continuous" or order != "fair"  # fair: between requests that come and go
]


@pytest.mark.parametrize(("batching", "order", "rule"), BATCHED)
@pytest.mark.parametrize("allocator", ["paged", "contiguous"])
def test_real_prices_give_the_same_times(
    batching: str, rule: dict[str, object], allocator: str, order: str
) -> None:
    older = rule.get("policy") == "vllm-v0"
    scenario = sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm", "replicas": 2},
            "router": "power-of-two",
            "scheduler": {
                "batching": batching,
                **rule,
                "order": order,
                "max_num_seqs": 16,
                "long_prefill_token_threshold": 128 if order == "sjf" and not older else 0,
            },
            "kv_cache": {"allocator": allocator, "num_gpu_blocks": 700},
            "max_model_len": 4096,
            "workload": {
                "arrivals": {"kind": "gamma", "rate": 9, "cv": 2},
                "prompt_tokens": {"kind": "lognormal", "mean": 300, "p95": 900, "max": 2000},
                "output_tokens": {"kind": "lognormal", "mean": 60, "p95": 200, "max": 500},
                "classes": [
                    {"name": "chat", "share": 0.4, "deadline": "500ms"},
                    {"name": "batch", "share": 0.6, "deadline": "20s", "priority": 1},
                ],
            },
            "run": {"requests": 250},
        }
    )
    leaps, steps = sim.simulate(scenario, leap=True), sim.simulate(scenario, leap=False)
    assert leaps.record.requests.tobytes() == steps.record.requests.tobytes()
    assert len(leaps.record.plans) < len(steps.record.plans)
    assert leaps.record.plans["preemptions"].sum() == steps.record.plans["preemptions"].sum()


def test_an_arrival_cuts_a_leap_at_the_next_boundary_only() -> None:
    def make() -> Scheduler:
        return make_scheduler("continuous", Limits(8, 100, 1000), PagedAllocator(100, 16))

    traffic = [(0.0, 8, 100), (0.33, 8, 2)]
    played = play(traffic, make, LineTimer(0.125, 0.0, 0.0, 0.0), leap=True)
    # prefill until 0.125, a leap cut at 0.375 by the arrival at 0.33, its prefill until 0.5
    assert played.tokens[1] == [0.5, 0.625]
    assert played.tokens[0][:5] == [0.125, 0.25, 0.375, 0.5, 0.625]
    assert played.events == 5  # prefill, two decodes, prefill + decode, one decode, the other 95


@given(
    first=st.floats(1e-4, 1.0),
    step=st.one_of(st.just(0.0), st.floats(1e-9, 1e-2)),
    start=st.floats(0, 1e6),
    place=st.floats(0, 1),
    high=st.integers(1, 10_000),
)
def test_boundary_search_is_exact(
    first: float, step: float, start: float, place: float, high: int
) -> None:
    run = SteadyRun(start, 1, 0, (math.inf, first, step))
    time = start + place * (run.boundary(high) - start)
    found = run.first_boundary_from(time, 0, high)
    assert run.boundary(found) >= time or found == high
    assert found == 0 or run.boundary(found - 1) < time


TIGHT = {
    "engine": "ideal",
    "fleet": {"gpu": "a10g"},
    "max_model_len": 128,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 30},
        "output_tokens": {"kind": "fixed", "value": 50},
    },
    "run": {"requests": 24, "warmup": 0},
}
WAITING = {"batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 0.7}


@pytest.mark.parametrize("blocks", [24, 31, 42, 400])
@pytest.mark.parametrize("model", ["tiny-windows", "tiny-chunks"])
@pytest.mark.parametrize(
    "rule",
    [
        {"policy": "vllm-v0"},
        {"chunked_prefill": False},
        {"policy": "max-utilization", **WAITING},
        {"policy": "guaranteed-no-evict", **WAITING},
        {"policy": "guaranteed-no-evict", "max_tokens": 60, "async_scheduling": True},
    ],
    ids=["vllm-v0", "whole prompts", "max-utilization", "no-evict", "no-evict ahead"],
)
def test_memory_behind_windows_is_given_back_in_a_leap_as_without(
    rule: dict[str, object], model: str, blocks: int
) -> None:
    """Also where a request could enter by what the growth of the leap's first iteration gave back,
    and where prompts that wait for company are counted."""
    scenario = sim.load_scenario(
        {
            **TIGHT,
            "model": str(MODELS / model),
            "scheduler": {"max_num_seqs": 9, "max_num_batched_tokens": 128, **rule},
            "kv_cache": {"num_gpu_blocks": blocks},
        }
    )
    leaps, steps = sim.simulate(scenario, leap=True), sim.simulate(scenario, leap=False)
    assert leaps.record.requests.tobytes() == steps.record.requests.tobytes()
    assert leaps.record.plans["preemptions"].sum() == steps.record.plans["preemptions"].sum()
    if "guaranteed" in str(rule):
        assert not leaps.record.plans["preemptions"].any()
    elif blocks < 42:
        assert leaps.record.plans["preemptions"].any()
