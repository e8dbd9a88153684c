"""The prefix cache finds what it may, evicts what vLLM evicts, and counts every block once.

That whole runs batch as vLLM's do is shown by recordings (``tests/conformance/prefix*.json``).
"""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.errors import UsageError
from sim.memory.caching import CachingAllocator
from sim.metrics.load.stability import load
from sim.request import Prefix, Request
from tests.feature_pairs import BASE
from tests.golden_scenarios import changed
from tests.places import MODELS


def made(number: int, prompt: int, prefix: Prefix = (), output: int = 40) -> Request:
    return Request(number, 0.0, prompt, output, prefix=prefix)


def serve(kv: CachingAllocator, request: Request) -> int:
    """Prefill ``request`` and let it go; returns the tokens that were found."""
    found = kv.cached(request)
    assert kv.allocate(request, request.prompt_tokens - found)
    kv.free(request)
    return found


def test_a_token_is_always_left_to_compute() -> None:
    kv = CachingAllocator(100, 16)
    assert serve(kv, made(0, 64, ((1, 64),))) == 0
    assert serve(kv, made(1, 64, ((1, 64),))) == 48  # the last block has the last token
    assert serve(kv, made(2, 65, ((1, 64),))) == 64
    assert serve(kv, made(3, 63, ((1, 63),))) == 48
    assert kv.free_blocks == 100


def test_blocks_across_two_texts_belong_to_the_second() -> None:
    kv = CachingAllocator(100, 16)
    serve(kv, made(0, 100, ((1, 40), (2, 90))))
    assert serve(kv, made(1, 100, ((1, 40), (3, 90)))) == 32
    assert serve(kv, made(2, 100, ((1, 40), (2, 90)))) == 80


def test_running_requests_share_and_no_block_is_counted_twice() -> None:
    kv = CachingAllocator(10, 16)
    first, second = made(0, 40, ((1, 32),)), made(1, 40, ((1, 32),))
    assert kv.allocate(first, 40)
    assert kv.free_blocks == 7
    assert kv.cached(second) == 32
    assert kv.fits(second, 7 * 16)
    assert not kv.fits(second, 7 * 16 + 1)
    assert kv.allocate(second, 8)
    assert (kv.free_blocks, kv.shared_tokens) == (6, 32)
    kv.check_integrity({first: (40, False), second: (40, False)})
    kv.free(first)
    assert (kv.free_blocks, kv.shared_tokens) == (7, 0)
    kv.free(second)
    kv.check_integrity({})
    assert kv.free_blocks == 10


def test_blocks_that_nobody_holds_are_not_free_for_the_one_that_finds_them() -> None:
    kv = CachingAllocator(4, 16)
    serve(kv, made(0, 40, ((1, 32),)))
    again = made(1, 80, ((1, 32),))
    assert kv.cached(again) == 32
    assert not kv.fits(again, 48)  # two found and three more, of four
    assert kv.fits(again, 32)


def test_the_last_block_of_the_oldest_goes_first() -> None:
    kv = CachingAllocator(8, 16)
    for text in (1, 2):
        serve(kv, made(text, 48, ((text, 48),)))
    assert kv.allocate(made(3, 48), 48)  # two empty blocks, and one of text 1
    assert kv.cached(made(4, 49, ((1, 48),))) == 32
    assert kv.cached(made(5, 49, ((2, 48),))) == 48


def test_what_was_found_again_is_young_again() -> None:
    kv = CachingAllocator(8, 16)
    for text in (1, 2, 1):
        serve(kv, made(text, 49, ((text, 48),)))
    assert kv.allocate(made(3, 64), 64)
    assert kv.cached(made(4, 49, ((1, 48),))) == 48
    assert kv.cached(made(5, 49, ((2, 48),))) == 16


def test_a_preempted_request_finds_its_own_blocks() -> None:
    kv = CachingAllocator(10, 16)
    request = made(0, 30)
    assert kv.allocate(request, 30)
    request.joined = 0
    kv.join(request)
    assert kv.grow(20)
    kv.leave(request)
    kv.free(request)
    request.joined, request.generated = -1, 21
    assert kv.cached(request) == 48
    assert kv.cached(made(1, 30)) == 0


def test_a_later_turn_finds_the_earlier_one_and_its_answer() -> None:
    kv = CachingAllocator(20, 16)
    first = made(0, 30)
    assert kv.allocate(first, 30 + 39)
    assert kv.cached(made(1, 100, ((~0, 70),))) == 64  # it runs still, and may be shared
    kv.free(first)
    assert kv.cached(made(1, 100, ((~0, 70),))) == 64
    assert kv.cached(made(2, 100, ((~0, 30),))) == 16


def test_undone_allocation_leaves_nothing_to_find() -> None:
    kv = CachingAllocator(20, 16)
    request = made(0, 96, ((1, 96),))
    assert kv.allocate(request, 32)
    assert kv.allocate(request, 40)
    kv.give_back(request, 40)
    kv.check_integrity({request: (32, False)})
    assert kv.cached(made(1, 200, ((1, 96),))) == 32


def run(**more: Any) -> Any:
    changes = {
        "kv_cache.enable_prefix_caching": True,
        "workload.shared_prefix": {"tokens": 64, "groups": 1},
    }
    return sim.simulate(sim.load_scenario(changed(BASE, changes | more)))


def test_a_run_says_what_was_found_and_computes_the_rest() -> None:
    fixed = {"workload.prompt_tokens": {"kind": "fixed", "value": 100}}
    told = run(**fixed, **{"workload.arrivals": {"kind": "constant", "rate": 1}})
    own = told.summary["infersim"]["prefix_cache"]
    assert own == {
        "queries": 2000,
        "hits": 19 * 64,
        "hit_rate": 19 * 64 / 2000,
        "evicted": 0,
        "first_seen": 64,
        "warmup": {"requests": 0, "hit_rate": None, "evicted": None, "first_seen": None},
        "after": {
            "requests": 20,
            "hit_rate": 19 * 64 / 2000,
            "evicted": 0.0,
            "first_seen": 64 / 2000,
        },
        "steady": True,
    }
    assert told.record.plans["prefill_tokens"].sum() == 2000 - 19 * 64
    assert (
        "prefix_cache"
        not in run(**fixed, **{"kv_cache.enable_prefix_caching": False}).summary["infersim"]
    )


def test_capacity_counts_what_is_computed() -> None:
    long = {
        "workload.prompt_tokens": {"kind": "fixed", "value": 190},
        "workload.output_tokens": {"kind": "fixed", "value": 4},
    }
    whole, most = (
        load(
            run(**long, **{"workload.shared_prefix": {"tokens": tokens, "groups": 1}}).record
        ).utilisation
        for tokens in (1, 160)
    )
    assert most < 0.8 * whole


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scheduler.batching": "static"}, "starts every prompt at its beginning"),
        ({"kv_cache.allocator": "contiguous"}, "a prefix cache needs blocks"),
        ({"model": str(MODELS / "tiny-mamba")}, "models with a state"),
        (
            {"kv_cache.prefix_policy": "radix"},
            "radix is the prefix cache of `scheduler.policy: sglang`; vllm has blocks",
        ),
        (
            {"kv_cache.prefix_policy": "blocks", "scheduler.policy": "sglang"},
            "blocks is the prefix cache of `scheduler.policy: vllm`; sglang has radix",
        ),
    ],
)
def test_what_has_no_prefix_cache_says_so(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run(**change)


@pytest.mark.parametrize(("engine", "kind"), [("vllm", "blocks"), ("sglang", "radix")])
def test_naming_the_prefix_cache_of_the_policy_changes_nothing(engine: str, kind: str) -> None:
    plain, named = (run(engine=engine, **more) for more in ({}, {"kv_cache.prefix_policy": kind}))
    assert plain.summary["infersim"]["prefix_cache"] == named.summary["infersim"]["prefix_cache"]
    assert plain.requests.equals(named.requests)
