"""SGLang's prefix cache: its tree step by step, its accounts, and requests that run on it."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import sim
from sim.errors import ScenarioError, UsageError
from sim.memory.radix import RadixAllocator
from sim.memory.radix_tree import RadixTree
from sim.request import Prefix, Request
from sim.schedulers import Limits, make_scheduler
from sim.schedulers.orders import LongestPrefix
from sim.schedulers.prefix_order import sort_by_prefix
from sim.schedulers.queues import Resorted
from tests.conformance.sglang_trees import Ours
from tests.feature_pairs import BASE
from tests.golden_scenarios import changed
from tests.places import ROOT

TREES = ROOT / "tests/conformance/trees"
CASES = json.loads((TREES / "sglang.json").read_text(encoding="utf-8"))
QUEUES = json.loads((TREES / "sglang-lpm.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES["cases"])
def test_the_tree_finds_keeps_and_evicts_what_that_of_sglang_does(case: dict[str, Any]) -> None:
    ours, found = Ours(), 0
    for number, (what, value, *answer) in enumerate(case["steps"]):
        assert list(ours.do(what, value)) == answer, (number, what)
        ours.tree.check_integrity()
        found += answer[0]
    assert found > 30


@pytest.mark.parametrize("case", QUEUES["cases"])
def test_queues_are_sorted_by_prefix_as_those_of_sglang(case: dict[str, Any]) -> None:
    ours, moved = Ours(case["page_size"]), 0
    for number, (what, value, *answer) in enumerate(case["steps"]):
        assert list(ours.do(what, value)) == answer, (number, what)
        ours.tree.check_integrity()
        moved += what == "order" and answer[0] != sorted(answer[0])
    assert moved >= 5


@pytest.mark.parametrize(("waiting", "first"), [(128, 127), (129, 0)])
def test_more_than_128_are_not_sorted_by_prefix(waiting: int, first: int) -> None:
    kv = RadixAllocator(100_000, 1)
    scheduler = make_scheduler(
        "continuous", Limits(1, 8192), kv, rule="sglang", order=LongestPrefix.name
    )
    kv.tree.enter([(5, 0, 50)])
    for number in range(waiting):
        own = (((5, 50),), ())[number < waiting - 1]
        scheduler.submit(made(number, 60, own))
    plan = scheduler.schedule(0.0)
    assert plan is not None
    assert [chunk.request.id for chunk in plan.chunks] == [first]


def test_who_would_compute_the_same_waits_for_the_other() -> None:
    kv, waiting = RadixAllocator(1000, 1), Resorted()
    for number, text in enumerate((1, 1, 2, 3)):
        waiting.append(made(number, 60, ((text, 40),)))
    kv.tree.enter([(3, 0, 40)])
    sort_by_prefix(waiting, kv)
    assert [request.id for request in waiting] == [3, 0, 2, 1]


def made(number: int, prompt: int, prefix: Prefix = (), output: int = 40) -> Request:
    return Request(number, 0.0, prompt, output, prefix=prefix)


def test_a_leaf_goes_whole_and_the_oldest_first() -> None:
    tree = RadixTree()
    tree.enter([(1, 0, 4)])
    tree.enter([(2, 0, 3)])
    tree.find([(1, 0, 4)])
    assert tree.evict(1) == 3
    assert (tree.find([(2, 0, 3)]).high, tree.find([(1, 0, 4)]).high, tree.idle) == (0, 4, 4)


def test_equal_prompts_computed_at_once_are_kept_once() -> None:
    kv = RadixAllocator(10, 16)
    first, second = made(0, 40, ((1, 32),)), made(1, 40, ((1, 32),))
    for request in (first, second):
        assert kv.cached(request) == 0
        assert kv.allocate(request, 40)
    assert kv.free_blocks == 4
    kv.publish(first, 40)
    kv.publish(second, 40)
    assert (kv.free_blocks, kv.shared_tokens, kv.several_tokens) == (6, 32, 32)
    kv.check_integrity({first: (40, False), second: (40, False)})


def test_who_is_retracted_enters_nothing_and_who_finishes_enters_its_answer() -> None:
    kv = RadixAllocator(100, 1)
    lost, done = made(0, 20, output=9), made(1, 30, output=9)
    for request in (lost, done):
        kv.cached(request)
        assert kv.allocate(request, request.prompt_tokens)
    kv.free(lost)
    assert kv.idle_tokens == 0
    done.generated = 9
    assert kv.allocate(done, 8)
    kv.free(done)
    kv.check_integrity({})
    assert (kv.idle_tokens, kv.free_blocks) == (38, 100)
    again = made(2, 60, ((~1, 39),))
    assert kv.cached(again) == 38
    assert kv.tree.evict(1) == 8  # the answer goes without the prompt


def scenario(**changes: Any) -> sim.Scenario:
    tight = {
        "engine": "sglang",
        "kv_cache.enable_prefix_caching": True,
        "workload.shared_prefix": {"tokens": 40, "groups": 3},
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return sim.load_scenario(changed(BASE, tight))


@pytest.mark.parametrize("order", ["fcfs", "lpm"])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("overlap", [True, False])
def test_leaps_change_nothing_while_leaves_are_evicted(
    page: int, overlap: bool, order: str
) -> None:
    one = scenario(
        scheduler__order=order,
        kv_cache__block_size=page,
        kv_cache__num_gpu_blocks=480 // page,
        scheduler__async_scheduling=overlap,
    )
    leaping, stepping = (sim.simulate(one, leap=leap) for leap in (True, False))
    pd.testing.assert_frame_equal(leaping.requests, stepping.requests, check_exact=True)
    own, other = (each.summary["infersim"]["prefix_cache"] for each in (leaping, stepping))
    assert own == other
    assert own["hit_rate"] > 0
    assert own["evicted"] > 0 or order == "lpm"  # which may serve prefixes before they leave


def test_the_engine_brings_its_own_cache() -> None:
    assert scenario().pools[0].scheduler.rule == "sglang"


def test_an_order_by_prefix_needs_the_tree() -> None:
    with pytest.raises(ScenarioError, match="lpm goes by what SGLang's prefix tree has"):
        scenario(scheduler__order="lpm", kv_cache__enable_prefix_caching=False)
    with pytest.raises(ScenarioError, match="lpm goes by what SGLang's prefix tree has"):
        scenario(scheduler__order="lpm", engine="vllm")


def test_memory_of_the_host_goes_with_the_blocks_of_vllm() -> None:
    with pytest.raises(UsageError, match="policy: vllm"):
        sim.simulate(scenario(scheduler__policy="sglang", kv_cache__host_memory="1GiB"))
